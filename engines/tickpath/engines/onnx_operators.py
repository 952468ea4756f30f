"""What a graph's operators say without running it: which can't be served, and which outputs' shapes depend on data.

Rules of `shapes_from_data`
- A tensor's *value* depends on data when any operand's value does; `Shape` and `Size` read no values, so theirs does
  not.
- A tensor's *shape* depends on data when an operand's shape does, or when an operator of SHAPED_BY_VALUE takes its
  shape from an operand whose value depends on data.
- It errs towards "depends": a shape that the model declares is believed later, and runs decide what is left.
"""

from collections.abc import Mapping
from typing import Final

import onnx

from tickpath.engines.engine import ModelRefusedError
from tickpath.engines.onnx_file import nodes, subgraphs

# Operators the runtime has without a plug-in. com.microsoft is onnxruntime's own set.
DOMAINS: Final = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})

RANDOM: Final = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)

# The operands whose values give the output its shape.
SHAPED_BY_VALUE: Final[Mapping[str, tuple[int, ...]]] = {
    "CenterCropPad": (1,),
    "Compress": (1,),
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "Loop": (0, 1),
    "NonMaxSuppression": (0, 1, 2, 3, 4),
    "NonZero": (0,),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "StringSplit": (0,),
    "Tile": (1,),
    "TopK": (1,),
    "Unique": (0,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}

# An empty sequence into one of these ends the whole process (onnxruntime 1.32: SIGABRT), so its length must be fixed.
RECURRENT: Final = frozenset({"GRU", "LSTM", "RNN"})


def check_operators(model: onnx.ModelProto) -> None:
    """Raises ModelRefusedError naming the first operator that can't be served."""
    ours = DOMAINS | {function.domain for function in model.functions}
    for node in nodes(model.graph):
        if node.domain not in ours:
            raise ModelRefusedError(
                f"operator {node.op_type!r} is from {node.domain!r}, a set that is not built in: "
                "export the model with standard ONNX operators only"
            )
        if node.op_type in RANDOM:
            raise ModelRefusedError(
                f"operator {node.op_type!r} is random, so no answer could be repeated or checked: "
                "export the model in inference mode, without it"
            )


def check_output_shapes(graph: onnx.GraphProto) -> dict[str, str]:
    """The outputs whose shape may depend on data although the file declares it, each with the operator at fault.
    Raises ModelRefusedError where the file does not declare it."""
    causes = shapes_from_data(graph)
    names = {dimension.dim_param for value in graph.input for dimension in value.type.tensor_type.shape.dim} - {""}
    suspects = {value.name: causes[value.name] for value in graph.output if value.name in causes}
    for value in graph.output:
        tensor = value.type.tensor_type
        settled = all(dimension.dim_value > 0 or dimension.dim_param in names for dimension in tensor.shape.dim)
        if value.name in suspects and not (tensor.HasField("shape") and settled):
            raise ModelRefusedError(
                f"the shape of output {value.name!r} depends on the data (operator {suspects[value.name]!r}): "
                "export the model with a fixed number of results, padded, or without this output"
            )
    return suspects


def shapes_from_data(graph: onnx.GraphProto) -> dict[str, str]:
    """The tensors whose shape may depend on data, each with the operator that makes it so.
    Raises ModelRefusedError where that would feed a recurrent operator."""
    values = {value.name for value in graph.input} - {tensor.name for tensor in graph.initializer}
    shapes: dict[str, str] = {}
    known = -1
    while known != len(values) + len(shapes):  # once is enough where nodes stand in order, which files need not keep to
        known = len(values) + len(shapes)
        for node in graph.node:
            _follow(node, values, shapes)
    return shapes


def _follow(node: onnx.NodeProto, values: set[str], shapes: dict[str, str]) -> None:
    operands = {
        *node.input,
        *(name for subgraph in subgraphs(node) for inner in nodes(subgraph) for name in inner.input),
    }
    if node.op_type in {"Shape", "Size"}:
        if node.input[0] in shapes:
            values.update(node.output)
        return
    if operands & values:
        values.update(node.output)
    cause = next((shapes[name] for name in node.input if name in shapes), None) or _cause(node, values)
    if cause is None:
        return
    if node.op_type in RECURRENT:
        raise ModelRefusedError(
            f"operator {node.op_type!r} gets a sequence whose length depends on the data (operator {cause!r}): "
            "an empty one would end the process; export the model with a fixed length"
        )
    shapes.update(dict.fromkeys(node.output, cause))


def _cause(node: onnx.NodeProto, values: set[str]) -> str | None:
    shaping = SHAPED_BY_VALUE.get(node.op_type, ())
    if any(index < len(node.input) and node.input[index] in values for index in shaping):
        return node.op_type
    inner = (inner.op_type for subgraph in subgraphs(node) for inner in nodes(subgraph))
    return next(
        (op_type for op_type in inner if op_type in {"NonZero", "Unique", "Compress", "NonMaxSuppression"}), None
    )
