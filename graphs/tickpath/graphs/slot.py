"""A slot: the buffers of one request in flight and the graph bound to them.

Rules
- Buffers and graph are made once and never change place, shape or size.
- `fill`, `replay`, `read` in that order, by the one thread that owns the slot; on a device, in place of `replay`,
  `graph.launch` and `graph.done` until it is true.
- What `read` returns are views of the slot's own memory: they hold until the next `fill`, so whoever keeps them copies.
- Rows past the request's own are zero at every replay: an answer never depends on who came before. What the model
  makes of those zeros is nobody's, so outputs are checked in the request's own rows alone.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from tickpath.engines import Array, Engine, TensorSpec
from tickpath.graphs.device import DeviceGraph
from tickpath.graphs.pinned import PinnedArena
from tickpath.graphs.values import (
    Bounds,
    Check,
    OutputRules,
    bounds_check,
    can_be_non_finite,
    can_be_outside,
    finite_check,
    input_check,
)

NO_RULES: Final = OutputRules()


class _Tensor:
    """One input or output of a slot, as bytes on one side and as an array on the other."""

    __slots__ = ("array", "contiguous", "flat", "row_bytes", "row_size", "spec", "view")

    def __init__(self, spec: TensorSpec, array: Array, view: memoryview) -> None:
        self.spec = spec
        self.array = array
        self.flat = array.reshape(-1)
        self.row_bytes = spec.row_bytes
        self.row_size = spec.row_bytes // spec.dtype.itemsize
        self.view = view
        # Rows lie one behind the other when nothing but ones stands before the batch axis.
        self.contiguous = spec.batch_axis is None or all(size == 1 for size in spec.shape[: spec.batch_axis])

    def rows(self, start: int, stop: int) -> Array:
        """The rows from `start` to before `stop` of a tensor with a batch axis."""
        axis = self.spec.batch_axis
        assert axis is not None
        places = self.spec.shape[axis]
        return self.array[(slice(None),) * axis + (slice(start * places, stop * places),)]

    def put(self, start: int, rows: int, data: memoryview | bytes) -> None:
        """Copy so many rows in, from row `start` on."""
        if self.contiguous:
            first = start * self.row_bytes
            self.view[first : first + len(data)] = data
        else:
            shape = self.spec.shape_at(rows)
            self.rows(start, start + rows)[...] = np.frombuffer(data, self.spec.dtype).reshape(shape)

    def get(self, start: int, rows: int) -> memoryview:
        """So many rows from row `start` on, as raw bytes in C order: of all, where there is no batch axis."""
        if self.spec.batch_axis is None:
            return self.view
        if self.contiguous:
            return self.view[start * self.row_bytes : (start + rows) * self.row_bytes]
        return memoryview(self.rows(start, start + rows).tobytes())

    def elements(self, rows: int) -> Array:
        """The elements of the first `rows` rows, in one dimension: of all, where there is no batch axis. A view, unless
        these are some rows of a tensor that is not contiguous."""
        if self.spec.batch_axis is None:
            return self.flat
        return self.flat[: rows * self.row_size] if self.contiguous else self.rows(0, rows).reshape(-1)


class _CheckedOutput:
    """What one output is checked for."""

    def __init__(self, tensor: _Tensor, rules: OutputRules) -> None:
        self.name = tensor.spec.name
        self._tensor = tensor
        self._bounds = rules.bounds.get(self.name, Bounds()).rounded_to(tensor.spec.dtype)
        self._is_bounded = can_be_outside(tensor.flat, self._bounds)
        self._zeros = np.zeros_like(tensor.flat) if rules.finite and can_be_non_finite(tensor.flat) else None

    def is_non_finite(self, rows: int) -> Check | None:
        """The check of so many of its rows for NaN and infinities. None: there can be none, or may be."""
        if self._zeros is None:
            return None
        values = self._tensor.elements(rows)
        return finite_check(values, self._zeros[: values.size])

    def is_outside(self, rows: int) -> Check | None:
        """The check of so many of its rows for values out of bounds. None: there can be none, or may be."""
        return bounds_check(self._tensor.elements(rows), self._bounds) if self._is_bounded else None

    def checks(self, rows: int) -> list[Check]:
        """All that is needed to know whether so many of its rows are good."""
        finite = None if self._is_bounded and self._bounds.shut_out_infinity else self.is_non_finite(rows)
        return [check for check in (finite, self.is_outside(rows)) if check is not None]


class Slot:
    """Buffers and graph for one bucket of one model; `rules`: what its outputs are checked for."""

    def __init__(self, engine: Engine, bucket: int, rules: OutputRules = NO_RULES) -> None:
        spec = engine.spec
        tensors = (*spec.inputs, *spec.outputs)
        arena = PinnedArena([tensor.bytes_at(bucket) for tensor in tensors])
        made = [
            _Tensor(tensor, arena.array(i, tensor.dtype, tensor.shape_at(bucket)), arena.view(i))
            for i, tensor in enumerate(tensors)
        ]
        self.bucket = bucket
        self._inputs = made[: len(spec.inputs)]
        self._outputs = made[len(spec.inputs) :]
        self._input_views = [tensor.view for tensor in self._inputs]
        self._output_views = [tensor.view for tensor in self._outputs]
        self._defaults = [_raw(tensor.default) for tensor in spec.inputs]
        self._used_rows = 0  # rows that may hold something else than zeros
        for tensor, default in zip(self._inputs, self._defaults, strict=True):
            if tensor.spec.optional:
                tensor.view[:] = default
        checks = [(tensor.spec.name, input_check(tensor.flat)) for tensor in self._inputs]
        # An optional input is not checked where its own default, which it holds now, would not pass.
        self._checks = [(name, check) for name, check in checks if check is not None and check() == 0]
        self._checked = [_CheckedOutput(tensor, rules) for tensor in self._outputs]
        # By rows: those of padded requests are made as they come, and are as few as the rows of a bucket.
        self._checks_at: dict[int, list[Check]] = {}
        self.graph = engine.capture([t.array for t in self._inputs], [t.array for t in self._outputs])
        self.replay: Callable[[], None] = self.graph.replay
        # What a device copies from and to, its driver has pinned, whatever the limit on locked memory.
        self.locked = arena.locked or isinstance(self.graph, DeviceGraph)

    def close(self) -> None:
        """Give back what it holds on a device; on the host that goes with the slot. Nothing may run in it any more."""
        if isinstance(self.graph, DeviceGraph):
            self.graph.close()

    def fill(self, rows: int, inputs: Sequence[memoryview | bytes | None]) -> None:
        """Copy a request's inputs in, with zeros in the rows behind them. Admission has checked the byte counts; None
        stands for an optional input."""
        if rows != self.bucket:
            self._fill_some_rows(rows, inputs)
            return
        for index, data in enumerate(inputs):
            self._input_views[index][:] = self._defaults[index] if data is None else data
        self._used_rows = rows

    def fill_together(self, requests: Sequence[tuple[int, Sequence[memoryview | bytes | None]]]) -> int:
        """Copy the inputs of several requests in, rows behind rows, with zeros behind them. Their optional inputs are
        None. Returns how many rows they are together."""
        start = 0
        for rows, inputs in requests:
            self._put_rows(start, rows, inputs)
            start += rows
        self._clear_rows(start)
        return start

    def _fill_some_rows(self, rows: int, inputs: Sequence[memoryview | bytes | None]) -> None:
        self._put_rows(0, rows, inputs)
        self._clear_rows(rows)

    def _put_rows(self, start: int, rows: int, inputs: Sequence[memoryview | bytes | None]) -> None:
        for tensor, data, default in zip(self._inputs, inputs, self._defaults, strict=True):
            if tensor.spec.batch_axis is None:
                tensor.view[:] = default if data is None else data
                continue
            assert data is not None, "an optional input has its default's shape, so no batch axis"
            tensor.put(start, rows, data)

    def _clear_rows(self, start: int) -> None:
        """Zeros from row `start` on."""
        if start < self._used_rows:
            for tensor in self._inputs:
                if tensor.spec.batch_axis is not None:
                    tensor.rows(start, self._used_rows)[...] = 0
        self._used_rows = start

    def bad_value(self) -> str | None:
        """The name of the first input that holds what its dtype should not: a NaN, an infinity, a bool that is
        neither 0 nor 1."""
        for name, check in self._checks:
            if check():
                return name
        return None

    def has_bad_output(self, rows: int) -> bool:
        """Whether an output breaks a rule in the request's own rows."""
        if (checks := self._checks_at.get(rows)) is None:
            checks = self._output_checks(rows)
        for check in checks:  # noqa: SIM110 - a generator would cost as much as a check
            if check():
                return True
        return False

    def _output_checks(self, rows: int) -> list[Check]:
        checks = [check for output in self._checked for check in output.checks(rows)]
        # Where rows do not lie one behind the other, those of some are copies, which hold for this request alone.
        if rows == self.bucket or all(tensor.contiguous for tensor in self._outputs):
            self._checks_at[rows] = checks
        return checks

    def non_finite_output(self, rows: int) -> str | None:
        """The name of the first output that is to be finite, and is not in the request's own rows."""
        checks = ((output.name, output.is_non_finite(rows)) for output in self._checked)
        return next((name for name, check in checks if check is not None and check()), None)

    def output_outside(self, rows: int) -> str | None:
        """The name of the first output that is not within its bounds in the request's own rows."""
        checks = ((output.name, output.is_outside(rows)) for output in self._checked)
        return next((name for name, check in checks if check is not None and check()), None)

    def read(self, rows: int) -> list[memoryview]:
        """The outputs of the request's own rows, as raw bytes in C order."""
        return self._output_views if rows == self.bucket else self.read_from(0, rows)

    def read_from(self, start: int, rows: int) -> list[memoryview]:
        """The outputs of so many rows from row `start` on."""
        return [tensor.get(start, rows) for tensor in self._outputs]


def _raw(default: Array | None) -> bytes:
    return b"" if default is None else default.tobytes()
