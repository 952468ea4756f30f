"""What a model says of itself."""

import tomllib

import numpy as np
import pytest

from tickpath.engines import EngineSpec, TensorSpec
from tickpath.engines.spec import declaring

F32 = np.dtype(np.float32)
DEFAULT = np.zeros((3,), np.float32)


@pytest.mark.parametrize(
    ("inputs", "hint"),
    [
        ([TensorSpec("x", F32, (8, 100, 40))], '--shape x=N,100,40 (in a configuration shapes = { x = "N,100,40" })'),
        (
            [TensorSpec("x", F32, (8, 3)), TensorSpec("y", F32, (8,))],
            '--shape x=N,3 --shape y=N (in a configuration shapes = { x = "N,3", y = "N" })',
        ),
        (
            [TensorSpec("x", F32, (8, 3)), TensorSpec("o", F32, (3,), default=DEFAULT)],
            '--shape x=N,3 (in a configuration shapes = { x = "N,3" })',
        ),
        ([TensorSpec("x", F32, (8, 3)), TensorSpec("y", F32, (5,))], ""),
        ([TensorSpec("x", F32, (1, 3), batch_axis=0)], ""),
        ([TensorSpec("x", F32, (1, 3))], ""),
        ([TensorSpec("x", F32, ())], ""),
        ([], ""),
    ],
)
def test_how_a_fixed_batch_could_be_declared(inputs: list[TensorSpec], hint: str) -> None:
    assert EngineSpec(tuple(inputs), (), "test", "float32", "").batch_hint == hint


@pytest.mark.parametrize("name", ["x", "input_1-b", "serving_default_x:0", "a.b", 'say "x"', "Größe"])
def test_what_is_said_of_a_configuration_can_be_put_there(name: str) -> None:
    key = declaring({name: ("N", 3), "y": (2, "N")}).partition("(in a configuration ")[2].removesuffix(")")
    assert tomllib.loads(key) == {"shapes": {name: "N,3", "y": "2,N"}}
