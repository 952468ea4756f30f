"""What a graph's operators say without running it: which can't be served, and which outputs' shapes depend on data."""

from typing import Final

import onnx
from onnx.inliner import inline_local_functions

from tickpath.engines.engine import ModelRefusedError
from tickpath.engines.onnx_dependence import shapes_from_data
from tickpath.engines.onnx_file import nodes

# Operators the runtime has without a plug-in. com.microsoft is onnxruntime's own set.
DOMAINS: Final = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})

RANDOM: Final = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)


def whole_graph(model: onnx.ModelProto) -> onnx.GraphProto:
    """The graph with the model's own functions in the places of their calls, to be looked at and not to be run: all
    functions are taken to use the same operator sets, since the inliner leaves out those that don't.
    Raises ModelRefusedError."""
    if not model.functions:
        return model.graph
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    parts = [copy, *copy.functions]
    opsets = {opset.domain: opset for part in reversed(parts) for opset in part.opset_import}
    for part in parts:
        del part.opset_import[:]
        part.opset_import.extend(opsets.values())
    try:
        return inline_local_functions(copy).graph
    except onnx.checker.ValidationError as error:
        raise ModelRefusedError(f"the model's functions can't be followed ({error}): export it without them") from None


def check_operators(graph: onnx.GraphProto) -> None:
    """Raises ModelRefusedError naming the first operator that can't be served."""
    for node in nodes(graph):
        if node.domain not in DOMAINS:
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
