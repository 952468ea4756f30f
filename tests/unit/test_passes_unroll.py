"""Recurrent operators as fixed steps: in every form that ONNX has for them they answer as onnxruntime does."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import helper
from tests.onnx_models import constant, gru, model, value
from tests.recurrent_models import GATES, Floats, Form, run

from tickpath.engines import ModelRefusedError
from tickpath.engines.onnx_file import nodes
from tickpath.engines.passes import settle, unroll
from tickpath.engines.spec import TensorSpec

# Sums of float32 products, added up in another order and passed on from step to step; relative to the largest, or to 1.
TOLERANCE = 1e-5
BOUND = 1e6

ACTIVATIONS = ("Relu", "Tanh", "Sigmoid", "LeakyRelu", "HardSigmoid", "Elu", "Softsign", "Softplus")


def assert_same(ours: list[Floats], theirs: list[Floats]) -> None:
    assert [array.shape for array in ours] == [array.shape for array in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert float(np.abs(one - other).max()) <= TOLERANCE * max(1.0, float(np.abs(other).max()))


def assert_unrolls(form: Form, rows: int = 2) -> None:
    proto, feeds = form.model(), form.feeds(rows)
    unrolled = unroll(proto)
    onnx.checker.check_model(unrolled)
    assert not {node.op_type for node in nodes(unrolled.graph)} & GATES.keys()
    assert_same(list(run(unrolled, feeds)), list(run(proto, feeds)))


@st.composite
def forms(draw: st.DrawFn) -> Form:
    """Any form that onnxruntime runs, which has no layout 1."""
    kind = draw(st.sampled_from(sorted(GATES)))
    attributes: dict[str, int | float | list[str] | list[float]] = {}
    if draw(st.booleans()):
        attributes["clip"] = draw(st.sampled_from([0.1, 0.5, 10.0]))
    if kind == "GRU":
        attributes["linear_before_reset"] = draw(st.integers(0, 1))
    if kind == "LSTM":
        attributes["input_forget"] = draw(st.integers(0, 1))
    direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    if draw(st.booleans()):
        count = {"RNN": 1, "GRU": 2, "LSTM": 3}[kind] * (2 if direction == "bidirectional" else 1)
        attributes["activations"] = draw(st.lists(st.sampled_from(ACTIVATIONS), min_size=count, max_size=count))
    outputs = draw(st.tuples(*[st.booleans()] * 3).filter(lambda named: named[0] or named[1]))
    return Form(
        kind,
        direction,
        bias=draw(st.booleans()),
        initial_h=draw(st.booleans()),
        initial_c=draw(st.booleans()),
        peepholes=draw(st.booleans()),
        computed=draw(st.booleans()),
        outputs=outputs,
        opset=draw(st.sampled_from([10, 11, 13, 14, 17, 18, 22])),
        attributes=attributes,
        steps=draw(st.integers(1, 4)),
        features=draw(st.integers(1, 3)),
        units=draw(st.integers(1, 3)),
    )


@settings(max_examples=150, deadline=None)
@given(form=forms(), rows=st.integers(1, 3))
def test_every_form(form: Form, rows: int) -> None:
    # Unbounded activations can grow from step to step until a runtime overflows, where others need not.
    assume(all(np.abs(array).max() < BOUND for array in run(form.model(), form.feeds(rows))))
    assert_unrolls(form, rows)


@pytest.mark.parametrize("kind", sorted(GATES))
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_layout_1_is_layout_0_turned(kind: str, direction: str) -> None:
    """onnxruntime has no layout 1, so it is asked for layout 0."""
    form = Form(kind, direction, initial_h=True, initial_c=True, peepholes=True)
    feeds = form.feeds(2)
    turned = {name: np.ascontiguousarray(array.transpose(1, 0, 2)) for name, array in feeds.items()}
    whole, *ends = run(unroll(replace(form, layout=1).model()), turned)
    back = [whole.transpose(1, 2, 0, 3), *(end.transpose(1, 0, 2) for end in ends)]
    assert_same(back, list(run(form.model(), feeds)))


@pytest.mark.parametrize(
    ("names", "alphas", "betas"),
    [
        (["Affine", "Tanh", "ScaledTanh"], [0.5, 1.5], [0.1, 0.7]),
        (["HardSigmoid", "LeakyRelu", "Elu"], [0.3, 0.2, 0.9], [0.4]),
        (["sigmoid", "TANH", "ThresholdedRelu"], [0.2], []),
    ],
)
def test_activations_take_their_parameters_in_order(names: list[str], alphas: list[float], betas: list[float]) -> None:
    attributes: dict[str, int | float | list[str] | list[float]] = {"activations": names, "activation_alpha": alphas}
    if betas:
        attributes["activation_beta"] = betas
    assert_unrolls(Form("LSTM", initial_h=True, initial_c=True, attributes=attributes))


def test_a_clip_that_bites_changes_the_answer() -> None:
    """So that the cases above can tell a clip from none."""
    free, held = Form("GRU"), Form("GRU", attributes={"clip": 0.1})
    assert not np.allclose(run(unroll(free.model()), free.feeds(2))[0], run(unroll(held.model()), held.feeds(2))[0])


def test_a_whole_model_and_what_is_left_of_it() -> None:
    proto = gru()
    before = proto.SerializeToString()
    unrolled = unroll(proto)
    assert proto.SerializeToString() == before
    assert [value.name for value in unrolled.graph.output] == ["predictions", "state_out"]
    assert not {"W", "R"} & {tensor.name for tensor in unrolled.graph.initializer}, "weights nobody reads any more"


def test_the_input_is_multiplied_once_for_all_steps() -> None:
    counts = {
        steps: sum(node.op_type == "MatMul" for node in unroll(Form("LSTM", steps=steps).model()).graph.node)
        for steps in (1, 2, 9)
    }
    assert counts == {1: 1, 2: 2, 9: 9}, "one for the input, and one with the state for each step but the first"


def test_weights_are_there_once_however_many_steps() -> None:
    sizes = {len(unroll(Form("GRU", steps=steps).model()).graph.initializer) for steps in (3, 30)}
    assert len(sizes) == 1


def test_a_recurrence_within_a_branch() -> None:
    body = Form("RNN").model().graph
    node, outer = body.node[0], [value("X", np.float32, [3, "N", 3]), value("flag", np.bool_, [])]
    inner = helper.make_graph([node], "then", [], list(body.output), list(body.initializer))
    passed = [helper.make_node("Identity", [name], [f"{name}2"]) for name in ("big", "small")]
    others = [value(f"{name}2", np.float32, None) for name in ("big", "small")]
    choose = helper.make_node(
        "If", ["flag"], ["y", "y_h"], then_branch=inner, else_branch=helper.make_graph(passed, "else", [], others)
    )
    zeros = [constant("big", np.zeros((3, 1, 2, 2))), constant("small", np.zeros((1, 2, 2)))]
    proto = model([choose], outer, [value("y", np.float32, None), value("y_h", np.float32, None)], zeros)
    unrolled = unroll(proto)
    assert not {node.op_type for node in nodes(unrolled.graph)} & GATES.keys()
    x = Form("RNN").feeds(2)["X"]
    for flag in (True, False):
        feeds = {"X": x, "flag": np.asarray(flag)}
        assert_same(list(run(unrolled, feeds)), list(run(proto, feeds)))


def test_a_model_without_recurrence_is_copied() -> None:
    proto = model([helper.make_node("Neg", ["x"], ["y"])], [value("x", "f4", [1])], [value("y", "f4", [1])])
    copy = unroll(proto)
    assert (copy == proto, copy is proto) == (True, False)


def test_an_open_length_is_refused_and_a_declared_one_is_not() -> None:
    proto = gru()
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "steps"
    with pytest.raises(ModelRefusedError, match=r"length of GRU .* isn't fixed, .* --shape"):
        unroll(proto)
    data = TensorSpec("data", np.dtype(np.float32), (1, 4, 3), 0)
    settled = unroll(settle(proto, [data]))
    assert not {node.op_type for node in nodes(settled.graph)} & GATES.keys()
    assert settled.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_the_batch_axis_can_be_fixed() -> None:
    fixed = unroll(gru(), rows=4)
    sizes = [[dimension.dim_value for dimension in each.type.tensor_type.shape.dim] for each in fixed.graph.input]
    assert sizes == [[4, 4, 3], [1, 4, 5]]


def with_lengths(lengths: list[int] | None) -> onnx.ModelProto:
    """An RNN that is told how long each row's sequence is: by a constant, or by the caller."""
    proto = Form("RNN").model()
    proto.graph.node[0].input[4] = "lengths"
    if lengths is None:
        proto.graph.input.append(value("lengths", np.int32, ["N"]))
    else:
        proto.graph.initializer.append(constant("lengths", lengths, np.int32))
    return proto


@pytest.mark.parametrize("lengths", [None, [3, 2]])
def test_lengths_of_their_own_are_refused(lengths: list[int] | None) -> None:
    with pytest.raises(ModelRefusedError, match=r"takes a length for each row .*'lengths'"):
        unroll(with_lengths(lengths))


def test_lengths_that_are_all_the_whole_are_none() -> None:
    unroll(with_lengths([3, 3]))


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"activations": ["Swish"]}, "activation 'Swish'; known are"),
        ({"activations": ["Affine"]}, "'Affine' without activation_alpha"),
        ({"activations": ["Tanh", "Tanh"]}, "has 2 activations, it takes 1"),
    ],
)
def test_activations_that_are_refused(attributes: dict[str, list[str]], words: str) -> None:
    with pytest.raises(ModelRefusedError, match=words):
        unroll(Form("RNN", attributes={**attributes}).model())


def test_an_unknown_direction_is_refused() -> None:
    with pytest.raises(ModelRefusedError, match="direction 'sideways'"):
        unroll(Form("RNN", "sideways").model())


def test_an_old_operator_set_is_refused() -> None:
    with pytest.raises(ModelRefusedError, match="operator set 6 is too old"):
        unroll(Form("RNN", opset=6).model())
