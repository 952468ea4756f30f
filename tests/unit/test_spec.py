"""What a model says of itself."""

import numpy as np
import pytest

from tickpath.engines import EngineSpec, TensorSpec

F32 = np.dtype(np.float32)
DEFAULT = np.zeros((3,), np.float32)


@pytest.mark.parametrize(
    ("inputs", "hint"),
    [
        ([TensorSpec("x", F32, (8, 100, 40))], "--shape x=N,100,40"),
        ([TensorSpec("x", F32, (8, 3)), TensorSpec("y", F32, (8,))], "--shape x=N,3 --shape y=N"),
        ([TensorSpec("x", F32, (8, 3)), TensorSpec("o", F32, (3,), default=DEFAULT)], "--shape x=N,3"),
        ([TensorSpec("x", F32, (8, 3)), TensorSpec("y", F32, (5,))], ""),
        ([TensorSpec("x", F32, (1, 3), batch_axis=0)], ""),
        ([TensorSpec("x", F32, (1, 3))], ""),
        ([TensorSpec("x", F32, ())], ""),
        ([], ""),
    ],
)
def test_how_a_fixed_batch_could_be_declared(inputs: list[TensorSpec], hint: str) -> None:
    assert EngineSpec(tuple(inputs), (), "test", "float32", "").batch_hint == hint
