"""What makes trouble on a device is named before anything is built."""

import numpy as np
import onnx
import pytest
from onnx import helper
from tests.onnx_models import constant, gru, model, one_node, value

from tickpath.engines.passes import int64_constants_that_clamp, loops, shapes_that_depend_on_data

END = np.iinfo(np.int64).max


def adding(number: int) -> onnx.ModelProto:
    nodes = [helper.make_node("Add", ["x", "c"], ["y"])]
    return model(nodes, [value("x", "i8", [1])], [value("y", "i8", [1])], [constant("c", [number], np.int64)])


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, END])
def test_an_integer_outside_32_bits_is_named_with_its_reader(number: int) -> None:
    assert int64_constants_that_clamp(adding(number)) == (f"constant 'c' holds {number}, outside 32 bits, read by Add",)


@pytest.mark.parametrize("number", [0, 2**31 - 1, -(2**31)])
def test_an_integer_of_32_bits_is_fine(number: int) -> None:
    assert int64_constants_that_clamp(adding(number)) == ()


def test_the_end_of_a_slice_is_fine() -> None:
    nodes = [helper.make_node("Slice", ["x", "start", "end"], ["y"])]
    constants = [constant("start", [1], np.int64), constant("end", [END], np.int64)]
    assert int64_constants_that_clamp(model(nodes, [value("x", "f4", [3])], [value("y", "f4", [2])], constants)) == ()


def looping() -> onnx.ModelProto:
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["state", "big"], ["next"])],
        "body",
        [value("round", np.int64, []), value("go", np.bool_, []), value("state", np.int64, [1])],
        [value("on", np.bool_, []), value("next", np.int64, [1])],
        [constant("big", [2**40], np.int64)],
    )
    nodes = [helper.make_node("Loop", ["rounds", "", "x"], ["y"], body=body, name="again")]
    return model(nodes, [value("x", "i8", [1]), value("rounds", "i8", [])], [value("y", "i8", [1])])


def test_loops_are_named_and_what_they_hold_is_looked_at() -> None:
    assert loops(looping()) == ("Loop 'again': can't be captured in a CUDA graph",)
    assert int64_constants_that_clamp(looping()) == (f"constant 'big' holds {2**40}, outside 32 bits, read by Add",)


def test_recurrent_operators_are_loops() -> None:
    assert [line.split()[0] for line in loops(gru())] == ["GRU"]


def test_a_shape_that_depends_on_data_is_named_within_the_graph_too() -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["places"]), helper.make_node("Size", ["places"], ["y"])]
    proto = model(nodes, [value("x", "f4", [3])], [value("y", "i8", [])])
    assert shapes_that_depend_on_data(proto) == ("NonZero: the shape of 'places' depends on data",)


def test_a_plain_model_has_no_trouble() -> None:
    proto = one_node("Neg", np.float32, ["N", 3])
    assert (loops(proto), int64_constants_that_clamp(proto), shapes_that_depend_on_data(proto)) == ((), (), ())
