"""Where a slot's tensors lie: in its pinned host memory and, unless that is mapped, in device memory that mirrors it.

The mirror has the arena's own layout, so that one copy brings all inputs and one fetches all outputs, and a tensor's
device address is its host address plus a constant. Mapped, the device works on host memory and nothing is copied.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from cuda.bindings import driver

from tickpath.engines import Array
from tickpath.graphs.cuda.device import Device
from tickpath.graphs.cuda.resources import PAGE_BYTES, make_memory, pin
from tickpath.graphs.device import Placement
from tickpath.graphs.pinned import TENSOR_ALIGNMENT_BYTES


class _Span(NamedTuple):
    """Host addresses from `start` to before `end`."""

    start: int
    end: int


class Buffers:
    """A slot's buffers, pinned and with their counterpart on the device. Raises ValueError unless all of them lie in
    one PinnedArena, the inputs before the outputs; CudaError."""

    def __init__(
        self,
        device: Device,
        stack: ExitStack,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        placement: Placement,
    ) -> None:
        self._device = device
        self._held = (*inputs, *outputs)  # the device has their addresses
        self._inputs, self._outputs = _span(inputs), _span(outputs)
        whole = _span(self._held)
        _check_one_arena(whole, self._inputs, self._outputs, self._held)
        self._copied = placement == "copied"
        first = whole.start // PAGE_BYTES * PAGE_BYTES
        self._shift = self._make(stack, first, whole) if whole.end > whole.start else 0

    def _make(self, stack: ExitStack, first: int, whole: _Span) -> int:
        """Pin the pages, and return what lies between host and device addresses."""
        page_bytes = -(-(whole.end - first) // PAGE_BYTES) * PAGE_BYTES
        mapped = pin(self._device, stack, first, page_bytes)
        if not self._copied:
            return mapped - first
        return make_memory(self._device, stack, whole.end - first) - first

    @property
    def addresses(self) -> list[int]:
        """The device addresses of the inputs and then the outputs."""
        return [array.ctypes.data + self._shift for array in self._held]

    def copy_in(self, stream: Any) -> None:
        """Put the copy of all inputs to the device onto a stream."""
        start, end = self._inputs
        if self._copied and end > start:
            self._device.call(driver.cuMemcpyHtoDAsync, start + self._shift, start, end - start, stream)

    def copy_out(self, stream: Any) -> None:
        """Put the copy of all outputs from the device onto a stream."""
        start, end = self._outputs
        if self._copied and end > start:
            self._device.call(driver.cuMemcpyDtoHAsync, start, start + self._shift, end - start, stream)

    def poison(self, stream: Any) -> None:
        """Overwrite what earlier copies have left on the device: who does not copy again then shows it."""
        for start, end in (self._inputs, self._outputs):
            if self._copied and end > start:
                self._device.call(driver.cuMemsetD8Async, start + self._shift, 0xA5, end - start, stream)


def _span(arrays: Sequence[Array]) -> _Span:
    """From the first byte of any to the last of any."""
    full = [array for array in arrays if array.nbytes]
    if not full:
        return _Span(0, 0)
    return _Span(min(array.ctypes.data for array in full), max(array.ctypes.data + array.nbytes for array in full))


def _check_one_arena(whole: _Span, inputs: _Span, outputs: _Span, arrays: Sequence[Array]) -> None:
    """What lies between the tensors is copied and pinned too, so it has to be ours."""
    bytes_max = sum(array.nbytes + TENSOR_ALIGNMENT_BYTES for array in arrays)
    apart = inputs.end <= outputs.start or inputs.start == inputs.end or outputs.start == outputs.end
    aligned = all(array.ctypes.data % TENSOR_ALIGNMENT_BYTES == 0 for array in arrays if array.nbytes)
    if whole.end - whole.start > bytes_max or not apart or not aligned:
        raise ValueError("the buffers of a slot on a device are to lie in one PinnedArena, inputs before outputs")
