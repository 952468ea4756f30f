"""Bugs of the kinds that captured graphs invite, each planted in a small program on the raw driver.

A program runs with its guard, and then must be right under every seed; or bare, and then the simulated driver must
show the bug: by a wrong answer, by a code, or by a violation.
"""

import ctypes
import threading
from collections.abc import Callable
from typing import Final

import numpy as np
from cuda.bindings import driver
from tests.sim.cuda.calls import THREAD_LOCAL, Bench, Floats, address_of, check, check_value
from tests.sim.cuda.simulator import Simulator
from tests.sim.cuda.standin import StandInContext, StandInEngine

ROWS: Final = 2
INPUTS: Final = 3
OUTPUTS: Final = 2


class WrongAnswerError(Exception):
    """The program read something else than what the arithmetic gives."""


class Request:
    """A stand-in engine's buffers for one request on one stream: pinned and device memory for x and y."""

    def __init__(self, bench: Bench, engine: StandInEngine, stream: int) -> None:
        self.bench, self.engine, self.stream = bench, engine, stream
        self.x_host = bench.pinned(ROWS * INPUTS)
        self.y_host = bench.pinned(ROWS * OUTPUTS)
        self.y_host[:] = -1
        self.x, self.y = bench.device(ROWS * INPUTS), bench.device(ROWS * OUTPUTS)
        self.context = engine.create_execution_context(ROWS)
        self.bind()

    def bind(self) -> None:
        """Tell the execution context where x and y are."""
        self.context.set_tensor_address("x", self.x)
        self.context.set_tensor_address("y", self.y)
        self.context.set_input_shape("x", (ROWS, INPUTS))

    def fill(self, number: int) -> Floats:
        """Write the numbered question; what its answer must be."""
        self.x_host[:] = np.arange(ROWS * INPUTS) % 4 + number
        return self.engine.expected(self.x_host.reshape(ROWS, INPUTS).copy()).ravel()

    def enqueue(self) -> bool:
        """Copy in, compute, copy out. What the engine's enqueue returned."""
        check(driver.cuMemcpyHtoDAsync(self.x, address_of(self.x_host), self.x_host.nbytes, self.stream))
        enqueued = self.context.execute_async_v3(self.stream)
        check(driver.cuMemcpyDtoHAsync(address_of(self.y_host), self.y, self.y_host.nbytes, self.stream))
        return enqueued

    def capture(self) -> int:
        """The same as an executable graph."""
        check(driver.cuStreamBeginCapture(self.stream, THREAD_LOCAL))
        self.enqueue()
        return self.bench.exec(self.bench.graph(self.stream))

    def launch(self, graph: int) -> None:
        """Replay."""
        check(driver.cuGraphLaunch(graph, self.stream))

    def wait(self) -> None:
        """Until everything on the stream has ended."""
        check(driver.cuStreamSynchronize(self.stream))

    def judge(self, expected: Floats) -> None:
        """Raises WrongAnswerError unless y is as expected."""
        if not np.array_equal(self.y_host, expected):
            raise WrongAnswerError(f"{self.y_host} instead of {expected}")

    def close(self) -> None:
        """Give the execution context back; the bench gives back the rest."""
        self.context.close()


def missing_synchronise(sim: Simulator, bench: Bench, guarded: bool) -> None:
    """Outputs are read before the replay has ended."""
    engine = StandInEngine(sim, INPUTS, OUTPUTS)
    request = Request(bench, engine, bench.stream())
    graph = request.capture()
    for number in range(3):
        expected = request.fill(number)
        request.launch(graph)
        if guarded:
            request.wait()
        request.judge(expected)
    _end(request)


def stale_pointer_after_rebind(sim: Simulator, bench: Bench, guarded: bool) -> None:
    """The input moves after capture; the graph still copies to where it was."""
    request = Request(bench, StandInEngine(sim, INPUTS, OUTPUTS), bench.stream())
    graph = request.capture()
    bench.give_back(request.x)
    request.x = bench.device(ROWS * INPUTS)
    request.bind()
    if guarded:
        graph = request.capture()
    expected = request.fill(1)
    request.launch(graph)
    request.wait()
    request.judge(expected)
    _end(request)


