"""What would hurt in TensorRT is named before a build."""

import numpy as np
import onnx
import pytest
from onnx import helper
from tests.onnx_models import constant, gru, model, one_node, value

from tickpath.engines import ModelRefusedError, TensorSpec
from tickpath.engines.compile.hazards import check_graph, check_tensors
from tickpath.engines.passes.unroll import unroll

X = value("x", np.float32, ["N", 4])
Y = value("y", np.float32, ["N", 4])
ON = constant("on", True, np.bool_)


def branch(name: str, operator: str) -> onnx.GraphProto:
    return helper.make_graph([helper.make_node(operator, ["x"], [name])], name, [], [value(name, np.float32, None)])


IF = helper.make_node("If", ["ask"], ["y"], name="gate", then_branch=branch("a", "Neg"), else_branch=branch("b", "Abs"))


@pytest.mark.parametrize(
    ("proto", "says"),
    [
        pytest.param(model([IF], [X, value("ask", np.bool_, [])], [Y]), "If 'gate'", id="if"),
        pytest.param(gru(), "GRU", id="gru"),
        pytest.param(
            model([helper.make_node("NonZero", ["x"], ["y"])], [X], [value("y", np.int64, [2, "K"])]),
            "NonZero: the shape of 'y' depends on data",
            id="nonzero",
        ),
        pytest.param(
            model(
                [helper.make_node("Cast", ["k"], ["f"], to=1), helper.make_node("Mul", ["x", "f"], ["y"])],
                [X],
                [Y],
                [constant("k", [1e300, 1, 1, 1], np.float64)],
            ),
            "constant 'k' is float64 and out of the range of float32",
            id="float64",
        ),
    ],
)
def test_refused_by_name(proto: onnx.ModelProto, says: str) -> None:
    with pytest.raises(ModelRefusedError, match=says):
        check_graph(proto)


def test_an_unrolled_recurrence_is_straight() -> None:
    assert check_graph(unroll(gru())) == ()


def test_a_large_integer_is_told() -> None:
    nodes = [helper.make_node("Add", ["x", "k"], ["y"])]
    values = [value(name, np.int64, ["N", 2]) for name in ("x", "y")]
    (note,) = check_graph(model(nodes, values[:1], values[1:], [constant("k", [2**40, 1], np.int64)]))
    assert "'k' holds 1099511627776, outside 32 bits, read by Add" in note


def test_weights_that_are_no_number_are_told() -> None:
    weights = constant("w", [1, np.nan, np.inf, np.nan])
    (note,) = check_graph(model([helper.make_node("Mul", ["x", "w"], ["y"])], [X], [Y], [weights]))
    assert note == "constant 'w' has 2 NaN: so have answers that it is used in"


def test_a_slice_to_the_end_is_nothing_to_tell() -> None:
    operands = [constant(name, [number], np.int64) for name, number in (("from", 1), ("to", 2**63 - 1), ("axis", 1))]
    assert check_graph(model([helper.make_node("Slice", ["x", "from", "to", "axis"], ["y"])], [X], [Y], operands)) == ()


@pytest.mark.parametrize("dtype", ["float64", "int16", "uint16", "uint32", "uint64"])
def test_types_that_are_not_bound(dtype: str) -> None:
    with pytest.raises(ModelRefusedError, match=f"input 'x' is {dtype}, TensorRT has bool, float16"):
        check_tensors("input", (TensorSpec("x", np.dtype(dtype), (1, 4), 0),))


@pytest.mark.parametrize("dtype", ["bool", "float16", "float32", "int8", "uint8", "int32", "int64"])
def test_types_that_are(dtype: str) -> None:
    check_tensors("output", (TensorSpec("y", np.dtype(dtype), (1, 4), 0),))
    assert check_graph(one_node("Identity", dtype, ["N", 4])) == ()
