"""Loops whose rounds can be counted and branches whose condition is known, as straight lines."""

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper
from tests.onnx_models import constant, model, value
from tests.recurrent_models import Floats, run

from tickpath.engines.passes import loops
from tickpath.engines.passes.straighten import ROUNDS_MAX, straighten

X: Floats = np.array([[1, 2, 3]], np.float32)


def counting(rounds: int | None, stop: int | None = None, opset: int = 18) -> onnx.ModelProto:
    """x doubled in every round, each round's result collected. `rounds` None: as `stop` says, and that None: as x
    does."""
    nodes = [
        helper.make_node("Add", ["state", "state"], ["next"]),
        helper.make_node("Mul", ["next", "half"], ["kept"]),
        helper.make_node("Add", ["round", "one"], ["following"]),
        helper.make_node("Less", ["following", "stop"], ["on"]),
    ]
    if rounds is not None:
        nodes[-1] = helper.make_node("Identity", ["go"], ["on"])
    elif stop is None:
        nodes[-2:] = [
            helper.make_node("ReduceMax", ["next"], ["largest"], keepdims=0),
            helper.make_node("Less", ["largest", "limit"], ["on"]),
        ]
    states = [value("state", "f4", ["N", 3])]
    body = helper.make_graph(
        nodes,
        "body",
        [value("round", "i8", []), value("go", "?", []), *states],
        [value("on", "?", []), value("next", "f4", ["N", 3]), value("kept", "f4", ["N", 3])],
        [constant("half", 0.5)],
    )
    loop = helper.make_node("Loop", ["rounds" if rounds is not None else "", "yes", "x"], ["y", "all"], body=body)
    constants = [constant("yes", True, "?"), constant("one", 1, "i8"), constant("stop", stop or 0, "i8")]
    constants += [constant("limit", 20), constant("rounds", rounds or 0, "i8")]
    outputs = [value("y", "f4", ["N", 3]), value("all", "f4", [None, "N", 3])]
    proto = model([loop], [value("x", "f4", ["N", 3])], outputs, constants)
    proto.opset_import[0].version = opset
    return proto


def assert_same(ours: onnx.ModelProto, theirs: onnx.ModelProto, **feeds: Floats) -> None:
    answers: Sequence[Sequence[Floats]] = [run(proto, {"x": X, **feeds}) for proto in (ours, theirs)]
    for one, other in zip(*answers, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize(("rounds", "stop"), [(1, None), (4, None), (None, 3)])
def test_a_counted_loop_is_a_straight_line(rounds: int | None, stop: int | None, opset: int) -> None:
    proto = counting(rounds, stop, opset)
    straight = straighten(proto)
    onnx.checker.check_model(straight)
    assert (loops(straight), len(loops(proto))) == ((), 1)
    assert_same(straight, proto)


def test_nothing_of_the_counter_is_left() -> None:
    operators = {node.op_type for node in straighten(counting(None, 5)).graph.node}
    assert operators == {"Add", "Mul", "Unsqueeze", "Concat", "Identity"}


@pytest.mark.parametrize("proto", [counting(None), counting(ROUNDS_MAX + 1), counting(0)])
def test_a_loop_that_data_ends_stays_and_so_does_an_endless_one(proto: onnx.ModelProto) -> None:
    """And one of no rounds, which collects what has no shape."""
    straight = straighten(proto)
    assert [node.op_type for node in straight.graph.node] == ["Loop"]
    assert len(straight.graph.initializer) <= len(proto.graph.initializer)


def choosing(condition: str) -> onnx.ModelProto:
    """x plus 1 or x times 3; both branches have the same names within."""

    def branch(operator: str, number: int) -> onnx.GraphProto:
        nodes = [helper.make_node(operator, ["x", "c"], ["z"]), helper.make_node("Neg", ["z"], ["out"])]
        return helper.make_graph(nodes, operator, [], [value("out", "f4", ["N", 3])], [constant("c", number)])

    choose = [
        helper.make_node("If", [condition], [name], then_branch=branch("Add", 1), else_branch=branch("Mul", 3))
        for name in ("a", "b")
    ]
    shape = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "last"], ["width"]),
        helper.make_node("Equal", ["width", "three"], ["wide"]),
        helper.make_node("Not", ["wide"], ["narrow"]),
    ]
    nodes = [*shape, *choose, helper.make_node("Add", ["a", "b"], ["y"])]
    constants = [constant("last", -1, "i8"), constant("three", 3, "i8")]
    inputs = [value("x", "f4", ["N", 3]), value("flag", "?", [])]
    return model(nodes, inputs, [value("y", "f4", ["N", 3])], constants)


@pytest.mark.parametrize(("condition", "operator"), [("wide", "Add"), ("narrow", "Mul")])
def test_a_branch_that_a_fixed_size_decides(condition: str, operator: str) -> None:
    straight = straighten(choosing(condition))
    onnx.checker.check_model(straight)
    assert loops(straight) == ()
    assert [node.op_type for node in straight.graph.node].count(operator) == 2 + (operator == "Add")
    flag = np.asarray(True)
    assert_same(straight, choosing(condition), flag=flag)


def test_a_branch_that_data_decides_stays() -> None:
    straight = straighten(choosing("flag"))
    assert [line.split()[0] for line in loops(straight)] == ["If", "If"]
    for flag in (True, False):
        assert_same(straight, choosing("flag"), flag=np.asarray(flag))


def test_the_original_is_left_alone() -> None:
    proto = counting(3)
    before = proto.SerializeToString()
    straighten(proto)
    assert proto.SerializeToString() == before


def test_a_constant_that_stays_is_there_once() -> None:
    """onnxruntime takes an initializer and a Constant of one name, TensorRT does not."""
    nodes = [
        helper.make_node("Constant", [], ["half"], value=constant("", 0.5)),
        helper.make_node("Mul", ["x", "half"], ["y"]),
        helper.make_node("Identity", ["half"], ["told"]),
    ]
    outputs = [value("y", "f4", ["N", 3]), value("told", "f4", [])]
    proto = model(nodes, [value("x", "f4", ["N", 3])], outputs)
    straight = straighten(proto)
    made = [tensor.name for tensor in straight.graph.initializer]
    made += [name for node in straight.graph.node for name in node.output]
    assert len(made) == len(set(made))
    assert_same(straight, proto)
