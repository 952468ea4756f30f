"""What an ONNX graph declares: element types, shapes, defaults, which dimension may be the batch axis. Nothing runs.

How open dimensions are settled
1. A declared shape settles all dimensions of its input, and every dimension of the same symbolic name elsewhere.
2. Of inputs that are still open, a name that all of them share is the batch axis; failing that, axis 0 is.
3. A tensor has one batch axis. Whatever stays open is refused, with the option to add.
The batch axis so found is a candidate: probing.py tells whether the model's rows really are independent along it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias

import numpy as np
import onnx

from tickpath.engines.engine import ModelRefusedError
from tickpath.engines.onnx_file import OnnxFile, constants
from tickpath.engines.spec import TensorSpec, declaring

Shape: TypeAlias = tuple[int | Literal["N"], ...]

ROWS: Final = "N"

# What both numpy and the protocol have a type for.
DTYPES: Final[Mapping[int, np.dtype[np.generic]]] = {
    onnx.TensorProto.BOOL: np.dtype(np.bool_),
    onnx.TensorProto.INT8: np.dtype(np.int8),
    onnx.TensorProto.INT16: np.dtype(np.int16),
    onnx.TensorProto.INT32: np.dtype(np.int32),
    onnx.TensorProto.INT64: np.dtype(np.int64),
    onnx.TensorProto.UINT8: np.dtype(np.uint8),
    onnx.TensorProto.UINT16: np.dtype(np.uint16),
    onnx.TensorProto.UINT32: np.dtype(np.uint32),
    onnx.TensorProto.UINT64: np.dtype(np.uint64),
    onnx.TensorProto.FLOAT16: np.dtype(np.float16),
    onnx.TensorProto.FLOAT: np.dtype(np.float32),
    onnx.TensorProto.DOUBLE: np.dtype(np.float64),
}

# Types that weights have; other constants are shapes, axes and indices.
PRECISIONS: Final[Mapping[int, str]] = {
    onnx.TensorProto.FLOAT16: "float16",
    onnx.TensorProto.BFLOAT16: "bfloat16",
    onnx.TensorProto.FLOAT: "float32",
    onnx.TensorProto.DOUBLE: "float64",
    onnx.TensorProto.INT8: "int8",
    onnx.TensorProto.UINT8: "uint8",
}


@dataclass(frozen=True, slots=True)
class Open:
    """A dimension whose size the file leaves open; `name` is empty where it has none."""

    name: str


Dimension: TypeAlias = int | Open | Literal["N"]


@dataclass(frozen=True, slots=True)
class Declared:
    """An input or output as the file declares it. `dimensions` None: not even the rank is known."""

    name: str
    dtype: np.dtype[np.generic]
    dimensions: tuple[Dimension, ...] | None


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs in the order in which they are sent, and the one batch size if the file fixes it."""

    tensors: tuple[TensorSpec, ...]
    rows_fixed: int | None


def declared(value: onnx.ValueInfoProto, kind: str) -> Declared:
    """An input or output (`kind`) as the file has it. Raises ModelRefusedError where it is nothing we can carry."""
    form = value.type.WhichOneof("value")
    if form != "tensor_type":
        raise ModelRefusedError(
            f"{kind} {value.name!r} is {_form(form)}, only dense tensors are served: {_ADVICE.get(form, _REEXPORT)}"
        )
    tensor = value.type.tensor_type
    dtype = DTYPES.get(tensor.elem_type)
    if dtype is None:
        element = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
        raise ModelRefusedError(
            f"{kind} {value.name!r} has element type {element}, which is not served: "
            + (_STRINGS if element == "string" else "add a Cast to float32 (or another numpy type) and export it again")
        )
    if not tensor.HasField("shape"):
        return Declared(value.name, dtype, None)
    dimensions = tuple(_dimension(dimension) for dimension in tensor.shape.dim)
    if 0 in dimensions:
        raise ModelRefusedError(
            f"{kind} {value.name!r} has a dimension of size 0, so there is nothing to send: export it without"
        )
    return Declared(value.name, dtype, dimensions)


