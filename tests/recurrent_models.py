"""One recurrent operator in every form that ONNX has for it, and what onnxruntime says it computes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import helper
from tests.onnx_models import constant, value

Floats = npt.NDArray[np.float32]
Shape = tuple[int | str, ...]

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
OUTPUTS = {"RNN": ("Y", "Y_h"), "GRU": ("Y", "Y_h"), "LSTM": ("Y", "Y_h", "Y_c")}


@dataclass(frozen=True)
class Form:
    """How the operator is written. `computed`: weights come from an operator and are no constants; `outputs`: which of
    them have a name."""

    kind: str
    direction: str = "forward"
    layout: int = 0
    bias: bool = True
    initial_h: bool = False
    initial_c: bool = False
    peepholes: bool = False
    computed: bool = False
    outputs: tuple[bool, ...] = (True, True, True)
    opset: int = 17
    attributes: Mapping[str, int | float | list[str] | list[float]] = field(default_factory=dict)

    steps: int = 3
    features: int = 3
    units: int = 2

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    @property
    def names(self) -> list[str]:
        """The operator's outputs, empty for those left out."""
        return [name if named else "" for name, named in zip(OUTPUTS[self.kind], self.outputs, strict=False)]

    def model(self) -> onnx.ModelProto:
        """The operator alone, its batch axis open."""
        weights = self._weights()
        operands = ["X", "W", "R", "B" if self.bias else "", "", "H" if self.initial_h else ""]
        if self.kind == "LSTM":
            operands += ["C" if self.initial_c else "", "P" if self.peepholes else ""]
        made = [helper.make_node("Identity", [name], [f"{name}*"]) for name in weights if self.computed]
        operands = [f"{name}*" if self.computed and name in weights else name for name in operands]
        node = helper.make_node(self.kind, operands, self.names, hidden_size=self.units, direction=self.direction)
        attributes = {**self.attributes, **({"layout": 1} if self.layout else {})}
        node.attribute.extend(helper.make_attribute(key, each) for key, each in attributes.items())
        inputs = [value(name, np.float32, shape) for name, shape in self._shapes().items()]
        outputs = [value(name, np.float32, self._output_shape(name)) for name in self.names if name]
        constants = [constant(name, array) for name, array in weights.items()]
        graph = helper.make_graph([*made, node], "recurrent", inputs, outputs, constants)
        return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", self.opset)])

    def feeds(self, rows: int) -> dict[str, Floats]:
        """Seeded inputs of this many rows."""
        random = np.random.default_rng(rows)
        shapes = {
            name: [rows if size == "N" else int(size) for size in shape] for name, shape in self._shapes().items()
        }
        return {name: np.asarray(random.standard_normal(shape), np.float32) for name, shape in shapes.items()}

    def _shapes(self) -> dict[str, Shape]:
        """The inputs' shapes; "N" is the batch axis."""
        x: Shape = ("N", self.steps, self.features) if self.layout else (self.steps, "N", self.features)
        state: Shape = ("N", self.directions, self.units) if self.layout else (self.directions, "N", self.units)
        shapes = {"X": x, "H": state, "C": state}
        given = {"X": True, "H": self.initial_h, "C": self.initial_c and self.kind == "LSTM"}
        return {name: shape for name, shape in shapes.items() if given[name]}

    def _output_shape(self, name: str) -> Shape:
        state: Shape = ("N", self.directions, self.units) if self.layout else (self.directions, "N", self.units)
        if name != "Y":
            return state
        return ("N", self.steps, *state[1:]) if self.layout else (self.steps, *state)

    def _weights(self) -> dict[str, Floats]:
        random = np.random.default_rng(7)
        width = GATES[self.kind] * self.units
        shapes = {"W": (width, self.features), "R": (width, self.units), "B": (2 * width,), "P": (3 * self.units,)}
        given = {"W": True, "R": True, "B": self.bias, "P": self.peepholes and self.kind == "LSTM"}
        return {
            name: np.asarray(0.5 * random.standard_normal((self.directions, *shape)), np.float32)
            for name, shape in shapes.items()
            if given[name]
        }


def run(proto: onnx.ModelProto, feeds: Mapping[str, Floats]) -> Sequence[Floats]:
    """What onnxruntime answers, with one thread and nothing said."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(output) for output in session.run(None, dict(feeds))]
