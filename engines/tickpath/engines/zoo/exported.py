"""The reference models as programs of torch.export: the same weights, operator by operator. The only file of the zoo
that needs torch, so nothing else here imports it."""

import io
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper

from tickpath.engines.engine import ModelRefusedError

aten = torch.ops.aten


def export_program(model: onnx.ModelProto) -> bytes:
    """The model as the bytes of a .pt2 file. Inputs and outputs keep their names, open dimensions stay open, those of
    one name together. Raises ModelRefusedError naming an operator that no reference model has."""
    weights = {tensor.name for tensor in model.graph.initializer}
    values = [value for value in model.graph.input if value.name not in weights]
    shapes = [
        [size.dim_param or size.dim_value or "N" for size in value.type.tensor_type.shape.dim] for value in values
    ]
    open_sizes = {size: torch.export.Dim(size, min=1) for shape in shapes for size in shape if isinstance(size, str)}
    dynamic = tuple(
        {axis: open_sizes[size] for axis, size in enumerate(shape) if isinstance(size, str)} for shape in shapes
    )
    # Traced on three rows, since the exporter takes 0 and 1 for sizes that are meant.
    examples = tuple(
        torch.zeros(
            [3 if isinstance(size, str) else size for size in shape], dtype=_dtype(value.type.tensor_type.elem_type)
        )
        for value, shape in zip(values, shapes, strict=True)
    )
    program = torch.export.export(_Translation(model).module, examples, dynamic_shapes=dynamic or None)
    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


def _dtype(element: int) -> torch.dtype:
    return torch.from_numpy(np.zeros(1, helper.tensor_dtype_to_np_dtype(element))).dtype


