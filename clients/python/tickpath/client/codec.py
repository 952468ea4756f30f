"""A model's arrays to the bytes of an Infer and back. Pure: no sockets, no clock.

Rules
- `inputs` is one array (a model with one input, or with one that is not optional), a list or tuple in the model's
  order, or a mapping by name. An optional input may be left out, or be None. Whatever is no array goes through
  `np.asarray`, and must then have the very dtype: a list of floats fits a float64 input and no other.
- Nothing is cast. Memory order and byte order do not matter: C order and little-endian is what is sent.
- The combinations of shapes that were found to fit are remembered, so that a request costs one look-up. There are as
  many as the model takes rows (times the ways to leave optional inputs out), so they stay few.
"""

from collections.abc import Mapping, Sequence
from operator import index
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tickpath.client.errors import BadShapeError, ProtocolError
from tickpath.client.prediction import Prediction
from tickpath.client.tensors import Tensor
from tickpath.wire import Code, Flag, ModelInfo, RemoteProtocolError, Result

Inputs: TypeAlias = "npt.ArrayLike | Sequence[object] | Mapping[str, object]"


class Layout:
    """What a model's outputs look like when a request has `rows` rows."""

    __slots__ = ("_outputs", "_where", "rows")

    def __init__(self, model: str, outputs: Sequence[Tensor], rows: int) -> None:
        self.rows = rows
        self._where = f"model {model!r} at {rows} rows"
        self._outputs = [
            (tensor.name, tensor.info.shape_at(rows), tensor.dtype, tensor.info.bytes_at(rows)) for tensor in outputs
        ]

    def read(self, result: Result) -> Prediction:
        """The reply's outputs as arrays of their own memory. Raises RemoteProtocolError where its bytes do not fit."""
        outputs = {}
        if len(result.outputs) != len(self._outputs):
            raise self._unfit(result)
        for (name, shape, dtype, byte_count), data in zip(self._outputs, result.outputs, strict=True):
            if data.nbytes != byte_count:
                raise self._unfit(result)
            # Copied, since the receive buffer is used again; a bytearray's memory is aligned and may be written to.
            outputs[name] = np.ndarray(shape, dtype, bytearray(data))
        if result.flags or result.age_ns:
            return Prediction(outputs, result.version, result.stamps, Flag(result.flags), result.age_ns)
        return Prediction(outputs, result.version, result.stamps)

    def _unfit(self, result: Result) -> RemoteProtocolError:
        expected = ", ".join(f"{name}: {byte_count}" for name, _, _, byte_count in self._outputs)
        came = ", ".join(str(data.nbytes) for data in result.outputs)
        return RemoteProtocolError(
            Code.BAD_MESSAGE, f"{self._where}: expected outputs of these bytes: {expected}; got {came}"
        )


