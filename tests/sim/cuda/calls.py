"""Raw calls of the CUDA driver: results unpacked, errors raised, and a bench of things that one test needs."""

import ctypes
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, Self

import numpy as np
import numpy.typing as npt
from cuda.bindings import driver

FLOAT_BYTES: Final = 4
NON_BLOCKING: Final = driver.CUstream_flags.CU_STREAM_NON_BLOCKING.value
THREAD_LOCAL: Final = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL

Floats = npt.NDArray[np.float32]


class DriverError(Exception):
    """A call of the driver that did not return CUDA_SUCCESS."""

    def __init__(self, code: driver.CUresult) -> None:
        super().__init__(code.name)
        self.code = code


def check(result: tuple[object, ...]) -> None:
    """Raise DriverError unless the call succeeded."""
    code = result[0]
    assert isinstance(code, driver.CUresult)
    if code != driver.CUresult.CUDA_SUCCESS:
        raise DriverError(code)


def check_value(result: tuple[object, ...]) -> int:
    """The one handle or address that the call returned, as a number. Raises DriverError."""
    check(result)
    value = result[1]
    assert hasattr(value, "__int__")
    return int(value)


def code_of(result: tuple[object, ...]) -> str:
    """The name of the code that a call returned, without its CUDA_ERROR_."""
    code = result[0]
    assert isinstance(code, driver.CUresult)
    return str(code.name).removeprefix("CUDA_ERROR_")


class Bench:
    """The primary context, current in this thread, and what is made in it. `close` gives all back, the last first.

    A thing can be given back before: what the bench then does for it is nothing.
    """

    def __init__(self) -> None:
        check(driver.cuInit(0))
        self._things = ExitStack()
        context = check_value(driver.cuDevicePrimaryCtxRetain(0))
        self._things.callback(lambda: check(driver.cuDevicePrimaryCtxRelease(0)))
        self.context = context
        self.enter()
        self._open: dict[int, Callable[[], tuple[object, ...]]] = {}
        self._things.callback(self._close_open)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def enter(self) -> None:
        """Make the context current in the calling thread."""
        check(driver.cuCtxSetCurrent(self.context))

    def stream(self, flags: int = NON_BLOCKING) -> int:
        """A new stream."""
        return self._keep(driver.cuStreamCreate(flags), driver.cuStreamDestroy)

    def event(self) -> int:
        """A new event, without timing."""
        flags = driver.CUevent_flags.CU_EVENT_DISABLE_TIMING.value
        return self._keep(driver.cuEventCreate(flags), driver.cuEventDestroy)

    def device(self, count: int) -> int:
        """The address of device memory for that many float32."""
        return self._keep(driver.cuMemAlloc(count * FLOAT_BYTES), driver.cuMemFree)

    def pinned(self, count: int) -> Floats:
        """Pinned host memory for that many float32. Not to be used once it is given back."""
        address = self._keep(driver.cuMemHostAlloc(count * FLOAT_BYTES, 0), driver.cuMemFreeHost)
        return np.ctypeslib.as_array((ctypes.c_float * count).from_address(address))

    def graph(self, stream: int) -> int:
        """End the stream's capture: its graph."""
        return self._keep(driver.cuStreamEndCapture(stream), driver.cuGraphDestroy)

    def exec(self, graph: int) -> int:
        """The graph made executable."""
        return self._keep(driver.cuGraphInstantiate(graph, 0), driver.cuGraphExecDestroy)

    def give_back(self, thing: int) -> None:
        """Destroy or free one thing now."""
        check(self._open.pop(thing)())

    def forget(self, thing: int) -> None:
        """Leak one thing."""
        del self._open[thing]

    def close(self) -> None:
        """Give back all that is left. Raises DriverError, after it has tried everything."""
        self._things.close()

    def _keep(self, result: tuple[object, ...], destroy: Callable[[int], tuple[object, ...]]) -> int:
        thing = check_value(result)
        self._open[thing] = lambda: destroy(thing)
        return thing

    def _close_open(self) -> None:
        results = [self._open.pop(thing)() for thing in reversed(list(self._open))]
        for result in results:
            check(result)


def address_of(array: Floats) -> int:
    """Where a host array starts."""
    return int(array.ctypes.data)
