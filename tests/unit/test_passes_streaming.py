"""Step models: answers are those of the whole window, bit for bit, and what can't be stepped is named."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import helper
from tests.feed_models import FEATURES, STEPS, convolved_model, recurrent_model
from tests.inputs import inputs_root
from tests.onnx_models import constant, model, value
from tests.recurrent_models import Form

from tickpath.engines import ModelRefusedError
from tickpath.engines.passes import Streamed, stream
from tickpath.engines.zoo import build

Floats = npt.NDArray[np.float32]


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def stepped(streamed: Streamed, x: Floats) -> list[Floats]:
    """The step model's answers after the last row of `x`, [rows, steps, ...], from zeros."""
    run = session(streamed.model)
    names = [output.name for output in run.get_outputs()]
    feeds = {
        each.name: np.zeros([size if isinstance(size, int) else len(x) for size in each.shape], np.float32)
        for each in run.get_inputs()
    }
    (data_name,) = set(feeds) - {taken for taken, _ in streamed.states}
    for step in range(x.shape[1]):
        feeds[data_name] = np.ascontiguousarray(x[:, step : step + 1])
        answers = dict(zip(names, run.run(None, feeds), strict=True))
        for taken, given in streamed.states:
            feeds[taken] = answers[given]
    states = {after for _, after in streamed.states}
    return [np.asarray(answer) for name, answer in answers.items() if name not in states]


def assert_same(whole: onnx.ModelProto, rows: Sequence[int] = (1, 3)) -> Streamed:
    streamed = stream(whole)
    onnx.checker.check_model(streamed.model)
    sizes = [dimension.dim_value for dimension in whole.graph.input[0].type.tensor_type.shape.dim][1:]
    for count in rows:
        x = np.random.default_rng(count).standard_normal((count, *sizes)).astype(np.float32)
        expected = session(whole).run(None, {whole.graph.input[0].name: x})
        for one, other in zip(stepped(streamed, x), expected, strict=True):
            assert one.tobytes() == np.asarray(other).tobytes()
    return streamed


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("layers", [1, 3])
def test_a_stack_steps_as_its_window(kind: str, layers: int) -> None:
    streamed = assert_same(recurrent_model(kind, layers))
    assert streamed.window == STEPS
    assert len(streamed.states) == layers * (2 if kind == "LSTM" else 1)


@pytest.mark.skipif(inputs_root() is None, reason="no real inputs")
def test_a_real_model_steps_as_its_window() -> None:
    root = inputs_root()
    assert root is not None
    real = onnx.load(root / "models/trading_bot/BTCUSDT/basic/2025-09-17_1h_v1/model.onnx")
    assert assert_same(real).window == 120


def around(
    nodes: Sequence[onnx.NodeProto],
    constants: Sequence[onnx.TensorProto] = (),
    steps: int = STEPS,
    y: Sequence[int | str] = (1, "N", 5),
) -> onnx.ModelProto:
    """x [N, steps, 3] through `nodes` to y, with an LSTM's weights at hand; `last` is -1 as an index."""
    random = np.random.default_rng(0)
    return model(
        nodes,
        [value("x", np.float32, ["N", steps, FEATURES])],
        [value("y", np.float32, y)],
        [
            constant("W", random.standard_normal((1, 20, FEATURES))),
            constant("R", random.standard_normal((1, 20, 5))),
            constant("one", [1], np.int64),
            constant("zero", [0], np.int64),
            constant("last", -1, np.int64),
            constant("ends", [2**31], np.int64),
            constant("minus", [-1], np.int64),
            *constants,
        ],
    )


def lstm(x: str, *outputs: str, **attributes: object) -> onnx.NodeProto:
    node = helper.make_node("LSTM", [x, "W", "R"], list(outputs), hidden_size=5, name="lstm")
    node.attribute.extend(helper.make_attribute(key, each) for key, each in attributes.items())
    return node


BEFORE = [helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2])]
AFTER = [helper.make_node("Squeeze", ["all", "one"], ["s"])]

STEPPABLE: dict[str, Callable[[], onnx.ModelProto]] = {
    "elements before": lambda: around(
        [
            helper.make_node("Mul", ["x", "scale"], ["scaled"]),
            helper.make_node("Relu", ["scaled"], ["r"]),
            helper.make_node("Transpose", ["r"], ["t"], perm=[1, 0, 2]),
            lstm("t", "", "y"),
        ],
        [constant("scale", [1.0, 2.0, -3.0])],
    ),
    "a product before": lambda: around(
        [
            helper.make_node("MatMul", ["x", "M"], ["m"]),
            helper.make_node("Transpose", ["m"], ["t"], perm=[1, 0, 2]),
            lstm("t", "", "y"),
        ],
        [constant("M", np.random.default_rng(1).standard_normal((3, 3)))],
    ),
    "gather the last": lambda: around(
        [*BEFORE, lstm("t", "all"), *AFTER, helper.make_node("Gather", ["s", "last"], ["y"], axis=0)], y=("N", 5)
    ),
    "gather the last by number": lambda: around(
        [*BEFORE, lstm("t", "all"), *AFTER, helper.make_node("Gather", ["s", "fifth"], ["y"], axis=0)],
        [constant("fifth", STEPS - 1, np.int64)],
        y=("N", 5),
    ),
    "slice the last": lambda: around(
        [
            *BEFORE,
            lstm("t", "all"),
            *AFTER,
            helper.make_node("Slice", ["s", "minus", "ends", "zero"], ["part"]),
            helper.make_node("Squeeze", ["part", "zero"], ["y"]),
        ],
        y=("N", 5),
    ),
    "softmax over features": lambda: around(
        [
            helper.make_node("Softmax", ["x"], ["p"], axis=-1),
            helper.make_node("Transpose", ["p"], ["t"], perm=[1, 0, 2]),
            lstm("t", "", "y"),
        ]
    ),
    "an output that is a state": lambda: around([*BEFORE, lstm("t", "", "", "y")]),
}


