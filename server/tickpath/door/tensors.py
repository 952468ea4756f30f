"""The protocol's tensors to numpy's arrays and back: names of datatypes, raw bytes, plain numbers. Pure.

Nothing is cast on the way: whether a model takes an array is for the client inside to say, in its words.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tickpath.client import BadDtypeError, BadShapeError, BadValueError

Array: TypeAlias = npt.NDArray[Any]

# numpy's 64 axes; a model has fewer.
AXES_MAX: Final = 64
# Numbers of one tensor: more than any frame holds, few enough for numpy's own arithmetic.
COUNT_MAX: Final = 2**40

_NAMES: Final = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
}
# Tensors travel little-endian here as on the wire.
_DTYPES: Final = {name: np.dtype(dtype).newbyteorder("<") for dtype, name in _NAMES.items()}


def datatype_name(dtype: str) -> str:
    """`float32` -> `FP32`."""
    return _NAMES[dtype]


def dtype_of(tensor: str, datatype: str) -> np.dtype[Any]:
    """`FP32` -> float32. Raises BadDtypeError."""
    dtype = _DTYPES.get(datatype)
    if dtype is None:
        raise BadDtypeError(f"input {tensor!r}: expected a datatype of {', '.join(_DTYPES)}, got {datatype!r}")
    return dtype


def from_bytes(tensor: str, datatype: str, shape: Sequence[int], data: bytes | memoryview) -> Array:
    """Raw little-endian bytes in C order, as an array that reads them where they lie. Raises BadDtypeError,
    BadShapeError."""
    dtype = dtype_of(tensor, datatype)
    expected, got = _count(tensor, shape) * dtype.itemsize, memoryview(data).nbytes
    if expected != got:
        raise BadShapeError(f"input {tensor!r}: {datatype}{_told(shape)} is {expected} bytes, {got} came")
    return np.frombuffer(data, dtype).reshape(shape)


def from_numbers(tensor: str, datatype: str, shape: Sequence[int], data: object) -> Array:
    """Plain numbers in a flat or nested list; null is NaN. Raises BadDtypeError, BadShapeError, BadValueError."""
    dtype = dtype_of(tensor, datatype)
    array = _array(tensor, datatype, dtype, data)
    if array.size != _count(tensor, shape):
        raise BadShapeError(
            f"input {tensor!r}: {datatype}{_told(shape)} is {_count(tensor, shape)} numbers, {array.size} came"
        )
    return array.reshape(shape)


def to_numbers(array: Array) -> list[Any]:
    """A flat list in C order; msgspec writes what is not finite as null."""
    numbers: list[Any] = array.ravel().tolist()
    return numbers


def _array(tensor: str, datatype: str, dtype: np.dtype[Any], data: object) -> Array:
    array = _regular(tensor, dtype, data)
    if array.size == 0:
        return array.astype(dtype)
    if not _fits_kind(array, dtype):
        raise BadDtypeError(f"input {tensor!r}: expected {_KINDS[dtype.kind]} for {datatype}, data has other values")
    with np.errstate(over="ignore"):  # a float that is too large becomes an infinity: the model has its policy on those
        try:
            cast = array.astype(dtype)
        except OverflowError:
            cast = None
    if cast is None or (dtype.kind in "iu" and not (cast == array).all()):
        raise BadValueError(f"input {tensor!r}: a number is outside what {datatype} holds")
    return cast


def _regular(tensor: str, dtype: np.dtype[Any], data: object) -> Array:
    if not isinstance(data, list):
        raise BadShapeError(f"input {tensor!r}: expected a list of numbers, got {type(data).__name__}")
    try:
        array = np.asarray(data)
        # numpy makes floats of whole numbers on both sides of 2^63, which loses their last digits.
        return np.asarray(data, object) if dtype.kind in "iu" and array.dtype.kind == "f" else array
    except (ValueError, OverflowError, RecursionError) as error:  # ragged, or nested without end
        raise BadShapeError(f"input {tensor!r}: data is no regular array: {str(error)[:100]}") from None


_KINDS: Final = {"b": "true and false", "i": "whole numbers", "u": "whole numbers", "f": "numbers"}


def _fits_kind(array: Array, dtype: np.dtype[Any]) -> bool:
    if array.dtype == object:  # null among the numbers, or a whole number of more than 64 bits
        kinds = {type(value) for value in array.ravel().tolist()}
        return kinds <= {int} or (dtype.kind == "f" and kinds <= {int, float, type(None)})
    return array.dtype.kind in {"b": "b", "i": "iu", "u": "iu", "f": "iuf"}[dtype.kind]


def _count(tensor: str, shape: Sequence[int]) -> int:
    if len(shape) > AXES_MAX or any(size < 0 for size in shape) or prod(max(size, 1) for size in shape) > COUNT_MAX:
        raise BadShapeError(
            f"input {tensor!r}: expected a shape of at most {AXES_MAX} sizes from 0, got {_told(shape)}"
        )
    return prod(shape)


def _told(shape: Sequence[int]) -> str:
    shown = ",".join(map(str, shape[:AXES_MAX]))
    return f"[{shown}{',...' if len(shape) > AXES_MAX else ''}]"