def find_inputs(file: OnnxFile, shapes: Mapping[str, Shape]) -> Inputs:
    """The required inputs in the model's order, then those that have a value in the file. `shapes` settles what is
    open. Raises ModelRefusedError."""
    graph = file.model.graph
    initial = {tensor.name: tensor for tensor in graph.initializer}
    sparse = {tensor.values.name for tensor in graph.sparse_initializer}
    required = [declared(value, "input") for value in graph.input if value.name not in initial.keys() | sparse]
    settled = settle_inputs(required, shapes)
    # Before IR version 4 every initializer had to be listed as an input; the runtime takes them as constants.
    overridable = [value for value in graph.input if value.name in initial and file.model.ir_version >= 4]
    optional = [_optional(declared(value, "input"), initial[value.name], file.path.parent) for value in overridable]
    return Inputs((*settled.tensors, *optional), settled.rows_fixed)


def settle_inputs(required: list[Declared], shapes: Mapping[str, Shape]) -> Inputs:
    """Inputs that must be given, in the order in which they are sent. `shapes` settles what is open. Raises
    ModelRefusedError."""
    _check_shapes(shapes, [tensor.name for tensor in required])
    settled = _settle(required, shapes)
    return Inputs(tuple(map(_spec, settled)), _rows_fixed(required, settled))


def find_precision(graph: onnx.GraphProto, default: np.dtype[np.generic]) -> str:
    """The element type that most of the weights have; `default` where there are none."""
    counts: dict[str, int] = {}
    for tensor in constants(graph):
        if tensor.data_type in PRECISIONS:
            name = PRECISIONS[tensor.data_type]
            counts[name] = counts.get(name, 0) + int(np.prod(tensor.dims, dtype=np.int64))
    return max(counts, key=lambda name: counts[name], default=default.name)


_ZIPMAP: Final = "for a scikit-learn classifier convert with options={'zipmap': False}, else export tensors instead"
_STRINGS: Final = "encode text outside the model and export it with integer inputs"
_REEXPORT: Final = "export the model with tensors instead"
_ADVICE: Final[Mapping[str | None, str]] = {"sequence_type": _ZIPMAP, "map_type": _ZIPMAP}


def _form(form: str | None) -> str:
    name = (form or "untyped").removesuffix("_type").replace("_", " ")
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name} value"


def _dimension(dimension: onnx.TensorShapeProto.Dimension) -> Dimension:
    if dimension.WhichOneof("value") == "dim_value" and dimension.dim_value >= 0:
        return int(dimension.dim_value)
    # Exporters write an unknown size as nothing, as -1 or as "?".
    return Open("" if dimension.dim_param == "?" else dimension.dim_param)


def _check_shapes(shapes: Mapping[str, Shape], names: list[str]) -> None:
    for name, shape in shapes.items():
        if name not in names:
            raise ModelRefusedError(
                f"a shape is given for {name!r}; the inputs it can be given for are {', '.join(names) or 'none'}"
            )
        if any(size != ROWS and size < 1 for size in shape):
            raise ModelRefusedError(f"{_given(name, shape)}: sizes are 1 or more, or N for the batch axis")


def _settle(tensors: list[Declared], shapes: Mapping[str, Shape]) -> list[Declared]:
    """The tensors with every dimension settled. Raises ModelRefusedError saying what would do it."""
    bound: dict[str, int | Literal["N"]] = {}
    for tensor in tensors:
        if tensor.name in shapes:
            bound |= _bindings(tensor, shapes[tensor.name])
    settled = [
        replace(tensor, dimensions=shapes[tensor.name]) if tensor.name in shapes else _substitute(tensor, bound)
        for tensor in tensors
    ]
    waiting = [_names(tensor) for tensor in settled if _open_axes(tensor) and ROWS not in (tensor.dimensions or ())]
    shared = set.intersection(*waiting) if waiting else set()
    settled = [_choose_batch_axis(tensor, shared) for tensor in settled]
    unsettled = [tensor for tensor in settled if tensor.dimensions is None or _open_axes(tensor)]
    if unsettled:
        raise ModelRefusedError(
            f"{'; '.join(map(_unsettled, unsettled))}: give all sizes, such as "
            f"{declaring({tensor.name: _example(tensor) for tensor in unsettled})}, where N is the batch axis and SIZE "
            "a number"
        )
    return settled


def _given(name: str, shape: Shape) -> str:
    return f"the shape {','.join(map(str, shape))} that is given for input {name!r}"