@pytest.mark.parametrize("name", STEPPABLE)
def test_what_treats_each_step_by_itself_is_stepped(name: str) -> None:
    assert_same(STEPPABLE[name]())


def conv(pads: list[int], kernel: int) -> onnx.ModelProto:
    return around(
        [
            helper.make_node("Transpose", ["x"], ["c"], perm=[0, 2, 1]),
            helper.make_node("Conv", ["c", "K"], ["k"], pads=pads, name="conv"),
            helper.make_node("Transpose", ["k"], ["t"], perm=[2, 0, 1]),
            lstm("t", "", "y"),
        ],
        [constant("K", np.random.default_rng(2).standard_normal((3, 3, kernel)))],
    )


CONVOLVED: dict[str, Callable[[], onnx.ModelProto]] = {
    "one step": lambda: conv([0, 0], 1),
    "three steps": lambda: conv([0, 0], 3),
    "all steps": lambda: conv([0, 0], STEPS),
    "two behind one another": convolved_model,
}


@pytest.mark.parametrize("name", CONVOLVED)
def test_convolutions_that_pad_nothing_are_stepped_to_rounding(name: str) -> None:
    """The runtime has another kernel for one step than for many."""
    whole = CONVOLVED[name]()
    streamed = stream(whole)
    onnx.checker.check_model(streamed.model, full_check=True)
    x = np.random.default_rng(0).standard_normal((2, STEPS, FEATURES)).astype(np.float32)
    (expected,) = session(whole).run(None, {"x": x})
    np.testing.assert_allclose(stepped(streamed, x)[0], expected, rtol=1e-5, atol=1e-6)


def test_a_recurrence_waits_for_the_steps_that_a_convolution_needs() -> None:
    states = dict(stream(convolved_model()).states)
    assert list(states) == ["past_conv1", "past_conv2", "steps_lstm", "h_lstm", "c_lstm"]


REFUSED: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "joins values of different steps": (
        lambda: around(
            [
                helper.make_node("Transpose", ["x"], ["c"], perm=[0, 2, 1]),
                helper.make_node("Conv", ["c", "K"], ["k"]),
                helper.make_node("Add", ["k", "c"], ["y"], name="add"),
            ],
            [constant("K", np.ones((3, 3, 2)))],
        ),
        "Add 'add'",
    ),
    "reads 3 steps at once and pads them along time": (lambda: conv([1, 1], 3), "Conv 'conv'"),
    "pads or skips steps": (lambda: conv([1, 0], 1), "Conv 'conv'"),
    "runs backward": (lambda: around([*BEFORE, lstm("t", "", "y", direction="reverse")]), "LSTM 'lstm'"),
    "does not run along the window's time axis": (lambda: around([lstm("x", "", "y")]), "LSTM 'lstm'"),
    "has all steps of the window": (lambda: around([*BEFORE, lstm("t", "y")]), "output 'y'"),
    "not one fixed number of steps": (lambda: around([*BEFORE, lstm("t", "", "y")], steps=0), "--shape"),
    "takes more, or another, than the last step": (
        lambda: around([*BEFORE, lstm("t", "all"), *AFTER, helper.make_node("Gather", ["s", "zero"], ["y"], axis=0)]),
        "Gather",
    ),
    "may mix steps": (lambda: around([helper.make_node("CumSum", ["x", "last"], ["y"])]), "CumSum"),
    "runs along time": (lambda: around([helper.make_node("Softmax", ["x"], ["y"], axis=1)]), "Softmax"),
    "has another value for each step": (
        lambda: around([helper.make_node("Add", ["x", "bias"], ["y"])], [constant("bias", np.ones((STEPS, 1)))]),
        "Add",
    ),
    "no recurrent operator": (
        lambda: around([helper.make_node("Gather", ["x", "last"], ["y"], axis=1)]),
        "serve its window",
    ),
    "begins with states other than zeros": (
        lambda: around(
            [*BEFORE, helper.make_node("LSTM", ["t", "W", "R", "", "", "h"], ["", "y"], hidden_size=5, name="lstm")],
            [constant("h", np.ones((1, 1, 5)))],
        ),
        "LSTM 'lstm'",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_stepped_is_named(why: str) -> None:
    made, named = REFUSED[why]
    with pytest.raises(ModelRefusedError) as refused:
        stream(made())
    assert why in str(refused.value)
    assert named in str(refused.value)


def test_deeplob_is_refused_for_its_convolutions() -> None:
    with pytest.raises(ModelRefusedError, match="reads 4 steps at once and pads them along time"):
        stream(build("deeplob"))


def test_both_directions_are_refused() -> None:
    form = Form("LSTM", direction="bidirectional", layout=1, opset=14)
    with pytest.raises(ModelRefusedError, match="runs backward"):
        stream(form.model())
