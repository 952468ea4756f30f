"""Whether host buffers fit a model. Runtimes take addresses, so a buffer that is too small is written past its end."""

from collections.abc import Sequence

from tickpath.engines.spec import Array, EngineSpec, TensorSpec


def check_buffers(spec: EngineSpec, inputs: Sequence[Array], outputs: Sequence[Array]) -> int:
    """The rows that these buffers, in the order of `spec`, are made for. Raises ValueError unless each is C-contiguous
    and has the dtype and shape of its tensor at that many rows."""
    rows = _rows(spec, inputs)
    _check(spec.inputs, inputs, rows)
    _check(spec.outputs, outputs, rows)
    return rows


def _rows(spec: EngineSpec, inputs: Sequence[Array]) -> int:
    """At least one, since none ends the process in a recurrent operator."""
    rows = 1
    for tensor, array in zip(spec.inputs, inputs, strict=True):
        if tensor.batch_axis is not None and array.ndim == len(tensor.shape):
            rows = array.shape[tensor.batch_axis] // tensor.shape[tensor.batch_axis]
            break
    if rows < 1 or (spec.batched and rows != (spec.rows_fixed or rows)):
        raise ValueError(f"buffers of {rows} rows; this model runs on {spec.rows_fixed or 'one or more'}")
    return rows


def _check(tensors: Sequence[TensorSpec], arrays: Sequence[Array], rows: int) -> None:
    for tensor, array in zip(tensors, arrays, strict=True):
        shape = tensor.shape_at(rows)
        if array.dtype != tensor.dtype or array.shape != shape or not array.flags.c_contiguous:
            order = "C-contiguous" if array.flags.c_contiguous else "not C-contiguous"
            raise ValueError(
                f"the buffer of {tensor.name!r} is to be {tensor.dtype.name} {shape}, C-contiguous; "
                f"it is {array.dtype.name} {array.shape}, {order}"
            )
