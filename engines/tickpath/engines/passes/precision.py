"""A float32 graph in another precision, every tensor's type written down.

TensorRT 11 takes strongly typed networks only: what is computed in float16 must say so in the graph. Inputs and outputs
stay float32, with casts at the edges, so that a caller sees no difference. onnxconverter-common's float16 pass was
looked at and not taken: it clamps constants out of range to 10,000 without a word, and knows no bfloat16.

Each float32 tensor has up to two versions: `full`, under its own name, and `low`. A node reads the version it is made
for; where only the other exists, a Cast is put before the first reader. What stays float32:
- operators in FULL, for the reason there;
- operators that the model's operator set does not define for the precision (Conv has bfloat16 from opset 22 on);
- operators of other sets, of which nothing is known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tickpath.engines.engine import ModelRefusedError
from tickpath.engines.onnx_file import nodes, subgraphs
from tickpath.engines.passes.graph import (
    all_names,
    copy_flat,
    drop_unused,
    free_name,
    known_tensors,
    overridable,
    replace_nodes,
    tensor_types,
    tensor_value,
)

Precision: TypeAlias = Literal["fp32", "tf32", "fp16", "bf16"]

FLOAT: Final = onnx.TensorProto.FLOAT

ELEMENTS: Final[Mapping[str, int]] = {"fp16": onnx.TensorProto.FLOAT16, "bf16": onnx.TensorProto.BFLOAT16}

_SUMS: Final = "adds up many numbers, whose rounding adds up too"
_SQUARES: Final = "squares its input, and float16 ends at 256 squared"
_RANGE: Final = "its results span more than float16's range"
_SCALES: Final = "its scales were chosen in float32"
_TYPED: Final = "its type stands in an attribute"
_BODY: Final = "its body's edges stay float32"

FULL: Final[Mapping[str, str]] = {
    "AveragePool": _SUMS,
    "CumSum": _SUMS,
    "GlobalAveragePool": _SUMS,
    "LogSoftmax": _SUMS,
    "ReduceLogSum": _SUMS,
    "ReduceLogSumExp": _SUMS,
    "ReduceMean": _SUMS,
    "ReduceSum": _SUMS,
    "Softmax": _SUMS,
    "BatchNormalization": "its variance may be below float16's smallest number",
    "GroupNormalization": _SQUARES,
    "InstanceNormalization": _SQUARES,
    "LayerNormalization": _SQUARES,
    "LpNormalization": _SQUARES,
    "MeanVarianceNormalization": _SQUARES,
    "ReduceL2": _SQUARES,
    "ReduceSumSquare": _SQUARES,
    "RMSNormalization": _SQUARES,
    "Exp": _RANGE,
    "Log": _RANGE,
    "Pow": _RANGE,
    "Reciprocal": _RANGE,
    "DequantizeLinear": _SCALES,
    "QuantizeLinear": _SCALES,
    "Cast": _TYPED,
    "Constant": _TYPED,
    "ConstantOfShape": _TYPED,
    "EyeLike": _TYPED,
    "If": _BODY,
    "Loop": _BODY,
    "Scan": _BODY,
}


# These compute nothing that a precision could change.
_MOVES: Final = frozenset({"Cast", "Constant"})


def to_precision(model: onnx.ModelProto, precision: Precision) -> onnx.ModelProto:
    """The model, a copy, computing in `precision`. fp32 and tf32 leave the graph as it is: its tensors are float32
    either way, and what TF32 rounds is the builder's to say. Raises ModelRefusedError naming the constant that the
    precision can't hold, or the tensor whose type is unknown, or where all operators would stay float32."""
    return _convert(model, precision, rehearsed=False)