class _Translation:
    """An ONNX graph on its way into a torch graph."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._graph = torch.fx.Graph()
        self._root = torch.nn.Module()
        self._weights = {tensor.name: np.array(numpy_helper.to_array(tensor)) for tensor in model.graph.initializer}
        inputs = [value.name for value in model.graph.input if value.name not in self._weights]
        self._made: dict[str, torch.fx.Node] = {name: self._graph.placeholder(name) for name in inputs}
        for node in model.graph.node:
            if node.op_type not in TRANSLATIONS:
                raise ModelRefusedError(f"operator {node.op_type!r} is not among those of the reference models")
            results = TRANSLATIONS[node.op_type](_Call(self, node))
            self._made |= {name: each for name, each in zip(node.output, results, strict=False) if name}
        self._graph.output({value.name: self.tensor(value.name) for value in model.graph.output})
        self.module = torch.fx.GraphModule(self._root, self._graph)

    def tensor(self, name: str) -> torch.fx.Node:
        """A tensor of the graph; a weight from when it is first asked for."""
        if name not in self._made:
            self._made[name] = self.weight(self._weights[name])
        return self._made[name]

    def weight(self, array: np.ndarray[Any, Any]) -> torch.fx.Node:
        """A new weight."""
        name = f"weight_{len(list(self._root.buffers()))}"
        self._root.register_buffer(name, torch.from_numpy(np.array(array)))
        return self._graph.get_attr(name)

    def value(self, name: str) -> np.ndarray[Any, Any]:
        """What a weight holds."""
        return self._weights[name]

    def run(self, function: Callable[..., Any], *arguments: Any) -> torch.fx.Node:
        """A call within the torch graph."""
        return self._graph.call_function(function, arguments)


class _Call:
    """One ONNX operator to be translated."""

    def __init__(self, graph: _Translation, node: onnx.NodeProto) -> None:
        self._node = node
        self.graph = graph
        self.run = graph.run
        self.given: dict[str, Any] = {each.name: helper.get_attribute_value(each) for each in node.attribute}

    @property
    def operands(self) -> list[torch.fx.Node]:
        return [self.graph.tensor(name) for name in self._node.input if name]

    def value(self, place: int) -> np.ndarray[Any, Any] | None:
        """What a weight among the operands holds; None where it is left out."""
        names = self._node.input
        return self.graph.value(names[place]) if place < len(names) and names[place] else None

    def numbers(self, place: int) -> list[int]:
        """The same, as sizes or axes."""
        value = self.value(place)
        assert value is not None
        return [int(number) for number in value.reshape(-1)]


Translate = Callable[[_Call], list[torch.fx.Node]]


def _same(function: Callable[..., Any]) -> Translate:
    """An operator that torch has in the same form."""
    return lambda call: [call.run(function, *call.operands)]


def _arg_max(call: _Call) -> list[torch.fx.Node]:
    return [call.run(aten.argmax.default, call.operands[0], call.given["axis"], bool(call.given["keepdims"]))]


def _cast(call: _Call) -> list[torch.fx.Node]:
    return [call.run(aten.to.dtype, call.operands[0], _dtype(call.given["to"]))]


def _concat(call: _Call) -> list[torch.fx.Node]:
    return [call.run(aten.cat.default, call.operands, call.given["axis"])]


def _conv(call: _Call) -> list[torch.fx.Node]:
    _, weights, bias = call.operands
    return [call.run(aten.conv2d.default, _padded(call, 0.0), weights, bias, list(call.given["strides"]))]


def _flatten(call: _Call) -> list[torch.fx.Node]:
    return [call.run(aten.clone.default, call.run(aten.flatten.using_ints, call.operands[0], 1, -1))]


def _gather(call: _Call) -> list[torch.fx.Node]:
    table, places = call.operands
    return [call.run(aten.index_select.default, table, call.given.get("axis", 0), places)]


def _gemm(call: _Call) -> list[torch.fx.Node]:
    x, weights, bias = call.operands
    return [call.run(aten.addmm.default, bias, x, weights)]


def _leaky_relu(call: _Call) -> list[torch.fx.Node]:
    return [call.run(aten.leaky_relu.default, call.operands[0], call.given["alpha"])]


def _max_pool(call: _Call) -> list[torch.fx.Node]:
    kernel, strides = list(call.given["kernel_shape"]), list(call.given["strides"])
    return [call.run(aten.max_pool2d.default, _padded(call, -np.inf), kernel, strides)]


def _padded(call: _Call, value: float) -> torch.fx.Node:
    top, left, bottom, right = call.given["pads"]
    return call.run(aten.constant_pad_nd.default, call.operands[0], [left, right, top, bottom], value)


def _reshape(call: _Call) -> list[torch.fx.Node]:
    return [call.run(aten.reshape.default, call.operands[0], call.numbers(1))]


def _softmax(call: _Call) -> list[torch.fx.Node]:
    return [call.run(aten.softmax.int, call.operands[0], call.given.get("axis", -1))]


def _split(call: _Call) -> list[torch.fx.Node]:
    sizes = call.numbers(1)
    parts = call.run(aten.split_with_sizes.default, call.operands[0], sizes, call.given["axis"])
    return [call.run(operator.getitem, parts, place) for place in range(len(sizes))]


def _squeeze(call: _Call) -> list[torch.fx.Node]:
    return [call.run(aten.squeeze.dims, call.operands[0], call.numbers(1))]


def _transpose(call: _Call) -> list[torch.fx.Node]:
    return [call.run(aten.permute.default, call.operands[0], list(call.given["perm"]))]


def _unsqueeze(call: _Call) -> list[torch.fx.Node]:
    return [call.run(aten.unsqueeze.default, call.operands[0], call.numbers(1)[0])]


def _lstm(call: _Call) -> list[torch.fx.Node]:
    """ONNX has the gates as i, o, f, c, torch as i, f, c, o."""
    return _recurrent(call, aten.lstm.input, [0, 2, 3, 1], states=2)


def _gru(call: _Call) -> list[torch.fx.Node]:
    """ONNX has the gates as z, r, h, torch as r, z, h."""
    if not call.given.get("linear_before_reset"):
        raise ModelRefusedError("torch has no GRU that is linear after the reset: unroll it first")
    return _recurrent(call, aten.gru.input, [1, 0, 2], states=1)


def _recurrent(call: _Call, function: Callable[..., Any], gates: list[int], states: int) -> list[torch.fx.Node]:
    """One layer from zeros on: [steps, batch, features] -> [steps, 1, batch, units] and its last states."""
    x, *_ = call.operands
    parameters = [call.graph.weight(_reordered(part, gates)) for part in _parameters(call, len(gates))]
    rows = call.run(aten.sym_size.int, x, 1)
    start = call.run(aten.new_zeros.default, x, [1, rows, call.given["hidden_size"]])
    initial = [start] * states if states > 1 else start
    made = call.run(function, x, initial, parameters, True, 1, 0.0, False, False, False)
    y, *ends = (call.run(operator.getitem, made, place) for place in range(1 + states))
    return [call.run(aten.unsqueeze.default, y, 1), *ends]


def _parameters(call: _Call, gates: int) -> list[np.ndarray[Any, Any]]:
    weights, states, bias = (call.value(place) for place in (1, 2, 3))
    if weights is None or states is None or bias is None or len(weights) > 1 or len(call.operands) > 4:
        raise ModelRefusedError("a recurrent operator that no reference model has: unroll it first")
    return [weights[0], states[0], *np.split(bias[0], 2)]


def _reordered(weights: np.ndarray[Any, Any], gates: list[int]) -> np.ndarray[Any, Any]:
    parts = np.split(weights, len(gates))
    return np.concatenate([parts[gate] for gate in gates])


TRANSLATIONS: Final[Mapping[str, Translate]] = {
    "Add": _same(aten.add.Tensor),
    "ArgMax": _arg_max,
    "Cast": _cast,
    "Concat": _concat,
    "Conv": _conv,
    "Flatten": _flatten,
    "GRU": _gru,
    "Gather": _gather,
    "Gemm": _gemm,
    "Identity": _same(aten.clone.default),
    "LSTM": _lstm,
    "LeakyRelu": _leaky_relu,
    "MatMul": _same(aten.matmul.default),
    "MaxPool": _max_pool,
    "Mul": _same(aten.mul.Tensor),
    "Neg": _same(aten.neg.default),
    "Relu": _same(aten.relu.default),
    "Reshape": _reshape,
    "Sigmoid": _same(aten.sigmoid.default),
    "Softmax": _softmax,
    "Split": _split,
    "Squeeze": _squeeze,
    "Sub": _same(aten.sub.Tensor),
    "Tanh": _same(aten.tanh.default),
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
