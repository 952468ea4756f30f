"""What would hurt in TensorRT, found in the graph and named before a build.

- A loop, or a branch that data chooses, can't be captured in a CUDA graph.
- A shape that data decides needs an output allocator at run time, and the graph that was captured has one shape.
- TensorRT has no float64: it computes in float32 without a word, and cuts what is out of its range.

INT64 is native in every release that is taken here, so a constant outside 32 bits is only named; where a parser cuts a
constant all the same it warns of it, and tensorrt.py takes that warning for an error.
"""

from typing import Final

import numpy as np
import onnx

from tickpath.engines.engine import ModelRefusedError
from tickpath.engines.onnx_file import constants
from tickpath.engines.onnx_operators import whole_graph
from tickpath.engines.passes.checks import int64_constants_that_clamp, loops, shapes_that_depend_on_data
from tickpath.engines.spec import TensorSpec

FLOAT_MAX: Final = float(np.finfo(np.float32).max)

# What TensorRT binds. It parses float64 too, and then binds float32.
BOUND: Final = ("bool", "float16", "float32", "int32", "int64", "int8", "uint8")


def check_graph(model: onnx.ModelProto) -> tuple[str, ...]:
    """What is worth a note. Raises ModelRefusedError naming what hurts. `model` is what the parser would get: recurrent
    operators are unrolled where they can be."""
    for text in loops(model):
        raise ModelRefusedError(f"{text}: export the model with fixed steps, for one of its cases")
    for text in shapes_that_depend_on_data(model):
        raise ModelRefusedError(
            f"{text}, and a captured graph has one shape: export the model with fixed sizes, padded"
        )
    _check_float64(whole_graph(model))
    return int64_constants_that_clamp(model) + _without_a_value(whole_graph(model))


def check_tensors(kind: str, tensors: tuple[TensorSpec, ...]) -> None:
    """Raises ModelRefusedError where an input or output (`kind`) has a type that TensorRT does not bind."""
    for tensor in tensors:
        if tensor.dtype.name not in BOUND:
            raise ModelRefusedError(
                f"{kind} {tensor.name!r} is {tensor.dtype.name}, TensorRT has {', '.join(BOUND)}: "
                "export the model with a Cast there"
            )


def _check_float64(graph: onnx.GraphProto) -> None:
    for tensor in constants(graph):
        if tensor.data_type == onnx.TensorProto.DOUBLE:
            values = onnx.numpy_helper.to_array(tensor)
            if bool((np.abs(values[np.isfinite(values)]) > FLOAT_MAX).any()):
                raise ModelRefusedError(
                    f"constant {tensor.name!r} is float64 and out of the range of float32, to which TensorRT cuts it: "
                    "export the model in float32"
                )


def _without_a_value(graph: onnx.GraphProto) -> tuple[str, ...]:
    """Weights that are NaN, one line a tensor: parity says nothing of them, since both sides answer NaN. Infinity may
    be meant, as in a mask."""
    notes = []
    for tensor in constants(graph):
        if tensor.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE):
            count = int(np.isnan(onnx.numpy_helper.to_array(tensor)).sum())
            if count:
                notes.append(f"constant {tensor.name!r} has {count:,} NaN: so have answers that it is used in")
    return tuple(notes)
