"""Inputs of a call: drawn, read, or refused in one line."""

from pathlib import Path

import numpy as np
import pytest

from tickpath.console.calls import draw, make_inputs, parse_sources
from tickpath.console.errors import ConsoleError
from tickpath.wire import ITEM_BYTES, ModelInfo, TensorInfo

X = TensorInfo("x", "float32", (1, 120, 3), 0)
STATE = TensorInfo("state", "int64", (2, 1), 1)
MASK = TensorInfo("mask", "bool", (3,), -1, optional=True)
MODEL = ModelInfo("m", "1", 0, (X, STATE, MASK), (X,), (1, 2))


@pytest.mark.parametrize("dtype", ITEM_BYTES)
def test_draws_every_dtype_the_same_each_time(dtype: str) -> None:
    tensor = TensorInfo("x", dtype, (1, 50), 0)
    drawn = draw(tensor, 3)
    assert (drawn.dtype, drawn.shape) == (np.dtype(dtype), (3, 50))
    assert np.array_equal(drawn, draw(tensor, 3))
    assert len(np.unique(drawn)) > 1


def test_rows_lie_along_each_inputs_own_axis(tmp_path: Path) -> None:
    np.save(tmp_path / "mask.npy", np.array([True, False, True]))
    inputs = make_inputs(MODEL, {"x": "random", "state": "random", "mask": f"{tmp_path}/mask.npy"}, rows=2)
    assert {name: array.shape for name, array in inputs.items()} == {"x": (2, 120, 3), "state": (2, 2), "mask": (3,)}


def test_a_number_stands_for_all_elements() -> None:
    inputs = make_inputs(MODEL, {"x": "-2.5e3", "state": "16000", "mask": "1"}, rows=2)
    assert {name: (array.dtype.name, array.shape) for name, array in inputs.items()} == {
        "x": ("float32", (2, 120, 3)),
        "state": ("int64", (2, 2)),
        "mask": ("bool", (3,)),
    }
    assert {np.unique(array).item() for array in inputs.values()} == {-2500.0, 16000, True}


def test_optional_inputs_may_be_left_out() -> None:
    assert set(make_inputs(MODEL, {"x": "random", "state": "random"}, rows=1)) == {"x", "state"}


@pytest.mark.parametrize(
    ("sources", "says"),
    [
        ({"x": "random"}, "--input state=FILE.npy"),
        ({"x": "random", "state": "random", "z": "random"}, "no input 'z'; it takes x float32"),
        ({"x": "/nowhere/x.npy", "state": "random"}, "/nowhere/x.npy: No such file"),
        ({"x": __file__, "state": "random"}, "is not a .npy file"),
        ({"x": "random", "state": "1.5"}, "state is int64, which has no 1.5"),
        ({"x": "random", "state": "9223372036854775808"}, "state is int64, which has no"),
        ({"x": "random", "state": "nan"}, "state is int64, which has no nan"),
        ({"x": "random", "state": "0", "mask": "2"}, "mask is bool, which has no 2"),
    ],
)
def test_what_is_wrong_is_one_line(sources: dict[str, str], says: str) -> None:
    with pytest.raises(ConsoleError, match=says) as refused:
        make_inputs(MODEL, sources, rows=1)
    assert "\n" not in str(refused.value)


def test_sources() -> None:
    assert parse_sources(["x=a=b.npy", "y=random"]) == {"x": "a=b.npy", "y": "random"}
    with pytest.raises(ConsoleError, match="INPUT=random"):
        parse_sources(["x"])
    with pytest.raises(ConsoleError, match="--input x is given twice, 1 and 2"):
        parse_sources(["x=1", "x=2"])
