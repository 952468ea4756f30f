"""Whatever a file holds, it is a model or it is refused."""

import contextlib
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper
from tests.onnx_models import constant, gru, model, value

from tickpath.engines import ModelRefusedError
from tickpath.engines.onnx_model import read_model

OPTIONAL = model(
    [helper.make_node("Add", ["x", "bias"], ["y"])],
    [value("x", np.float32, ["N", 2]), value("bias", np.float32, [2])],
    [value("y", np.float32, ["N", 2])],
    [constant("bias", [1, 2])],
)
WHOLE = (gru().SerializeToString(), OPTIONAL.SerializeToString())

edits = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 8), st.binary(max_size=8)), min_size=1, max_size=4)


@given(whole=st.sampled_from(WHOLE), edits=edits)
def test_damaged_files(whole: bytes, edits: list[tuple[float, int, bytes]]) -> None:
    content = bytearray(whole)
    for place, removed, inserted in edits:
        start = int(place * len(content))
        content[start : start + removed] = inserted
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        file.write(content)
        file.flush()
        with contextlib.suppress(ModelRefusedError):
            read_model(Path(file.name), {})
