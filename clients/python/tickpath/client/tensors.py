"""One input or output of a model, as arrays see it. Pure: what fits, and in which words it is said."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tickpath.client.errors import BadDtypeError, BadShapeError, BadValueError, ProtocolError
from tickpath.wire import ITEM_BYTES, TensorInfo

# The wire is little-endian whatever this machine is; on a little-endian one these equal numpy's own.
_DTYPES: Final = {name: np.dtype(np.dtype(name).newbyteorder("<").str) for name in ITEM_BYTES}


def _describe_array(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    return f"{dtype.name}[{','.join(map(str, shape))}]"


class Tensor:
    """A TensorInfo that was checked. `model` names its model in messages. Raises ProtocolError where the server's
    description makes no sense to this client."""

    __slots__ = ("batch_axis", "dtype", "info", "name", "optional", "shape", "where")

    def __init__(self, model: str, info: TensorInfo) -> None:
        self.where = f"model {model!r}, tensor {info.name!r}"
        if info.dtype not in _DTYPES:
            raise ProtocolError(f"{self.where}: dtype {info.dtype!r} is not known to this client; use a newer one")
        batch_axis_fits = info.batch_axis == -1 or (
            0 <= info.batch_axis < len(info.shape) and info.shape[info.batch_axis] > 0
        )
        if not batch_axis_fits or any(size < 0 for size in info.shape):
            raise ProtocolError(
                f"{self.where}: the server describes it as shape {info.shape}, batch axis {info.batch_axis}"
            )
        self.info = info
        self.name = info.name
        self.dtype = _DTYPES[info.dtype]
        self.shape = info.shape
        self.batch_axis = info.batch_axis
        self.optional = info.optional

    def as_array(self, value: object) -> npt.NDArray[Any]:
        """The value as an array of this tensor's dtype, in any memory order. Never converts: raises BadDtypeError."""
        array = value if type(value) is np.ndarray else self._made_array(value)
        if array.dtype != self.dtype and array.dtype.newbyteorder("<") != self.dtype:
            raise BadDtypeError(self._bad_dtype(array.dtype))
        return array

    def as_bytes(self, array: npt.NDArray[Any]) -> memoryview:
        """The array's bytes as they travel: C order, little-endian. No copy where it lies so already."""
        if array.dtype != self.dtype or not array.flags.c_contiguous:
            array = np.ascontiguousarray(array, self.dtype)
        return array.data

    def _made_array(self, value: object) -> npt.NDArray[Any]:
        if isinstance(value, np.ndarray) and isinstance(value, np.ma.MaskedArray):
            raise BadValueError(
                f"{self.where}: expected an array, got a masked one; say what its gaps are: x.filled(...)"
            )
        try:
            return np.asarray(value)
        except (ValueError, TypeError) as error:
            raise BadValueError(f"{self.where}: expected an array, got {type(value).__name__}: {error}") from None

    def _bad_dtype(self, dtype: np.dtype[Any]) -> str:
        return (
            f"{self.where}: expected {self.dtype.name}, got {dtype.name}; nothing is cast silently, "
            f"so convert it where you make it: np.asarray(x, dtype={self.dtype.name!r})"
        )

    def rows_of(self, shape: tuple[int, ...]) -> int | None:
        """How many rows an array of this shape has; None where there is no batch axis to tell. Raises BadShapeError."""
        axis = self.batch_axis
        if axis < 0:
            if shape != self.shape:
                raise BadShapeError(self._bad_shape(shape))
            return None
        rows, rest = divmod(shape[axis], self.shape[axis]) if len(shape) == len(self.shape) else (0, 0)
        if rows == 0 or rest or shape != self.info.shape_at(rows):
            raise BadShapeError(self._bad_shape(shape))
        return rows

    def _bad_shape(self, shape: tuple[int, ...]) -> str:
        text = f"{self.where}: expected {self.info.describe()}, got {_describe_array(self.dtype, shape)}"
        axis = self.batch_axis
        if axis >= 0 and self.shape[axis] == 1 and shape == self.shape[:axis] + self.shape[axis + 1 :]:
            return f"{text}; one row has its batch axis too: np.expand_dims(x, {axis})"
        if 0 in shape and 0 not in self.shape:
            return f"{text}; a request has at least one row"
        return text
