"""An engine on a CUDA device: one stream, and on it one captured graph for each slot.

Loading a slot: pin its pages -> device memory -> execution context, bound once -> a plain run, so that whatever is
allocated lazily is there -> capture the same run -> instantiate, upload -> replay, and compare bit for bit with the
plain run. Where the capture or its replay fails, the slot runs without a graph, which is slower and never wrong; the
spec says so. `strict` refuses instead.

What is owned unwinds in reverse: executable, graph, event, execution context, device memory, pinned pages, as a slot is
closed or with the engine; then the stream, the engine, the device's context. Plain run and capture have a stream of
their own, which ends with them: a capture that could not be ended can't spoil the one that serves.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from cuda.bindings import driver

from tickpath.engines import Array, DeviceEngine, DeviceLostError, EngineFailedError, EngineSpec, ExecutionContext
from tickpath.engines.buffers import check_buffers
from tickpath.graphs.cuda.buffers import Buffers
from tickpath.graphs.cuda.device import Device
from tickpath.graphs.cuda.graph import CudaGraph
from tickpath.graphs.cuda.resources import capture, make_event, make_executable, make_stream
from tickpath.graphs.device import DeviceOptions

log = logging.getLogger(__name__)


class CudaEngine:
    """A DeviceEngine with the memory, the stream and the graphs it needs, as an Engine. It owns the engine: `close`
    closes it, and so does a constructor that fails. Raises EngineFailedError, DeviceLostError."""

    def __init__(self, engine: DeviceEngine, options: DeviceOptions | None = None) -> None:
        self._engine = engine
        self._options = options or DeviceOptions()
        self._closed = False
        self.graphs = 0
        """How many slots have been captured."""
        self.eager_buckets: tuple[int, ...] = ()
        """The rows of those that run without a graph, since theirs failed."""
        self._open: dict[CudaGraph, None] = {}  # those that are not closed, in the order in which they came
        with ExitStack() as stack:
            self.device = _device_for(engine)
            stack.callback(self.device.close)
            stack.callback(self._let_go, engine.close)
            self.stream = make_stream(self.device, stack)
            stack.callback(self._close_graphs)
            self._owned = stack.pop_all()

    @property
    def spec(self) -> EngineSpec:
        """The engine's own; `runtime` also names the device, and says whether all slots are captured."""
        spec = self._engine.spec
        graph = "eager" if self.eager_buckets else "captured"
        runtime = f"{spec.runtime} on {self.device.name}, graph: {graph}"
        return replace(spec, runtime=runtime, eager_buckets=self.eager_buckets)

    def capture(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> CudaGraph:
        """A graph bound to the tensors of one slot, all in one PinnedArena, inputs first. Raises ValueError where they
        do not fit or the engine is closed; ModelRefusedError where the model has no sample to try it with;
        EngineFailedError, DeviceLostError. What failed half-way leaves nothing behind."""
        if self._closed:
            raise ValueError("the engine is closed")
        rows = check_buffers(self._engine.spec, inputs, outputs)
        self.device.use_here()
        with ExitStack() as stack:
            buffers = Buffers(self.device, stack, inputs, outputs, self._options.placement)
            context = self._engine.context(rows)
            stack.callback(self._let_go, context.close)
            context.bind(buffers.addresses)
            with _holding(inputs, self._engine.sample(rows)):
                graph = self._graph(_Run(self._engine.spec.runtime, buffers, context), rows, outputs, stack)
            stack.callback(self._open.pop, graph)
            graph.own(stack.pop_all())
        self._open[graph] = None
        self.graphs += 1
        return graph

    def sample(self, rows: int) -> Sequence[Array]:
        """As `Engine.sample`."""
        return self._engine.sample(rows)

    def close(self) -> None:
        """End all graphs and let go of everything on the device. Once; a second time does nothing. Raises CudaError,
        after all the rest has gone, where something could not be given back."""
        if not (self._closed or self.device.lost):
            self._owned.callback(self.device.use_here)  # the first to unwind: this may be another thread
        self._closed = True
        self._owned.close()

    def _close_graphs(self) -> None:
        with ExitStack() as stack:
            for graph in self._open:
                stack.callback(graph.close)

    def _let_go(self, close: Callable[[], None]) -> None:
        """Close what is the runtime's. On a lost device nothing that it complains of is news."""
        try:
            close()
        except Exception:
            if not self.device.lost:
                raise

    def _graph(self, run: "_Run", rows: int, outputs: Sequence[Array], stack: ExitStack) -> CudaGraph:
        """A graph for a slot whose inputs hold a sample."""
        event = make_event(self.device, stack, blocking_sync=self._options.wait == "block")
        make = partial(CudaGraph, self.device, self.stream, event, wait=self._options.wait, held=run)
        # Whatever happens from here on, nothing is given back that the stream still uses.
        stack.callback(self.device.release, driver.cuStreamSynchronize, self.stream)
        with ExitStack() as temporary:
            stream = make_stream(self.device, temporary)
            expected = self._plain_answer(run, stream, outputs)
            try:
                return self._captured(make, run, stream, outputs, expected, stack)
            except EngineFailedError as error:
                self._fall_back(rows, error)
        graph = make(submit=partial(run, self.stream))
        _check_answer(graph, run, self.stream, outputs, expected)
        return graph

    def _plain_answer(self, run: "_Run", stream: Any, outputs: Sequence[Array]) -> list[bytes]:
        try:
            run(stream)
        finally:  # where the runtime only says that it failed, the device says whether it is lost
            self.device.call(driver.cuStreamSynchronize, stream)
        return [output.tobytes() for output in outputs]

    def _captured(
        self,
        make: Callable[..., CudaGraph],
        run: "_Run",
        stream: Any,
        outputs: Sequence[Array],
        expected: Sequence[bytes],
        stack: ExitStack,
    ) -> CudaGraph:
        """A graph that was captured and has answered as the plain run has; it owns nothing where it has not."""
        with ExitStack() as attempt:
            captured = capture(self.device, stream, partial(run, stream), attempt)
            executable = make_executable(self.device, attempt, captured, self.stream)
            graph = make(submit=partial(self.device.call, driver.cuGraphLaunch, executable, self.stream))
            _check_answer(graph, run, self.stream, outputs, expected)
            stack.enter_context(attempt.pop_all())
        return graph

    def _fall_back(self, rows: int, error: EngineFailedError) -> None:
        if self._options.strict:
            raise EngineFailedError(f"the bucket of {rows} rows can't be captured: {error}") from error
        self.eager_buckets += (rows,)
        log.warning("the bucket of %d rows runs without a graph, which is slower: %s", rows, error)


class _Run:
    """One run of a model on a slot's buffers, as it is put onto a stream: copy in, enqueue, copy out."""

    def __init__(self, runtime: str, buffers: Buffers, context: ExecutionContext) -> None:
        self._runtime = runtime
        self._buffers = buffers
        self._context = context
        self.poison = buffers.poison

    def __call__(self, stream: Any) -> None:
        self._buffers.copy_in(stream)
        self._enqueue(int(stream))
        self._buffers.copy_out(stream)

    def _enqueue(self, stream: int) -> None:
        """The runtime's own exceptions become ours, whatever they are."""
        try:
            taken = self._context.enqueue(stream)
        except (EngineFailedError, DeviceLostError):
            raise
        except Exception as error:
            raise EngineFailedError(f"{self._runtime}: {' '.join(str(error).split())}") from error
        if not taken:
            raise EngineFailedError(f"{self._runtime} refused to enqueue the model")


def _device_for(engine: DeviceEngine) -> Device:
    try:
        return Device()
    except BaseException:
        engine.close()
        raise


@contextmanager
def _holding(inputs: Sequence[Array], sample: Sequence[Array]) -> Iterator[None]:
    """Inputs on which the model runs, and then again what was there: the rows of a slot begin as zeros."""
    before = [array.copy() for array in inputs]
    try:
        for array, values in zip(inputs, sample, strict=True):
            array[...] = values
        yield
    finally:
        for array, values in zip(inputs, before, strict=True):
            array[...] = values


def _check_answer(
    graph: CudaGraph, run: _Run, stream: Any, outputs: Sequence[Array], expected: Sequence[bytes]
) -> None:
    """Nothing that is left of the plain run may pass for an answer: neither its outputs nor its inputs on the
    device."""
    run.poison(stream)
    for output in outputs:
        output.reshape(-1).view(np.uint8)[...] = 0xA5
    graph.replay()
    if [output.tobytes() for output in outputs] != list(expected):
        raise EngineFailedError(
            "a replay does not answer, bit for bit, as the plain run has; nor can it where a model does not answer the "
            "same inputs the same way twice"
        )
