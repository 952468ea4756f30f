"""Graphs in another precision: typed throughout, float32 at the edges, and near the answers of the original."""

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import helper
from tests.onnx_models import constant, model, one_node, value
from tests.recurrent_models import Form, run

from tickpath.engines import ModelRefusedError, zoo
from tickpath.engines.passes import Precision, rehearse, stays_float32, to_precision, unroll

LOW: tuple[Precision, ...] = ("fp16", "bf16")
ELEMENTS = {"fp16": onnx.TensorProto.FLOAT16, "bf16": onnx.TensorProto.BFLOAT16}


def types(proto: onnx.ModelProto) -> dict[str, int]:
    """The element type of every tensor, by an inference that accepts no contradiction."""
    graph = onnx.shape_inference.infer_shapes(proto, strict_mode=True, check_type=True).graph
    values = {each.name: each.type.tensor_type.elem_type for each in (*graph.input, *graph.value_info, *graph.output)}
    return values | {tensor.name: tensor.data_type for tensor in graph.initializer}


def dense(weights: float | list[float] = 0.5, opset: int = 18) -> onnx.ModelProto:
    """softmax(x * w), two wide."""
    array = np.broadcast_to(np.asarray(weights, np.float32), (2, 2))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Softmax", ["z"], ["y"])]
    proto = model(nodes, [value("x", "f4", ["N", 2])], [value("y", "f4", ["N", 2])], [constant("w", array)])
    proto.opset_import[0].version = opset
    return proto


@pytest.mark.parametrize("precision", LOW)
def test_tensors_are_of_the_precision_and_edges_float32(precision: Precision) -> None:
    converted = to_precision(dense(), precision)
    onnx.checker.check_model(converted, full_check=True)
    known = types(converted)
    (product,) = (node for node in converted.graph.node if node.op_type == "MatMul")
    assert {known[name] for name in (*product.input, *product.output)} == {ELEMENTS[precision]}
    assert (known["x"], known["y"]) == (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT)
    assert [tensor.data_type for tensor in converted.graph.initializer] == [ELEMENTS[precision]], "no float32 copy"


@pytest.mark.parametrize("precision", LOW)
@pytest.mark.parametrize("name", ["null", "mlp", "gru", "deeplob"])
def test_zoo_models_are_typed_throughout(precision: Precision, name: str) -> None:
    types(to_precision(unroll(zoo.build(name)), precision))


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_what_float32_tensors_serve_is_left_alone(precision: Precision) -> None:
    proto = dense()
    copy = to_precision(proto, precision)
    assert (copy == proto, copy is proto, stays_float32(proto, precision)) == (True, False, ())


def test_the_original_is_left_alone() -> None:
    proto = dense()
    before = proto.SerializeToString()
    to_precision(proto, "fp16")
    assert proto.SerializeToString() == before


def test_a_tensor_is_cast_once_for_all_who_read_it() -> None:
    nodes = [helper.make_node("Neg", ["x"], [name]) for name in "abc"]
    proto = model(nodes, [value("x", "f4", [2])], [value(name, "f4", [2]) for name in "abc"])
    counts = Counter(node.op_type for node in to_precision(proto, "fp16").graph.node)
    assert counts == {"Neg": 3, "Cast": 1 + 3}


def test_float32_operators_in_a_row_have_no_cast_between() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("Log", ["b"], ["y"]),
    ]
    proto = model(nodes, [value("x", "f4", [2])], [value("y", "f4", [2])])
    assert [node.op_type for node in to_precision(proto, "fp16").graph.node] == ["Cast", "Neg", "Cast", "Exp", "Log"]


def test_a_constant_keeps_float32_for_who_reads_it_so() -> None:
    nodes = [helper.make_node("Mul", ["x", "c"], ["a"]), helper.make_node("Pow", ["a", "c"], ["y"])]
    proto = model(nodes, [value("x", "f4", [2])], [value("y", "f4", [2])], [constant("c", [0.1, 3])])
    converted = to_precision(proto, "fp16")
    assert sorted(tensor.data_type for tensor in converted.graph.initializer) == [1, onnx.TensorProto.FLOAT16]
    (power,) = (node for node in converted.graph.node if node.op_type == "Pow")
    assert power.input[1] == "c"


def test_other_types_are_left_alone() -> None:
    nodes = [
        helper.make_node("ArgMax", ["x"], ["place"], axis=1),
        helper.make_node("Cast", ["place"], ["number"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "number"], ["y"]),
    ]
    proto = model(nodes, [value("x", "f4", ["N", 3])], [value("y", "f4", ["N", 3]), value("place", "i8", ["N", 1])])
    known = types(to_precision(proto, "fp16"))
    assert known["place"] == onnx.TensorProto.INT64
    assert known["number"] == onnx.TensorProto.FLOAT, "an integer may be larger than float16 holds"


