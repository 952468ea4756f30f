"""Small models whose feeds tests open, each with what it must answer: a window's model, one with time last, one with a
state of its own, and a recurrent one with the step model made of it."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper
from tests.onnx_models import constant, gru, model, value
from tests.reference import reference_session

from tickpath.engines.passes import stream
from tickpath.engines.zoo.network import Network
from tickpath.engines.zoo.recurrent import stacked

Floats = npt.NDArray[np.float32]

STEPS = 6
FEATURES = 3


def weighed(shape: tuple[int, ...], seed: int = 0) -> onnx.ModelProto:
    """`y[N,2] = tanh(flat(x[N, *shape]) @ weights)`: each element has its own weight, so that none may be misplaced."""
    size = int(np.prod(shape))
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"], axis=1),
        helper.make_node("MatMul", ["flat", "weights"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["y"]),
    ]
    weights = np.random.default_rng(seed).standard_normal((size, 2)) / size
    return model(
        nodes,
        [value("x", np.float32, ["N", *shape])],
        [value("y", np.float32, ["N", 2])],
        [constant("weights", weights)],
    )


def window_model(seed: int = 0) -> onnx.ModelProto:
    return weighed((STEPS, FEATURES), seed)


def time_last_model() -> onnx.ModelProto:
    return weighed((FEATURES, STEPS))


def state_model() -> onnx.ModelProto:
    """One step of a GRU at a time: data [N,1,3] and state [1,N,5] -> predictions and state_out."""
    return gru(steps=1)


def recurrent_model(kind: str = "LSTM", layers: int = 2, steps: int = STEPS) -> onnx.ModelProto:
    """Recurrent layers over a window and one number from the last state."""
    network = Network(f"{kind}{layers}", (steps, FEATURES))
    y = stacked(network, network.input, kind=kind, features=FEATURES, units=5, layers=layers)
    return network.model(y, (1,))


def convolved_model() -> onnx.ModelProto:
    """x[N,6,3] through two convolutions along time, which pad none of it and leave 3 steps, and an LSTM of 5 units."""
    random = np.random.default_rng(3)
    nodes = [
        helper.make_node("Transpose", ["x"], ["c0"], perm=[0, 2, 1]),
        helper.make_node("Conv", ["c0", "K1", "b"], ["c1"], name="conv1"),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "K2"], ["c2"], name="conv2", dilations=[2]),
        helper.make_node("Transpose", ["c2"], ["t"], perm=[2, 0, 1]),
        helper.make_node("LSTM", ["t", "W", "R"], ["all"], hidden_size=5, name="lstm"),
        helper.make_node("Squeeze", ["all", "one"], ["s"]),
        helper.make_node("Gather", ["s", "third"], ["y"], axis=0),
    ]
    constants = [
        constant(name, 0.5 * random.standard_normal(shape))
        for name, shape in (("K1", (4, 3, 2)), ("b", (4,)), ("K2", (4, 4, 2)), ("W", (1, 20, 4)), ("R", (1, 20, 5)))
    ]
    constants += [constant("one", [1], np.int64), constant("third", 2, np.int64)]
    return model(nodes, [value("x", np.float32, ["N", STEPS, FEATURES])], [value("y", np.float32, ["N", 5])], constants)


def step_model() -> onnx.ModelProto:
    return stream(recurrent_model()).model


def rows(count: int, seed: int = 0) -> Floats:
    """Rows that no two windows share."""
    return np.random.default_rng(seed).standard_normal((count, FEATURES)).astype(np.float32)


class Whole:
    """What a window's model answers to each whole window, asked directly."""

    def __init__(self, path: Path, window: int = STEPS, axis: int = 1) -> None:
        self._session = reference_session(path)
        self._window = window
        self._axis = axis
        self._name = self._session.get_inputs()[0].name

    def answer(self, rows: Floats, last: int) -> Floats:
        """To the window that ends with row `last`; rows before the first are zeros."""
        window = np.zeros((self._window, *rows.shape[1:]), np.float32)
        part = rows[max(0, last + 1 - self._window) : last + 1]
        window[self._window - len(part) :] = part
        batch = np.ascontiguousarray(np.moveaxis(window, 0, self._axis - 1)[None])
        return np.asarray(self._session.run(None, {self._name: batch})[0])