def stays_float32(model: onnx.ModelProto, precision: Precision) -> tuple[str, ...]:
    """The operators of this model that `to_precision` leaves in float32, one line each with the reason."""
    if precision not in ELEMENTS:
        return ()
    flat = copy_flat(model)
    facts = _Facts(flat, precision, rehearsed=False)
    computing = [node for node in nodes(flat.graph) if node.op_type not in _MOVES and facts.touches_float(node)]
    reasons = {node.op_type: facts.reason(node) for node in computing}
    return tuple(f"{operator}: {reason}" for operator, reason in sorted(reasons.items()) if reason)


def rehearse(model: onnx.ModelProto, precision: Precision) -> onnx.ModelProto:
    """The same, to be run where no kernels for the precision are: each operator computes in float32, and each tensor
    is rounded to `precision` on its way. It shows what rounding costs before any device does."""
    return _convert(model, precision, rehearsed=True)


def _convert(model: onnx.ModelProto, precision: Precision, rehearsed: bool) -> onnx.ModelProto:
    converted = copy_flat(model)
    if precision in ELEMENTS:
        facts = _Facts(converted, precision, rehearsed)
        facts.check_worth(converted.graph)
        _Body(facts, converted.graph, _Versions(set(), {}), overridable(converted)).convert()
        drop_unused(converted.graph)
    return converted


@dataclass(slots=True)
class _Versions:
    """The float32 tensors of a graph and those around it: which there are under their own name, and what the low ones
    are called."""

    full: set[str]
    low: dict[str, str]


class _Facts:
    """What is known of a model before anything is changed."""

    def __init__(self, model: onnx.ModelProto, precision: Precision, rehearsed: bool) -> None:
        self.precision = precision
        self.element = ELEMENTS[precision]
        self.rehearsed = rehearsed
        self._type = f"tensor({onnx.TensorProto.DataType.Name(self.element).lower()})"
        self._opsets = {_domain(entry.domain): entry.version for entry in model.opset_import}
        self._types = tensor_types(model)
        self._names = set(all_names(model.graph))

    def is_float(self, name: str, node: onnx.NodeProto) -> bool:
        """Whether a tensor was float32. Raises ModelRefusedError where nothing says what it was."""
        if name and name not in self._types:
            raise ModelRefusedError(
                f"the type of {name!r}, at operator {node.op_type!r}, can't be inferred, so the model can't be "
                f"converted to {self.precision}: compile it with --precision fp32"
            )
        return bool(name) and self._types[name].elem_type == FLOAT

    def touches_float(self, node: onnx.NodeProto) -> bool:
        """Whether the node reads or makes a float32 tensor."""
        return any(self.is_float(name, node) for name in (*node.input, *node.output))

    def reason(self, node: onnx.NodeProto) -> str:
        """Why a node stays float32; empty where it does not."""
        inputs, outputs = self.low_places(node)
        if any(inputs) or any(outputs):
            return ""
        missing = f"operator set {self._opsets.get(_domain(node.domain))} has no {self.precision} for it"
        return FULL.get(node.op_type, missing)

    def check_worth(self, graph: onnx.GraphProto) -> None:
        """Raises ModelRefusedError where operators compute and none would do so in the precision."""
        computing = [node for node in nodes(graph) if node.op_type not in _MOVES and self.touches_float(node)]
        if computing and all(map(self.reason, computing)):
            raise ModelRefusedError(
                f"no operator of this model can compute in {self.precision} ({computing[0].op_type}: "
                f"{self.reason(computing[0])}): export it with a newer operator set, or compile with --precision fp32"
            )

    def low_places(self, node: onnx.NodeProto) -> tuple[list[bool], list[bool]]:
        """For each input and each output of a node, whether the operator is to have the low type there."""
        refused = [False] * len(node.input), [False] * len(node.output)
        schema = self._schema(node)
        if node.op_type in FULL or schema is None:
            return refused
        allowed = {each.type_param_str for each in schema.type_constraints if self._type in each.allowed_type_strs}
        inputs = [_formal(schema.inputs, place).type_str in allowed for place in range(len(node.input))]
        outputs = [_formal(schema.outputs, place).type_str in allowed for place in range(len(node.output))]
        return inputs, outputs

    def _schema(self, node: onnx.NodeProto) -> onnx.defs.OpSchema | None:
        domain = _domain(node.domain)
        if not onnx.defs.has(node.op_type, domain) or domain not in self._opsets:
            return None
        try:
            return onnx.defs.get_schema(node.op_type, self._opsets[domain], domain)
        except onnx.defs.SchemaError:
            return None

    def free_name(self, name: str) -> str:
        return free_name(self._names, f"{name}:{self.precision}")

    def low_tensor(self, tensor: onnx.TensorProto, name: str) -> onnx.TensorProto:
        """A constant in the low precision. Raises ModelRefusedError where that does not hold it."""
        array = tensor_value(tensor)
        with np.errstate(over="ignore"):
            low = array.astype(helper.tensor_dtype_to_np_dtype(self.element))
        lost = np.isfinite(array) & ~np.isfinite(low)
        if lost.any():
            raise ModelRefusedError(
                f"constant {tensor.name!r} holds {array[lost].flat[0]:g}, which {self.precision} does not: it would "
                "become infinite; compile the model with another --precision, or scale it before export"
            )
        return numpy_helper.from_array(low, name)


