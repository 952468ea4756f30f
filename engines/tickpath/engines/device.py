"""What runs a model on a CUDA device. The engine brings execution contexts; `graphs.cuda` brings the memory, streams
and graphs around them, and makes an `Engine` of the two. They meet in addresses and stream handles, so neither side
needs the other's library.
"""

import ctypes
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from tickpath.engines.spec import Array, EngineSpec


class ExecutionContext(Protocol):
    """A model ready to run at one bucket. It serves one graph, and that graph alone, for ever."""

    def bind(self, addresses: Sequence[int]) -> None:
        """Where the inputs and then the outputs lie, in the order of the spec: device addresses, aligned to 256 bytes.
        Called once, before the first `enqueue`; they hold until `close`."""
        ...

    def enqueue(self, stream: int) -> bool:
        """Put one run onto a stream (the handle of a CUstream) and come back without waiting for it. False: the runtime
        refused. The device's primary context is current.

        The first call is a plain one, so that what is allocated lazily is there; a later one is captured, and while the
        stream captures nothing may synchronise or allocate from the driver.
        """
        ...

    def close(self) -> None:
        """Give back what the context holds. Nothing of it is in flight any more."""
        ...


@runtime_checkable
class DeviceEngine(Protocol):
    """A model loaded on the CUDA device that this process sees as its first (CUDA_VISIBLE_DEVICES says which)."""

    @property
    def spec(self) -> EngineSpec: ...

    def context(self, rows: int) -> ExecutionContext:
        """A new execution context for the bucket of so many rows. Raises EngineFailedError."""
        ...

    def sample(self, rows: int) -> Sequence[Array]:
        """As `Engine.sample`."""
        ...

    def close(self) -> None:
        """Give back the runtime's memory. All contexts are closed."""
        ...


def has_device() -> bool:
    """Whether there is a CUDA device, and a driver for it."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
