"""Tensors of the Open Inference Protocol, from whatever comes."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickpath.client import RefusedError
from tickpath.door import rest_body
from tickpath.door.tensors import datatype_name, from_bytes, from_numbers, to_numbers
from tickpath.wire import ITEM_BYTES, ModelInfo, TensorInfo

DATATYPES = [*(datatype_name(dtype) for dtype in ITEM_BYTES), "BYTES", "BF16"]
TENSOR = TensorInfo("x", "float32", (1, 4), 0)
MODEL = ModelInfo("m", "1", 1, (TENSOR,), (TENSOR,), (1, 8))

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=12,
)
SHAPES = st.lists(st.integers(-2, 5) | st.integers(), max_size=5)


def outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    """What it gives, or the words with which it refuses."""
    try:
        return call(*arguments)
    except RefusedError as refused:
        return str(refused)


@given(st.sampled_from(DATATYPES), SHAPES, ANYTHING)
def test_any_numbers_are_an_array_or_refused(datatype: str, shape: list[int], data: Any) -> None:
    array = outcome(from_numbers, "x", datatype, shape, data)
    if isinstance(array, str):
        assert "\n" not in array
    else:
        assert list(array.shape) == shape


@given(st.sampled_from(DATATYPES), SHAPES, st.binary(max_size=64))
def test_any_bytes_are_an_array_or_refused(datatype: str, shape: list[int], data: bytes) -> None:
    array = outcome(from_bytes, "x", datatype, shape, data)
    if isinstance(array, str):
        assert "\n" not in array
    else:
        assert (list(array.shape), array.tobytes()) == (shape, data)


@given(ANYTHING, st.none() | st.text(max_size=8), st.binary(max_size=16))
def test_any_body_is_a_question_or_refused(values: Any, head_bytes: str | None, raw: bytes) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": values, "parameters": {"binary_data_size": 16}}
    for body in (values, {"inputs": values}, {"inputs": [tensor]}, {"inputs": [], "parameters": values}):
        assert outcome(rest_body.read, json.dumps(body).encode() + raw, head_bytes, MODEL, "")


@given(st.sampled_from(["int8", "uint64", "int64", "float64", "bool"]), st.integers(0, 2**32))
def test_numbers_come_back_as_they_went(dtype: str, seed: int) -> None:
    kind = np.dtype(dtype)
    array = np.frombuffer(np.random.default_rng(seed).bytes(4 * kind.itemsize), kind).reshape(2, 2)
    if dtype == "bool":
        array = array.view(np.uint8) > 127
    if dtype == "float64":
        array = np.nan_to_num(array)
    again = from_numbers("x", datatype_name(dtype), [2, 2], json.loads(json.dumps(to_numbers(array))))
    assert (again.dtype, again.tobytes()) == (array.dtype, array.tobytes())


@pytest.mark.parametrize("coded", [b"\x00\x00\x80?", memoryview(b"\x00\x00\x00\x80?")[1:]])
def test_bytes_are_read_where_they_lie(coded: bytes | memoryview) -> None:
    """An offset that no float may have among them."""
    array = from_bytes("x", "FP32", [1], coded)
    assert (array[0], array.base is not None) == (1.0, True)