class _Body:
    """One graph on its way: the nodes so far, and the versions of its tensors."""

    def __init__(self, facts: _Facts, graph: onnx.GraphProto, around: _Versions, given: set[str]) -> None:
        self._facts = facts
        self._graph = graph
        self._known = known_tensors(graph, given)
        self._nodes: list[onnx.NodeProto] = []
        own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        self._versions = _Versions(around.full | own, dict(around.low))

    def convert(self) -> None:
        """Convert the graph, but for its edges."""
        for node in self._graph.node:
            for inner in subgraphs(node):
                _Body(self._facts, inner, self._versions, set()).convert()
            self._add(node)
        for value in self._graph.output:
            if value.name in self._versions.low:
                self._full(value.name)
        replace_nodes(self._graph, self._nodes)
        del self._graph.value_info[:]  # of another type now, and inferred by whoever needs it

    def _add(self, node: onnx.NodeProto) -> None:
        low_inputs, low_outputs = self._facts.low_places(node)
        for place, name in enumerate(node.input):
            if self._facts.is_float(name, node):
                node.input[place] = self._low_operand(name) if low_inputs[place] else self._full(name)
        self._nodes.append(node)
        for place, name in enumerate(node.output):
            if not self._facts.is_float(name, node):
                continue
            if low_outputs[place]:
                node.output[place] = self._low_result(name)
            else:
                self._versions.full.add(name)

    def _full(self, name: str) -> str:
        """The float32 version of a tensor."""
        if name not in self._versions.full:
            self._cast(self._versions.low[name], name, FLOAT)
            self._versions.full.add(name)
        return name

    def _low_operand(self, name: str) -> str:
        low = self._low(name)
        return self._cast(low, self._facts.free_name(name), FLOAT) if self._facts.rehearsed else low

    def _low_result(self, name: str) -> str:
        low = self._versions.low[name] = self._facts.free_name(name)
        if not self._facts.rehearsed:
            return low
        computed = self._facts.free_name(name)
        self._cast(computed, low, self._facts.element)
        return computed

    def _low(self, name: str) -> str:
        if name not in self._versions.low:
            low = self._versions.low[name] = self._facts.free_name(name)
            if name in self._known:
                self._graph.initializer.append(self._facts.low_tensor(self._known[name], low))
            else:
                self._cast(name, low, self._facts.element)
        return self._versions.low[name]

    def _cast(self, source: str, target: str, element: int) -> str:
        self._nodes.append(helper.make_node("Cast", [source], [target], name=f"{target}:Cast", to=element))
        return target


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _formal(parameters: Sequence[onnx.defs.OpSchema.FormalParameter], place: int) -> onnx.defs.OpSchema.FormalParameter:
    """The parameter at a place; the last one may stand for many."""
    return parameters[min(place, len(parameters) - 1)]