def slot_reused_in_flight(sim: Simulator, bench: Bench, guarded: bool) -> None:
    """The next question is written into pinned memory that the last one's copy has not read yet."""
    request = Request(bench, StandInEngine(sim, INPUTS, OUTPUTS), bench.stream())
    copied = bench.event()
    kept = [bench.device(ROWS * INPUTS) for _ in range(4)]
    for number, target in enumerate(kept):
        if guarded:
            check(driver.cuEventSynchronize(copied))
        request.fill(number)
        check(driver.cuMemcpyHtoDAsync(target, address_of(request.x_host), request.x_host.nbytes, request.stream))
        check(driver.cuEventRecord(copied, request.stream))
    request.wait()
    for number, address in enumerate(kept):
        seen = np.empty_like(request.x_host)
        check(driver.cuMemcpyDtoH(address_of(seen), address, seen.nbytes))
        request.fill(number)
        if not np.array_equal(seen, request.x_host):
            raise WrongAnswerError(f"question {number} arrived as {seen}")
    _end(request)


def leak(sim: Simulator, bench: Bench, guarded: bool) -> None:
    """A reload forgets an executable graph and a pinned buffer."""
    engine = StandInEngine(sim, INPUTS, OUTPUTS)
    for _ in range(3):
        request = Request(bench, engine, bench.stream())
        graph = request.capture()
        if not guarded:
            bench.forget(graph)
            bench.forget(address_of(request.x_host))
        request.close()
    engine.close()


def capture_from_two_threads(sim: Simulator, bench: Bench, guarded: bool) -> None:
    """While one thread captures in global mode another one allocates: both fail. Thread-local mode is the guard."""
    stream, source = bench.stream(), bench.pinned(4)
    target = bench.device(4)
    mode = THREAD_LOCAL if guarded else driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    results: list[tuple[object, ...]] = []

    def other_model_loads() -> None:
        bench.enter()
        results.append(driver.cuMemAlloc(64))

    check(driver.cuStreamBeginCapture(stream, mode))
    thread = threading.Thread(target=other_model_loads)
    thread.start()
    thread.join()
    check(driver.cuMemcpyHtoDAsync(target, address_of(source), source.nbytes, stream))
    bench.graph(stream)
    check(driver.cuMemFree(check_value(results[0])))


def refused_enqueue_swallowed(sim: Simulator, bench: Bench, guarded: bool) -> None:
    """The engine refuses inside the capture, the graph has no arithmetic, and its replay copies out what was there."""
    request = Request(bench, StandInEngine(sim, INPUTS, OUTPUTS), bench.stream())
    _ask(request)  # a plain enqueue first: y holds its answer
    request.context.refuses = True
    check(driver.cuStreamBeginCapture(request.stream, THREAD_LOCAL))
    enqueued = request.enqueue()
    graph = bench.exec(bench.graph(request.stream))
    if guarded and not enqueued:
        bench.give_back(graph)
        request.context.refuses = False
        graph = request.capture()
    expected = request.fill(7)
    request.launch(graph)
    request.wait()
    request.judge(expected)
    _end(request)


def use_after_free_in_graph(sim: Simulator, bench: Bench, guarded: bool) -> None:
    """The execution context, and with it its scratch memory, goes before the graph that uses it."""
    request = Request(bench, StandInEngine(sim, INPUTS, OUTPUTS), bench.stream())
    graph = request.capture()
    expected = request.fill(1)
    if guarded:
        request.launch(graph)
        request.wait()
    request.close()
    if not guarded:
        request.launch(graph)
        request.wait()
    request.judge(expected)
    request.engine.close()


def missing_event_wait(sim: Simulator, bench: Bench, guarded: bool) -> None:
    """One stream copies in, another one computes, and nothing orders the second behind the first."""
    request = Request(bench, StandInEngine(sim, INPUTS, OUTPUTS), bench.stream())
    _ask(request)
    copies, copied = bench.stream(), bench.event()
    expected = request.fill(5)
    check(driver.cuMemcpyHtoDAsync(request.x, address_of(request.x_host), request.x_host.nbytes, copies))
    check(driver.cuEventRecord(copied, copies))
    if guarded:
        check(driver.cuStreamWaitEvent(request.stream, copied, 0))
    request.context.execute_async_v3(request.stream)
    check(driver.cuMemcpyDtoHAsync(address_of(request.y_host), request.y, request.y_host.nbytes, request.stream))
    request.wait()
    check(driver.cuStreamSynchronize(copies))
    request.judge(expected)
    _end(request)


