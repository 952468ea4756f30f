"""The stand-in as the graph layer takes it, with a workspace that is allocated at the first run, as runtimes do, and
with the ways in which runtimes fail."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final

import numpy as np
from cuda.bindings import driver
from tests.sim.cuda.calls import DriverError, check, check_value
from tests.sim.cuda.simulator import Simulator
from tests.sim.cuda.standin import StandInContext, StandInEngine

from tickpath.engines import Array, EngineFailedError, EngineSpec, TensorSpec

COLUMNS: Final = 5
ANSWERS: Final = 3
WORKSPACE_BYTES: Final = 64

Fault = Callable[["ModelContext", bool], bool]
"""Given whether the stream captures: whether the context enqueues as it should. It may raise."""


def never(_context: "ModelContext", _capturing: bool) -> bool:
    """No fault."""
    return True


def refuse_capture(_context: "ModelContext", capturing: bool) -> bool:
    """A model that can't be captured: enqueue says so by returning False."""
    return not capturing


def raise_in_capture(_context: "ModelContext", capturing: bool) -> bool:
    """A runtime that has an exception of its own."""
    if capturing:
        raise RuntimeError("an operator\nneeds the host")
    return True


def allocate_in_capture(context: "ModelContext", capturing: bool) -> bool:
    """What is allocated anew at each run can't be captured: the driver forbids it, and the capture is spoilt."""
    if capturing:
        context.allocate()
    return True


def synchronise_in_capture(context: "ModelContext", capturing: bool) -> bool:
    """Nor can a run be captured that waits for itself."""
    if capturing:
        check(driver.cuStreamSynchronize(context.stream))
    return True


class ModelContext:
    """The model at one bucket."""

    def __init__(self, context: StandInContext, rows: int, fault: Fault) -> None:
        self._context = context
        self._rows = rows
        self._fault = fault
        self._workspaces: list[int] = []
        self._bound = False
        self.stream = 0

    def bind(self, addresses: Sequence[int]) -> None:
        assert not self._bound, "a context is bound once"
        self._bound = True
        for name, address in zip("xy", addresses, strict=True):
            assert address % 256 == 0
            assert self._context.set_tensor_address(name, address)
        assert self._context.set_input_shape("x", (self._rows, COLUMNS))

    def allocate(self) -> None:
        self._workspaces.append(check_value(driver.cuMemAlloc(WORKSPACE_BYTES)))

    def enqueue(self, stream: int) -> bool:
        self.stream = stream
        status = check_status(driver.cuStreamIsCapturing(stream))
        capturing = status != driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
        if not self._workspaces:
            self.allocate()
        return self._fault(self, capturing) and self._context.execute_async_v3(stream)

    def close(self) -> None:
        with ExitStack() as stack:
            stack.callback(self._context.close)
            for workspace in self._workspaces:
                stack.callback(release, driver.cuMemFree, workspace)


def release(function: Callable[..., tuple[object, ...]], what: object) -> None:
    """Give something back. Raises DriverError."""
    check(function(what))


def check_status(result: tuple[object, ...]) -> object:
    """Whether a stream captures. Raises DriverError."""
    check(result)
    return result[1]


class Model:
    """y of the stand-in, float32[N, ANSWERS], of x, float32[N, COLUMNS]. It retains the primary context while it lives,
    as runtimes do. `seed`: of its weights."""

    def __init__(self, simulator: Simulator, fault: Fault = never, seed: int = 0) -> None:
        x, y = (TensorSpec(n, np.dtype(np.float32), (1, size), 0) for n, size in (("x", COLUMNS), ("y", ANSWERS)))
        self.spec = EngineSpec((x,), (y,), "stand-in", "float32", "0" * 64)
        self._fault = fault
        check(driver.cuInit(0))
        self._device: Any = driver.cuDeviceGet(0)[1]
        check(driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(self._device)[1]))
        self._engine = StandInEngine(simulator, COLUMNS, ANSWERS, seed=seed)

    def context(self, rows: int) -> ModelContext:
        try:
            return ModelContext(self._engine.create_execution_context(rows), rows, self._fault)
        except DriverError as error:
            raise EngineFailedError(f"no execution context: {error}") from error

    def sample(self, rows: int) -> list[Array]:
        return [np.arange(rows * COLUMNS, dtype=np.float32).reshape(rows, COLUMNS) % 8]

    def close(self) -> None:
        with ExitStack() as stack:
            stack.callback(release, driver.cuDevicePrimaryCtxRelease, self._device)
            for address in self._engine.addresses:
                stack.callback(release, driver.cuMemFree, address)

    def expected(self, arrays: Sequence[Array]) -> list[bytes]:
        """In numpy: whole numbers, so that the order of the sums does not matter."""
        (x,) = arrays
        return [self._engine.expected(x.astype(np.float32)).astype(np.float32).tobytes()]
