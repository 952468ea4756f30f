"""What passes ask of a graph and do to it: names, known tensors, inferred types, nodes put in place of others."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import onnx
from onnx import helper, inliner, numpy_helper

from tickpath.engines.engine import ModelRefusedError
from tickpath.engines.onnx_file import nodes, subgraphs
from tickpath.engines.spec import Array


def copy_flat(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy to be changed, with the functions that the model defines in the places of their calls."""
    if model.functions:
        return inliner.inline_local_functions(model, convert_version=True)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def replace_nodes(graph: onnx.GraphProto, made: Sequence[onnx.NodeProto]) -> None:
    """`made`, in which the graph's own nodes may stand, become its nodes."""
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in made]
    del graph.node[:]
    graph.node.extend(kept)


def free_name(names: set[str], wanted: str) -> str:
    """`wanted`, or that and a number, and taken from now on."""
    name, number = wanted, len(names)
    while name in names:
        name, number = f"{wanted}_{number}", number + 1
    names.add(name)
    return name


def opset_of(model: onnx.ModelProto) -> int:
    """The version of the standard operator set, 0 where the model imports none."""
    return max((entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"}), default=0)


def all_names(graph: onnx.GraphProto) -> Iterator[str]:
    """Every name of a tensor in the graph and those it holds."""
    yield from (value.name for values in (graph.input, graph.output, graph.value_info) for value in values)
    yield from (tensor.name for tensor in graph.initializer)
    for node in graph.node:
        yield from node.output
        for inner in subgraphs(node):
            yield from all_names(inner)


def known_tensors(graph: onnx.GraphProto, overridable: Iterable[str] = ()) -> dict[str, onnx.TensorProto]:
    """The tensors whose value this graph fixes: initializers, but for those that are `overridable`, and Constants."""
    left_out = set(overridable)
    known = {tensor.name: tensor for tensor in graph.initializer if tensor.name not in left_out}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            known[node.output[0]] = node.attribute[0].t
    return known


def drop_unused(graph: onnx.GraphProto) -> None:
    """Remove the initializers that nothing reads any more."""
    read = {name for node in nodes(graph) for name in node.input} | {
        value.name for value in (*graph.input, *graph.output)
    }
    for inner in (graph, *(each for node in nodes(graph) for each in subgraphs(node))):
        read |= {value.name for value in inner.output}
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    if len(kept) < len(graph.initializer):
        del graph.initializer[:]
        graph.initializer.extend(kept)


def overridable(model: onnx.ModelProto) -> set[str]:
    """The inputs that have a value in the file: initializers that a caller may replace, from IR version 4 on."""
    return {value.name for value in model.graph.input} if model.ir_version >= 4 else set()


def tensor_value(tensor: onnx.TensorProto) -> Array:
    """The tensor as an array. Raises ModelRefusedError where its bytes are elsewhere."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise ModelRefusedError(f"the weights of {tensor.name!r} are in a file of their own: load them into the model")
    return np.asarray(numpy_helper.to_array(tensor))


def tensor_types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto.Tensor]:
    """The element type and shape of every tensor that the model's own declarations settle, those of subgraphs too."""
    types: dict[str, onnx.TypeProto.Tensor] = {}
    _collect(onnx.shape_inference.infer_shapes(model, data_prop=True).graph, types)
    return types


def _collect(graph: onnx.GraphProto, types: dict[str, onnx.TypeProto.Tensor]) -> None:
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.HasField("tensor_type"):
            types[value.name] = value.type.tensor_type
    for name, tensor in {**known_tensors(graph), **{each.name: each for each in graph.initializer}}.items():
        types[name] = helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims)).tensor_type
    for node in graph.node:
        for inner in subgraphs(node):
            _collect(inner, types)
