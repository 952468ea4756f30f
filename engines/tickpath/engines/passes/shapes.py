"""Writes into a graph the sizes that were declared for it, so that what follows from them can be inferred."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from tickpath.engines.onnx_file import OnnxFile, subgraphs
from tickpath.engines.onnx_spec import find_inputs
from tickpath.engines.spec import TensorSpec


def settle(model: onnx.ModelProto, inputs: Sequence[TensorSpec], rows: int | None = None) -> onnx.ModelProto:
    """The model with the sizes of these inputs in place of those it leaves open, wherever their names stand. With
    `rows` the batch axis has that size; without, it keeps its name. `inputs` are those of `onnx_model.read_model`."""
    settled = onnx.ModelProto()
    settled.CopyFrom(model)
    specs = {tensor.name: tensor for tensor in inputs}
    sizes: dict[str, int] = {}
    for value in settled.graph.input:
        if value.name in specs:
            sizes |= _settle_input(value, specs[value.name], rows)
    _substitute(settled.graph, sizes)
    return settled


def with_rows(model: onnx.ModelProto, rows: int) -> onnx.ModelProto:
    """The model for one batch size. Raises ModelRefusedError where more than the batch axis is open."""
    return settle(model, find_inputs(OnnxFile(Path(), b"", model, ""), {}).tensors, rows)


def _settle_input(value: onnx.ValueInfoProto, spec: TensorSpec, rows: int | None) -> dict[str, int]:
    """Write the input's sizes; what its named dimensions turned out to be."""
    shape = value.type.tensor_type.shape
    while len(shape.dim) < len(spec.shape):
        shape.dim.add()
    sizes = {}
    for axis, (dimension, size) in enumerate(zip(shape.dim, spec.shape, strict=True)):
        if dimension.dim_value > 0:
            continue
        if axis == spec.batch_axis and rows is None:
            dimension.dim_param = dimension.dim_param or "N"
            continue
        settled = size if axis != spec.batch_axis else size * (rows or 1)
        if dimension.dim_param:
            sizes[dimension.dim_param] = settled
        dimension.dim_value = settled
    return sizes


def _substitute(graph: onnx.GraphProto, sizes: Mapping[str, int]) -> None:
    for value in (*graph.input, *graph.value_info, *graph.output):
        for dimension in value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ():
            if dimension.dim_param in sizes:
                dimension.dim_value = sizes[dimension.dim_param]
    for node in graph.node:
        for inner in subgraphs(node):
            _substitute(inner, sizes)
