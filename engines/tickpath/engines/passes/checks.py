"""What makes trouble on a device, named before anything is built."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import onnx

from tickpath.engines.onnx_dependence import shapes_from_data
from tickpath.engines.onnx_file import nodes, subgraphs
from tickpath.engines.onnx_operators import whole_graph
from tickpath.engines.passes.graph import known_tensors, tensor_value
from tickpath.engines.passes.recurrence import RECURRENT

INT32: Final = np.iinfo(np.int32)

# Ends and counts whose clamped value means the same: "to the end".
CLAMPED_ALIKE: Final = frozenset({"Slice"})


def int64_constants_that_clamp(model: onnx.ModelProto) -> tuple[str, ...]:
    """INT64 constants outside 32 bits, one line each: a runtime that has 32-bit integers only takes the nearest of
    those. Those that are read as the ends of slices only are left out, for which that is the same."""
    return tuple(_clamping(whole_graph(model)))


def loops(model: onnx.ModelProto) -> tuple[str, ...]:
    """Operators that run their body as often as the data says, or one of several, one line each: a CUDA graph is one
    straight line of work. Recurrent ones are named too, since TensorRT makes loops of them: see `unroll`."""
    branching = RECURRENT | {"If", "Loop", "Scan"}
    return tuple(
        f"{node.op_type} {node.name or node.output[0]!r}: can't be captured in a CUDA graph"
        for node in nodes(whole_graph(model))
        if node.op_type in branching
    )


def shapes_that_depend_on_data(model: onnx.ModelProto) -> tuple[str, ...]:
    """Tensors whose size may depend on values, one line for each operator at fault. Raises ModelRefusedError where one
    would be the length of a recurrent operator's sequence."""
    causes = shapes_from_data(whole_graph(model))
    firsts = {operator: name for name, operator in reversed(causes.items())}
    return tuple(f"{operator}: the shape of {name!r} depends on data" for operator, name in firsts.items())


def _clamping(graph: onnx.GraphProto) -> Iterator[str]:
    for name, tensor in known_tensors(graph).items():
        if tensor.data_type != onnx.TensorProto.INT64:
            continue
        value = tensor_value(tensor).astype(np.int64)
        outside = value[(value < INT32.min) | (value > INT32.max)]
        readers = {node.op_type for node in nodes(graph) if name in node.input}
        if outside.size and not (readers and readers <= CLAMPED_ALIKE):
            yield (
                f"constant {name!r} holds {outside.flat[0]}, outside 32 bits, "
                f"read by {', '.join(sorted(readers)) or 'nothing'}"
            )
    for node in graph.node:
        for inner in subgraphs(node):
            yield from _clamping(inner)