def test_an_input_with_a_default_stays_an_input() -> None:
    proto = model(
        [helper.make_node("Mul", ["x", "c"], ["y"])],
        [value("x", "f4", [2]), value("c", "f4", [2])],
        [value("y", "f4", [2])],
        [constant("c", [2, 3])],
    )
    feeds = {"x": np.ones(2, np.float32), "c": np.full(2, 5, np.float32)}
    assert run(rehearse(proto, "fp16"), feeds)[0].tolist() == [5, 5]


def test_a_branch_is_converted_within() -> None:
    def branch(name: str, operator: str) -> onnx.GraphProto:
        node = helper.make_node(operator, ["w", "w"], [name])
        return helper.make_graph([node], name, [], [value(name, np.float32, [2])])

    choose = helper.make_node("If", ["flag"], ["z"], then_branch=branch("p", "Add"), else_branch=branch("q", "Mul"))
    nodes = [choose, helper.make_node("Add", ["z", "x"], ["y"])]
    inputs = [value("x", "f4", [2]), value("flag", np.bool_, [])]
    proto = model(nodes, inputs, [value("y", "f4", [2])], [constant("w", [3, 4])])
    types(to_precision(proto, "fp16"))
    for flag, expected in ((True, [7, 9]), (False, [10, 17])):
        feeds = {"x": np.ones(2, np.float32), "flag": np.asarray(flag)}
        assert run(rehearse(proto, "fp16"), feeds)[0].tolist() == expected


@pytest.mark.parametrize(("precision", "size"), [("fp16", 70_000.0), ("bf16", 3.4e38)])
def test_a_constant_out_of_range_is_named(precision: Precision, size: float) -> None:
    with pytest.raises(
        ModelRefusedError, match=rf"constant 'w' holds {size:g}, which {precision} does not".replace("+", r"\+")
    ):
        to_precision(dense([1.0, size]), precision)


def test_an_infinite_constant_is_meant() -> None:
    to_precision(dense([1.0, -np.inf]), "fp16")


def test_an_operator_set_without_the_precision_is_refused() -> None:
    with pytest.raises(
        ModelRefusedError, match=r"no operator .* in bf16 \(MatMul: operator set 12 has no bf16 for it\)"
    ):
        to_precision(dense(opset=12), "bf16")


def test_a_tensor_of_unknown_type_is_named() -> None:
    nodes = [helper.make_node("Mystery", ["x"], ["z"], domain="com.example"), helper.make_node("Neg", ["z"], ["y"])]
    proto = model(nodes, [value("x", "f4", [2])], [value("y", "f4", [2])])
    proto.opset_import.append(helper.make_opsetid("com.example", 1))
    with pytest.raises(ModelRefusedError, match="the type of 'z'"):
        to_precision(proto, "fp16")


def test_what_stays_float32_is_listed_with_its_reason() -> None:
    assert stays_float32(dense(), "fp16") == ("Softmax: adds up many numbers, whose rounding adds up too",)
    assert stays_float32(zoo.build("deeplob"), "bf16")[0] == "Conv: operator set 17 has no bf16 for it"


@pytest.mark.parametrize(("precision", "step"), [("fp16", 2.0**-10), ("bf16", 2.0**-7)])
def test_a_rehearsal_rounds_every_tensor(precision: Precision, step: float) -> None:
    """1 and three eighths of a step is nearer to 1; twice that, unrounded on the way, would be nearer to 1 + step."""
    nodes = [helper.make_node("Identity", ["x"], ["a"]), helper.make_node("Sub", ["a", "one"], ["b"])]
    nodes.append(helper.make_node("Add", ["b", "b"], ["y"]))
    proto = model(nodes, [value("x", "f4", [1])], [value("y", "f4", [1])], [constant("one", [1])])
    feeds = {"x": np.array([1 + 3 / 8 * step], np.float32)}
    assert run(proto, feeds)[0].tolist() == [0.75 * step]
    assert run(rehearse(proto, precision), feeds)[0].tolist() == [0.0]


@pytest.mark.parametrize(("precision", "error"), [("fp16", 5e-3), ("bf16", 5e-2)])
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_a_rehearsal_is_near_the_original(precision: Precision, error: float, kind: str) -> None:
    form = Form(kind, "bidirectional", initial_h=True, attributes={"clip": 3.0})
    rehearsal = run(rehearse(unroll(form.model()), precision), form.feeds(3))
    for one, other in zip(rehearsal, run(form.model(), form.feeds(3)), strict=True):
        assert 0 < float(np.abs(one - other).max()) < error


def test_nothing_to_convert_is_no_fault() -> None:
    proto = one_node("Not", np.bool_, [2])
    assert to_precision(proto, "fp16").graph.node[0].op_type == "Not"