def one_context_in_two_graphs(sim: Simulator, bench: Bench, guarded: bool) -> None:
    """Two graphs on two streams hold the same execution context, so the same scratch memory."""
    engine = StandInEngine(sim, INPUTS, OUTPUTS)
    requests = [Request(bench, engine, bench.stream()) for _ in range(2)]
    contexts: list[StandInContext] = [request.context for request in requests]
    if not guarded:
        requests[1].context = requests[0].context
        requests[1].bind()
    graphs = [requests[1].capture()]
    requests[0].bind()
    graphs.insert(0, requests[0].capture())
    expected = [request.fill(3 * index) for index, request in enumerate(requests)]
    for request, graph in zip(requests, graphs, strict=True):
        request.launch(graph)
    for request, answer in zip(requests, expected, strict=True):
        request.wait()
        request.judge(answer)
    for context in contexts:
        context.close()
    engine.close()


def freed_in_flight(sim: Simulator, bench: Bench, guarded: bool) -> None:
    """Device memory is freed while the copy out of it is on its way."""
    stream, host, device = bench.stream(), bench.pinned(64), bench.device(64)
    check(driver.cuMemsetD32Async(device, 0, 64, stream))
    check(driver.cuMemcpyDtoHAsync(address_of(host), device, host.nbytes, stream))
    if guarded:
        check(driver.cuStreamSynchronize(stream))
    bench.give_back(device)
    check(driver.cuStreamSynchronize(stream))
    if host.any():
        raise WrongAnswerError(str(host))


def fork_not_joined(sim: Simulator, bench: Bench, guarded: bool) -> None:
    """A second stream is drawn into the capture and its work is not waited for."""
    first, second, forked, joined = bench.stream(), bench.stream(), bench.event(), bench.event()
    device, host = bench.device(8), bench.pinned(8)
    check(driver.cuStreamBeginCapture(first, THREAD_LOCAL))
    check(driver.cuMemsetD32Async(device, 0, 8, first))
    check(driver.cuEventRecord(forked, first))
    check(driver.cuStreamWaitEvent(second, forked, 0))
    check(driver.cuMemcpyDtoHAsync(address_of(host), device, host.nbytes, second))
    if guarded:
        check(driver.cuEventRecord(joined, second))
        check(driver.cuStreamWaitEvent(first, joined, 0))
    graph = bench.exec(bench.graph(first))
    check(driver.cuGraphLaunch(graph, first))
    check(driver.cuStreamSynchronize(first))
    if host.any():
        raise WrongAnswerError(str(host))


def copy_beyond_the_buffer(sim: Simulator, bench: Bench, guarded: bool) -> None:
    """A bucket's buffer is one row too short for what is computed into it."""
    stream, rows = bench.stream(), 4
    engine = StandInEngine(sim, INPUTS, OUTPUTS)
    context = engine.create_execution_context(rows)
    x, y = bench.device(rows * INPUTS), bench.device((rows if guarded else rows - 1) * OUTPUTS)
    check(driver.cuMemsetD32Async(x, 0, rows * INPUTS, stream))
    context.set_tensor_address("x", x)
    context.set_tensor_address("y", y)
    context.set_input_shape("x", (rows, INPUTS))
    context.execute_async_v3(stream)
    check(driver.cuStreamSynchronize(stream))
    context.close()
    engine.close()


def output_never_written(sim: Simulator, bench: Bench, guarded: bool) -> None:
    """An answer is copied out that only half of the rows were computed for."""
    stream, host, device = bench.stream(), bench.pinned(8), bench.device(8)
    check(driver.cuMemsetD32Async(device, 0, 8 if guarded else 4, stream))
    check(driver.cuMemcpyDtoHAsync(address_of(host), device, host.nbytes, stream))
    check(driver.cuStreamSynchronize(stream))


def host_reads_device_pointer(sim: Simulator, bench: Bench, guarded: bool) -> None:
    """A device address is taken for one of the host's. Ends the process."""
    device, host = bench.device(4), bench.pinned(4)
    check(driver.cuMemsetD32(device, 0, 4))
    check(driver.cuMemcpyDtoH(address_of(host), device, host.nbytes))
    ctypes.string_at(address_of(host) if guarded else device, host.nbytes)


def _ask(request: Request) -> None:
    expected = request.fill(2)
    request.enqueue()
    request.wait()
    request.judge(expected)


def _end(request: Request) -> None:
    request.wait()
    request.close()
    request.engine.close()


PLANTED: Final[dict[str, Callable[[Simulator, Bench, bool], None]]] = {
    bug.__name__: bug
    for bug in (
        *(missing_synchronise, stale_pointer_after_rebind, slot_reused_in_flight, leak, capture_from_two_threads),
        *(refused_enqueue_swallowed, use_after_free_in_graph, missing_event_wait, one_context_in_two_graphs),
        *(freed_in_flight, fork_not_joined, copy_beyond_the_buffer, output_never_written, host_reads_device_pointer),
    )
}