class Codec:
    """One model on one connection. Raises ProtocolError where the server's description of it makes no sense."""

    def __init__(self, info: ModelInfo) -> None:
        self.info = info
        self._inputs = [Tensor(info.name, tensor) for tensor in info.inputs]
        self._outputs = [Tensor(info.name, tensor) for tensor in info.outputs]
        self._places = {tensor.name: place for place, tensor in enumerate(self._inputs)}
        output_names = {tensor.name for tensor in self._outputs}
        if len(self._places) < len(self._inputs) or len(output_names) < len(self._outputs) or not info.buckets:
            raise ProtocolError(f"model {info.name!r}: the server describes it with a name twice, or without buckets")
        required = [place for place, tensor in enumerate(self._inputs) if not tensor.optional]
        self._only_place = required[0] if len(required) == 1 else 0 if len(self._inputs) == 1 else None
        self._single = self._inputs[0] if len(self._inputs) == 1 else None
        self._layouts: dict[tuple[tuple[int, ...] | None, ...], Layout] = {}

    def pack(self, inputs: Inputs, rows: int | None) -> tuple[list[memoryview | None], Layout]:
        """The inputs' bytes in the model's order, and how to read the answer. `rows`: None takes them from the inputs.
        Raises BadShapeError, BadDtypeError, BadValueError."""
        if self._single is not None and type(inputs) is np.ndarray:
            return self._pack_single(self._single, inputs, rows)
        tensors = self._inputs
        values = self._in_order(inputs)
        arrays = [None if value is None else tensors[place].as_array(value) for place, value in enumerate(values)]
        layout = self._layout(tuple([None if array is None else array.shape for array in arrays]), rows)
        return [None if array is None else tensors[place].as_bytes(array) for place, array in enumerate(arrays)], layout

    def _pack_single(self, tensor: Tensor, value: object, rows: int | None) -> tuple[list[memoryview | None], Layout]:
        """One array for one input: most requests are so, and it takes under half the time of the general way."""
        array = tensor.as_array(value)
        layout = self._layout((array.shape,), rows)
        return [tensor.as_bytes(array)], layout

    def _in_order(self, inputs: Inputs) -> Sequence[object]:
        if isinstance(inputs, np.ndarray):
            return self._alone(inputs)
        if isinstance(inputs, Mapping):
            return self._by_name(inputs)
        if isinstance(inputs, list | tuple):
            return self._by_place(inputs)
        return self._alone(inputs)

    def _alone(self, value: object) -> Sequence[object]:
        if self._only_place is None:
            raise BadShapeError(f"{self._takes()}; one array came: give a list in this order, or a dict by name")
        if len(self._inputs) == 1:
            return (value,)
        return [value if place == self._only_place else None for place in range(len(self._inputs))]

    def _by_name(self, inputs: Mapping[str, object]) -> Sequence[object]:
        values = [inputs.get(name) for name in self._places]
        unexpected = [repr(name) for name in inputs if name not in self._places]
        missing = self._missing(values)
        if unexpected or missing:
            faults = [f"missing: {', '.join(missing)}"] * bool(missing) + [
                f"unexpected: {', '.join(unexpected)}"
            ] * bool(unexpected)
            raise BadShapeError(f"{self._takes()}; {'; '.join(faults)}")
        return values

    def _by_place(self, inputs: Sequence[object]) -> Sequence[object]:
        values = [*inputs, *[None] * (len(self._inputs) - len(inputs))]
        if len(values) > len(self._inputs):
            raise BadShapeError(
                f"{self._takes()}; a list of {len(inputs)} came; to give one array, make it one: np.asarray(x)"
            )
        if missing := self._missing(values):
            raise BadShapeError(f"{self._takes()}; missing: {', '.join(missing)}")
        return values

    def _missing(self, values: Sequence[object]) -> list[str]:
        return [
            repr(tensor.name)
            for tensor, value in zip(self._inputs, values, strict=True)
            if value is None and not tensor.optional
        ]

    def _takes(self) -> str:
        inputs = ", ".join(
            f"{tensor.name}: {tensor.info.describe()}{' (optional)' * tensor.optional}" for tensor in self._inputs
        )
        return f"model {self.info.name!r} takes {inputs or 'no inputs'}"

    def _layout(self, shapes: tuple[tuple[int, ...] | None, ...], rows: int | None) -> Layout:
        layout = self._layouts.get(shapes)
        if layout is None or (rows is not None and rows != layout.rows):
            return self._new_layout(shapes, None if rows is None else index(rows))
        return layout

    def _new_layout(self, shapes: tuple[tuple[int, ...] | None, ...], rows: int | None) -> Layout:
        """Checks shapes that were not seen before, or explicit rows."""
        rows_by_name = {
            tensor.name: found
            for tensor, shape in zip(self._inputs, shapes, strict=True)
            if shape is not None and (found := tensor.rows_of(shape)) is not None
        }
        found_rows = self._agreed(rows_by_name, rows)
        rows_max = self.info.buckets[-1]
        if not 1 <= found_rows <= rows_max:
            raise BadShapeError(self._bad_rows(found_rows, rows_max))
        layout = Layout(self.info.name, self._outputs, found_rows)
        if rows_by_name:
            self._layouts[shapes] = layout
        return layout

    def _bad_rows(self, rows: int, rows_max: int) -> str:
        if rows_max == 1:
            return f"model {self.info.name!r} takes one row in a request, got {rows}: send each row alone"
        advice = ": split the request, or serve a larger bucket" if rows > rows_max else ""
        return f"model {self.info.name!r} takes 1 to {rows_max} rows in a request, got {rows}{advice}"

    def _agreed(self, rows_by_name: Mapping[str, int], rows: int | None) -> int:
        different = {*rows_by_name.values(), *(() if rows is None else (rows,))}
        if len(different) > 1:
            told = ", ".join(f"{name}: {found}" for name, found in rows_by_name.items())
            asked = "" if rows is None else f" and rows={rows} was asked"
            raise BadShapeError(f"model {self.info.name!r}: all inputs have the same number of rows, got {told}{asked}")
        return different.pop() if different else 1