def _bindings(tensor: Declared, shape: Shape) -> dict[str, int | Literal["N"]]:
    """What a declared shape says of the input's named dimensions."""
    if tensor.dimensions is None:
        return {}
    if len(shape) != len(tensor.dimensions):
        raise ModelRefusedError(
            f"{_given(tensor.name, shape)} has {len(shape)} sizes, the model's input has {_text(tensor)}"
        )
    for size, dimension in zip(shape, tensor.dimensions, strict=True):
        if isinstance(dimension, int) and size not in (dimension, ROWS):
            raise ModelRefusedError(
                f"{_given(tensor.name, shape)} does not fit the model's input, which has {_text(tensor)}"
            )
    return {
        dimension.name: size
        for size, dimension in zip(shape, tensor.dimensions, strict=True)
        if isinstance(dimension, Open) and dimension.name
    }


def _substitute(tensor: Declared, bound: Mapping[str, int | Literal["N"]]) -> Declared:
    if tensor.dimensions is None:
        return tensor
    dimensions = tuple(
        bound.get(dimension.name, dimension) if isinstance(dimension, Open) else dimension
        for dimension in tensor.dimensions
    )
    return replace(tensor, dimensions=dimensions)


def _choose_batch_axis(tensor: Declared, shared: set[str]) -> Declared:
    axes = _open_axes(tensor)
    dimensions = tensor.dimensions or ()
    if not axes or ROWS in dimensions:
        return tensor
    axis = next((axis for axis in axes if dimensions[axis] in {Open(name) for name in shared}), axes[0])
    if axis != 0 and dimensions[axis] not in {Open(name) for name in shared}:
        return tensor
    return replace(tensor, dimensions=(*dimensions[:axis], "N", *dimensions[axis + 1 :]))


def _open_axes(tensor: Declared) -> list[int]:
    return [axis for axis, dimension in enumerate(tensor.dimensions or ()) if isinstance(dimension, Open)]


def _names(tensor: Declared) -> set[str]:
    return {dimension.name for dimension in tensor.dimensions or () if isinstance(dimension, Open) and dimension.name}


def _text(tensor: Declared) -> str:
    return (
        f"[{','.join((size.name or '?') if isinstance(size, Open) else str(size) for size in tensor.dimensions or ())}]"
    )


def _unsettled(tensor: Declared) -> str:
    if tensor.dimensions is None:
        return f"input {tensor.name!r} has no shape in the file"
    return f"input {tensor.name!r} has open dimensions {_text(tensor)}"


def _example(tensor: Declared) -> list[object]:
    """Its sizes, as they could be."""
    if tensor.dimensions is None:
        return [ROWS, "SIZE"]
    sizes: list[object] = ["SIZE" if isinstance(size, Open) else size for size in tensor.dimensions]
    if ROWS not in tensor.dimensions:
        sizes[sizes.index("SIZE")] = ROWS
    return sizes


def _rows_fixed(required: list[Declared], settled: list[Declared]) -> int | None:
    """The batch size where N was declared on an axis that the model fixes."""
    sizes = {
        before: tensor.name
        for tensor, after in zip(required, settled, strict=True)
        for before, size in zip(tensor.dimensions or (), after.dimensions or (), strict=False)
        if size == ROWS and isinstance(before, int)
    }
    if len(sizes) > 1:
        text = ", ".join(f"{size} in {name!r}" for size, name in sizes.items())
        raise ModelRefusedError(f"the batch axis N has different sizes, {text}: declare N only where they are the same")
    return next(iter(sizes), None)


def _spec(tensor: Declared) -> TensorSpec:
    dimensions = tensor.dimensions or ()
    if dimensions.count(ROWS) > 1:
        raise ModelRefusedError(
            f"input {tensor.name!r} has the batch axis twice, {_text(tensor)}: declare one of them with its size"
        )
    shape = tuple(size if isinstance(size, int) else 1 for size in dimensions)
    return TensorSpec(tensor.name, tensor.dtype, shape, dimensions.index(ROWS) if ROWS in dimensions else None)


def _optional(tensor: Declared, initial: onnx.TensorProto, folder: Path) -> TensorSpec:
    default = onnx.numpy_helper.to_array(initial, str(folder)).copy(order="C")
    if 0 in default.shape:
        raise ModelRefusedError(
            f"input {tensor.name!r} has a dimension of size 0, so there is nothing to send: export it without"
        )
    default.setflags(write=False)
    return TensorSpec(tensor.name, tensor.dtype, default.shape, None, default)
