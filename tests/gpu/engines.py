"""The engines that a GPU machine can prove, and for each where its answers can be had without a captured graph."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from cuda.bindings import driver
from tests.cuda_checks import BoundSlot, Expected, bind
from tests.gpu.ptx_engine import PtxEngine, checked, ptx_expected

from tickpath.engines import Array, DeviceEngine, EngineSpec, ExecutionContext
from tickpath.graphs.cuda import CudaEngine


@dataclass(frozen=True)
class Candidate:
    """A model on the device: how to load it, and, where it is known, what it must answer."""

    name: str
    make: Callable[[], DeviceEngine]
    expected: Expected | None = None


CANDIDATES: Final = (Candidate("ptx", PtxEngine, ptx_expected),)


class Uncapturable:
    """An engine that refuses to be captured, so that its model is run piece by piece."""

    def __init__(self, engine: DeviceEngine) -> None:
        self._engine = engine
        self.sample = engine.sample
        self.close = engine.close

    @property
    def spec(self) -> EngineSpec:
        return self._engine.spec

    def context(self, rows: int) -> ExecutionContext:
        return _Refusing(self._engine.context(rows))


class _Refusing:
    """A context that refuses while the stream captures."""

    def __init__(self, context: ExecutionContext) -> None:
        self._context = context
        self.bind = context.bind
        self.close = context.close

    def enqueue(self, stream: int) -> bool:
        status = checked(driver.cuStreamIsCapturing(stream))
        free = status == driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
        return bool(free) and self._context.enqueue(stream)


class Eager:
    """What a model answers without a graph."""

    def __init__(self, candidate: Candidate) -> None:
        self.engine = CudaEngine(Uncapturable(candidate.make()))
        self._slots: dict[int, BoundSlot] = {}

    def __call__(self, arrays: Sequence[Array]) -> list[bytes]:
        tensor = self.engine.spec.inputs[0]
        assert tensor.batch_axis is not None
        rows = arrays[0].shape[tensor.batch_axis] // tensor.shape[tensor.batch_axis]
        if rows not in self._slots:
            self._slots[rows] = bind(self.engine, rows)
        return self._slots[rows](arrays)
