"""An engine for the simulated driver: y = x @ w + b by a kernel of the driver's own, with a workspace that it allocates
at its first run, as runtimes do, and the ways in which runtimes fail."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from cuda.bindings import driver
from tests.sim.cuda.simulator import Region, Simulator

from tickpath.engines import Array, EngineSpec, TensorSpec

COLUMNS: Final = 5
ANSWERS: Final = 3
FLOAT: Final = 4  # bytes
PRIMARY: Final = 0

Fault = Callable[["StandInContext", bool], bool]
"""Given whether the stream captures: whether the context enqueues as it should. It may raise."""


def never(_context: "StandInContext", _capturing: bool) -> bool:
    """No fault."""
    return True


def refuse_capture(_context: "StandInContext", capturing: bool) -> bool:
    """A model that can't be captured: enqueue says so by returning False."""
    return not capturing


def raise_in_capture(_context: "StandInContext", capturing: bool) -> bool:
    """A runtime that has an exception of its own."""
    if capturing:
        raise RuntimeError("an operator\nneeds the host")
    return True


def allocate_in_capture(context: "StandInContext", capturing: bool) -> bool:
    """What is allocated anew at each run can't be captured: the driver forbids it, and the capture is spoilt."""
    if capturing:
        context.allocate()
    return True


def synchronise_in_capture(context: "StandInContext", capturing: bool) -> bool:
    """Nor can a run be captured that waits for itself."""
    if capturing:
        checked(driver.cuStreamSynchronize(context.stream))
    return True


class DriverRefusedError(Exception):
    """A call of the driver, made by the runtime, failed."""


def checked(results: tuple[Any, ...]) -> Any:
    """The value of a call of the driver, for a runtime that checks."""
    if results[0] != driver.CUresult.CUDA_SUCCESS:
        raise DriverRefusedError(results[0].name)
    return results[1] if len(results) > 1 else None


class StandInContext:
    """The model at one bucket."""

    def __init__(self, simulator: Simulator, rows: int, weights: tuple[int, int], fault: Fault) -> None:
        self._simulator = simulator
        self._rows = rows
        self._weights = weights
        self._fault = fault
        self._workspaces: list[Any] = []
        self._addresses: tuple[int, int] | None = None
        self.stream = 0

    def bind(self, addresses: Sequence[int]) -> None:
        assert self._addresses is None, "a context is bound once"
        x, y = addresses
        assert x % 256 == y % 256 == 0
        self._addresses = (x, y)

    def allocate(self) -> None:
        self._workspaces.append(checked(driver.cuMemAlloc(64)))

    def enqueue(self, stream: int) -> bool:
        assert self._addresses is not None
        self.stream = stream
        status = checked(driver.cuStreamIsCapturing(stream))
        capturing = status != driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
        if not self._workspaces:
            self.allocate()
        if not self._fault(self, capturing):
            return False
        (x, y), (w, b) = self._addresses, self._weights
        regions = [
            Region(x, self._rows * COLUMNS * FLOAT, 0),
            Region(w, COLUMNS * ANSWERS * FLOAT, 0),
            Region(b, ANSWERS * FLOAT, 0),
            Region(y, self._rows * ANSWERS * FLOAT, 1),
        ]
        return self._simulator.launch_affine(stream, (self._rows, COLUMNS, ANSWERS), regions) == 0

    def close(self) -> None:
        for workspace in self._workspaces:
            driver.cuMemFree(workspace)


class StandInEngine:
    """The model. It retains the primary context while it lives, as runtimes do."""

    def __init__(self, simulator: Simulator, fault: Fault = never) -> None:
        x, y = (
            TensorSpec("x", np.dtype(np.float32), (1, COLUMNS), 0),
            TensorSpec("y", np.dtype(np.float32), (1, ANSWERS), 0),
        )
        self.spec = EngineSpec((x,), (y,), "stand-in", "float32", "0" * 64)
        self._simulator = simulator
        self._fault = fault
        random = np.random.default_rng(11)
        self._w = random.integers(-8, 9, (COLUMNS, ANSWERS)).astype(np.float32)
        self._b = random.integers(-8, 9, ANSWERS).astype(np.float32)
        checked(driver.cuInit(0))
        self._device = checked(driver.cuDeviceGet(0))
        checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(self._device))))
        self._weights = [self._upload(self._w), self._upload(self._b)]

    def _upload(self, array: Array) -> Any:
        memory = checked(driver.cuMemAlloc(array.nbytes))
        checked(driver.cuMemcpyHtoD(memory, array.ctypes.data, array.nbytes))
        checked(driver.cuCtxSynchronize())  # from pageable memory it may only be staged when the call comes back
        return memory

    def context(self, rows: int) -> StandInContext:
        w, b = map(int, self._weights)
        return StandInContext(self._simulator, rows, (w, b), self._fault)

    def sample(self, rows: int) -> list[Array]:
        return [np.arange(rows * COLUMNS, dtype=np.float32).reshape(rows, COLUMNS)]

    def close(self) -> None:
        for memory in self._weights:
            driver.cuMemFree(memory)
        driver.cuDevicePrimaryCtxRelease(self._device)

    def expected(self, arrays: Sequence[Array]) -> list[bytes]:
        """In numpy. Whole numbers, so that the order of the sums does not matter."""
        (x,) = arrays
        return [(x.astype(np.float32) @ self._w + self._b).astype(np.float32).tobytes()]
