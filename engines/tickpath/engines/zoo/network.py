"""A graph in the making: nodes are added in order, weights are drawn as they are asked for."""

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from tickpath.engines.zoo.weights import Weights

OPSET = 17
IR_VERSION = 9  # the one that belongs to opset 17's time: every runtime of the last years reads it

Attribute = int | float | str | list[int]


class Network:
    """Layers return the name of the tensor they make, and take the names of those they read."""

    input = "x"
    output = "y"

    def __init__(self, name: str, input_shape: tuple[int, ...]) -> None:
        self._name = name
        self._input_shape = input_shape
        self._weights = Weights(name)
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []

    def node(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Attribute) -> str:
        """Add one operator; its last output is what later layers read, the others are left unnamed."""
        name = f"{operator.lower()}_{len(self._nodes)}"
        names = [""] * (outputs - 1) + [name]
        node = helper.make_node(operator, list(inputs), names, name=name)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self._nodes.append(node)
        return name

    def uniform(self, shape: tuple[int, ...], fan_in: int, gain: float = 1.0) -> str:
        """A weight that keeps its input's variance times `gain` squared when it sums `fan_in` values."""
        return self.constant(self._weights.uniform(shape, gain * (3.0 / fan_in) ** 0.5))

    def zeros(self, shape: tuple[int, ...]) -> str:
        return self.constant(np.zeros(shape, np.float32))

    def constant(self, value: npt.NDArray[np.float32] | npt.NDArray[np.int64]) -> str:
        name = f"weight_{len(self._initializers)}"
        self._initializers.append(numpy_helper.from_array(value, name))
        return name

    def model(self, last: str, output_shape: tuple[int, ...]) -> onnx.ModelProto:
        """The finished model: `last` becomes its output."""
        self._nodes[-1].output[list(self._nodes[-1].output).index(last)] = self.output
        graph = helper.make_graph(
            self._nodes,
            self._name,
            [self._value(self.input, self._input_shape)],
            [self._value(self.output, output_shape)],
            self._initializers,
        )
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, ir_version=IR_VERSION, opset_imports=opsets, producer_name="tickpath zoo")

    @staticmethod
    def _value(name: str, shape: tuple[int, ...]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", *shape])
