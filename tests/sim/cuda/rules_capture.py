"""What a capture forbids and what it leads to, code by code. Run on the simulated driver by test_rules.py."""

import threading
from collections.abc import Callable
from typing import Final

import numpy as np
import pytest
from cuda.bindings import driver
from tests.sim.cuda.calls import NON_BLOCKING, THREAD_LOCAL, Bench, DriverError, address_of, check, code_of
from tests.sim.cuda.simulator import Simulator

GLOBAL: Final = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
RELAXED: Final = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
STATUS: Final = driver.CUstreamCaptureStatus
UNSUPPORTED: Final = "STREAM_CAPTURE_UNSUPPORTED"


class CapturingBench(Bench):
    """A bench with a stream to capture, another one, an event from before, and memory for a copy."""

    def __init__(self) -> None:
        super().__init__()
        self.captured, self.other, self.old_event = self.stream(), self.stream(), self.event()
        self.source, self.target = self.pinned(4), self.device(4)
        self.source[:] = 1

    def begin(self, mode: driver.CUstreamCaptureMode = THREAD_LOCAL) -> None:
        """Begin to capture, with one copy."""
        check(driver.cuStreamBeginCapture(self.captured, mode))
        self.copy(self.captured)

    def copy(self, stream: int) -> None:
        """Enqueue a copy."""
        check(driver.cuMemcpyHtoDAsync(self.target, address_of(self.source), self.source.nbytes, stream))

    def end(self) -> str:
        """End the capture: the code."""
        return code_of(driver.cuStreamEndCapture(self.captured))


Call = Callable[[CapturingBench], tuple[object, ...]]

UNSAFE: Final[dict[str, Call]] = {
    "cuMemAlloc": lambda _: driver.cuMemAlloc(64),
    "cuMemFree": lambda _: driver.cuMemFree(0),
    "cuMemHostAlloc": lambda _: driver.cuMemHostAlloc(64, 0),
    "cuStreamSynchronize": lambda bench: driver.cuStreamSynchronize(bench.other),
    "cuStreamQuery": lambda bench: driver.cuStreamQuery(bench.other),
    "cuEventQuery": lambda bench: driver.cuEventQuery(bench.old_event),
    "cuEventSynchronize": lambda bench: driver.cuEventSynchronize(bench.old_event),
    "cuMemcpyHtoD": lambda bench: driver.cuMemcpyHtoD(bench.target, address_of(bench.source), 4),
}


@pytest.fixture
def capturing(sim: Simulator) -> CapturingBench:
    """The bench of these rules."""
    assert sim.seed == 1
    return CapturingBench()


def in_thread(bench: Bench, call: Callable[[], str]) -> str:
    """What the call gives in another thread."""
    said: list[str] = []

    def run() -> None:
        bench.enter()
        said.append(call())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return said[0]


@pytest.mark.parametrize("name", UNSAFE)
@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL], ids=["global", "thread-local"])
def test_unsafe_calls_of_the_capturing_thread_end_the_capture(
    capturing: CapturingBench, name: str, mode: driver.CUstreamCaptureMode
) -> None:
    capturing.begin(mode)
    assert code_of(UNSAFE[name](capturing)) == UNSUPPORTED
    assert driver.cuStreamIsCapturing(capturing.captured)[1] == STATUS.CU_STREAM_CAPTURE_STATUS_INVALIDATED
    assert capturing.end() == "STREAM_CAPTURE_INVALIDATED"
    assert driver.cuStreamIsCapturing(capturing.captured)[1] == STATUS.CU_STREAM_CAPTURE_STATUS_NONE


@pytest.mark.parametrize("name", UNSAFE)
def test_relaxed_capture_allows_them(capturing: CapturingBench, name: str) -> None:
    capturing.begin(RELAXED)
    assert code_of(UNSAFE[name](capturing)) in ("CUDA_SUCCESS", "NOT_READY")
    assert capturing.end() == "CUDA_SUCCESS"


@pytest.mark.parametrize("name", UNSAFE)
@pytest.mark.parametrize(("mode", "code"), [(GLOBAL, UNSUPPORTED), (THREAD_LOCAL, "CUDA_SUCCESS")])
def test_unsafe_calls_of_another_thread(
    capturing: CapturingBench, name: str, mode: driver.CUstreamCaptureMode, code: str
) -> None:
    capturing.begin(mode)
    assert in_thread(capturing, lambda: code_of(UNSAFE[name](capturing))) == code
    assert capturing.end() == ("CUDA_SUCCESS" if code == "CUDA_SUCCESS" else "STREAM_CAPTURE_INVALIDATED")


def test_a_thread_may_exchange_its_mode(capturing: CapturingBench) -> None:
    capturing.begin(GLOBAL)
    code, before = driver.cuThreadExchangeStreamCaptureMode(RELAXED)
    assert (code, before) == (driver.CUresult.CUDA_SUCCESS, GLOBAL)
    assert code_of(driver.cuMemAlloc(64)) == "CUDA_SUCCESS"
    assert driver.cuThreadExchangeStreamCaptureMode(before)[1] == RELAXED
    assert capturing.end() == "CUDA_SUCCESS"


@pytest.mark.parametrize("mode", [THREAD_LOCAL, RELAXED], ids=["thread-local", "relaxed"])
@pytest.mark.parametrize("ask", [driver.cuStreamSynchronize, driver.cuStreamQuery])
def test_a_captured_stream_cannot_be_asked(
    capturing: CapturingBench, ask: Callable[[int], tuple[object, ...]], mode: driver.CUstreamCaptureMode
) -> None:
    capturing.begin(mode)
    assert code_of(ask(capturing.captured)) == UNSUPPORTED
    assert capturing.end() == "STREAM_CAPTURE_INVALIDATED"


def test_a_context_cannot_be_waited_for(capturing: CapturingBench) -> None:
    capturing.begin(RELAXED)
    assert in_thread(capturing, lambda: code_of(driver.cuCtxSynchronize())) == UNSUPPORTED
    assert capturing.end() == "STREAM_CAPTURE_INVALIDATED"


@pytest.mark.parametrize("ask", [driver.cuEventQuery, driver.cuEventSynchronize])
def test_a_captured_event_cannot_be_asked(capturing: CapturingBench, ask: Callable[[int], tuple[object, ...]]) -> None:
    event = capturing.event()
    capturing.begin(RELAXED)
    check(driver.cuEventRecord(event, capturing.captured))
    assert code_of(ask(event)) == "CAPTURED_EVENT"
    assert capturing.end() == "STREAM_CAPTURE_INVALIDATED"


def test_work_on_an_invalid_capture_is_refused(capturing: CapturingBench) -> None:
    capturing.begin()
    driver.cuMemAlloc(64)
    with pytest.raises(DriverError, match="STREAM_CAPTURE_INVALIDATED"):
        capturing.copy(capturing.captured)
    assert capturing.end() == "STREAM_CAPTURE_INVALIDATED"
    capturing.copy(capturing.captured)  # the stream works again
    check(driver.cuStreamSynchronize(capturing.captured))


def test_only_a_capture_can_be_ended(capturing: CapturingBench) -> None:
    assert capturing.end() == "ILLEGAL_STATE"


def test_a_stream_is_captured_once_at_a_time(capturing: CapturingBench) -> None:
    capturing.begin()
    again = driver.cuStreamBeginCapture(capturing.captured, THREAD_LOCAL)
    assert code_of(again) == "ILLEGAL_STATE"
    assert capturing.end() == "CUDA_SUCCESS"


def test_the_legacy_stream_cannot_be_captured(capturing: CapturingBench) -> None:
    assert code_of(driver.cuStreamBeginCapture(0, RELAXED)) == UNSUPPORTED


def test_another_thread_cannot_end_it(capturing: CapturingBench) -> None:
    capturing.begin()
    assert in_thread(capturing, capturing.end) == "STREAM_CAPTURE_WRONG_THREAD"
    assert capturing.end() == "STREAM_CAPTURE_INVALIDATED"


def test_another_thread_can_end_a_relaxed_one(capturing: CapturingBench) -> None:
    capturing.begin(RELAXED)
    assert in_thread(capturing, capturing.end) == "CUDA_SUCCESS"


def test_it_ends_on_the_stream_where_it_began(capturing: CapturingBench) -> None:
    event = capturing.event()
    capturing.begin()
    check(driver.cuEventRecord(event, capturing.captured))
    check(driver.cuStreamWaitEvent(capturing.other, event, 0))
    assert code_of(driver.cuStreamEndCapture(capturing.other)) == "STREAM_CAPTURE_UNMATCHED"
    assert capturing.end() == "STREAM_CAPTURE_INVALIDATED"


def test_no_wait_for_work_outside(capturing: CapturingBench) -> None:
    check(driver.cuEventRecord(capturing.old_event, capturing.other))
    capturing.begin()
    waited = driver.cuStreamWaitEvent(capturing.captured, capturing.old_event, 0)
    assert code_of(waited) == "STREAM_CAPTURE_ISOLATION"
    assert capturing.end() == "STREAM_CAPTURE_INVALIDATED"


def test_two_captures_do_not_merge(capturing: CapturingBench) -> None:
    event = capturing.event()
    capturing.begin()
    check(driver.cuStreamBeginCapture(capturing.other, THREAD_LOCAL))
    check(driver.cuEventRecord(event, capturing.other))
    assert code_of(driver.cuStreamWaitEvent(capturing.captured, event, 0)) == "STREAM_CAPTURE_MERGE"
    assert capturing.end() == "STREAM_CAPTURE_INVALIDATED"
    assert code_of(driver.cuStreamEndCapture(capturing.other)) == "STREAM_CAPTURE_INVALIDATED"


@pytest.mark.parametrize(("flags", "code"), [(0, "STREAM_CAPTURE_IMPLICIT"), (NON_BLOCKING, "CUDA_SUCCESS")])
def test_the_legacy_stream_beside_a_capture(capturing: CapturingBench, flags: int, code: str) -> None:
    stream = capturing.stream(flags)
    check(driver.cuStreamBeginCapture(stream, RELAXED))
    copied = driver.cuMemcpyHtoDAsync(capturing.target, address_of(capturing.source), 4, 0)
    assert code_of(copied) == code
    ended = code_of(driver.cuStreamEndCapture(stream))
    assert ended == ("CUDA_SUCCESS" if code == "CUDA_SUCCESS" else "STREAM_CAPTURE_INVALIDATED")


def test_a_fork_that_comes_back_is_part_of_the_graph(capturing: CapturingBench, sim: Simulator) -> None:
    forked, joined, out = capturing.event(), capturing.event(), capturing.pinned(4)
    capturing.begin()
    check(driver.cuEventRecord(forked, capturing.captured))
    check(driver.cuStreamWaitEvent(capturing.other, forked, 0))
    check(driver.cuMemcpyDtoHAsync(address_of(out), capturing.target, out.nbytes, capturing.other))
    check(driver.cuEventRecord(joined, capturing.other))
    check(driver.cuStreamWaitEvent(capturing.captured, joined, 0))
    graph = capturing.graph(capturing.captured)
    assert driver.cuGraphGetNodes(graph)[2] == 2
    assert driver.cuStreamIsCapturing(capturing.other)[1] == STATUS.CU_STREAM_CAPTURE_STATUS_NONE
    check(driver.cuGraphLaunch(capturing.exec(graph), capturing.captured))
    check(driver.cuStreamSynchronize(capturing.captured))
    assert np.array_equal(out, [1, 1, 1, 1])
    assert sim.violation() == ""


def test_nothing_runs_while_it_is_captured(capturing: CapturingBench, sim: Simulator) -> None:
    capturing.begin()
    assert sim.stats()["work_pending"] == 0
    assert capturing.end() == "CUDA_SUCCESS"
    check(driver.cuCtxSynchronize())
    assert sim.stats()["work_done"] == 0


def test_a_capture_can_be_asked_about(capturing: CapturingBench) -> None:
    assert driver.cuStreamGetCaptureInfo(capturing.captured)[1] == STATUS.CU_STREAM_CAPTURE_STATUS_NONE
    capturing.begin()
    code, status, number, graph, *_ = driver.cuStreamGetCaptureInfo(capturing.captured)
    assert (code, status) == (driver.CUresult.CUDA_SUCCESS, STATUS.CU_STREAM_CAPTURE_STATUS_ACTIVE)
    assert int(number) > 0
    assert int(graph) == capturing.graph(capturing.captured)


def test_an_external_event_is_a_node(capturing: CapturingBench, sim: Simulator) -> None:
    """It is recorded by each replay, and tells of that."""
    external = driver.CUevent_record_flags.CU_EVENT_RECORD_EXTERNAL.value
    event = capturing.event()
    assert code_of(driver.cuEventRecordWithFlags(event, capturing.captured, external)) == "INVALID_VALUE"
    capturing.begin()
    check(driver.cuEventRecordWithFlags(event, capturing.captured, external))
    graph = capturing.exec(capturing.graph(capturing.captured))
    assert code_of(driver.cuEventQuery(event)) == "CUDA_SUCCESS"
    check(driver.cuGraphLaunch(graph, capturing.captured))
    check(driver.cuEventSynchronize(event))
    assert sim.stats()["work_unobserved"] <= 1  # the end of the launch
    capturing.give_back(event)
    assert code_of(driver.cuGraphLaunch(graph, capturing.captured)) == "INVALID_HANDLE"
    assert "whose event is destroyed" in sim.violation()


def test_a_graph_within_a_capture(capturing: CapturingBench, sim: Simulator) -> None:
    out = capturing.pinned(4)
    capturing.begin()
    inner = capturing.exec(capturing.graph(capturing.captured))
    check(driver.cuStreamBeginCapture(capturing.other, THREAD_LOCAL))
    check(driver.cuGraphLaunch(inner, capturing.other))
    check(driver.cuMemcpyDtoHAsync(address_of(out), capturing.target, out.nbytes, capturing.other))
    outer = capturing.exec(capturing.graph(capturing.other))
    check(driver.cuGraphLaunch(outer, capturing.other))
    check(driver.cuStreamSynchronize(capturing.other))
    assert np.array_equal(out, [1, 1, 1, 1])
    assert sim.violation() == ""


def test_a_captured_stream_is_not_destroyed(capturing: CapturingBench) -> None:
    capturing.begin()
    assert code_of(driver.cuStreamDestroy(capturing.captured)) == UNSUPPORTED
    assert capturing.end() == "STREAM_CAPTURE_INVALIDATED"


def test_pageable_memory_in_a_capture_is_a_violation(capturing: CapturingBench, sim: Simulator) -> None:
    pageable = np.zeros(4, np.float32)
    capturing.begin()
    check(driver.cuMemcpyHtoDAsync(capturing.target, address_of(pageable), 16, capturing.captured))
    assert "pageable" in sim.violation()


def test_graphs_are_not_made_or_destroyed_beside_a_capture(capturing: CapturingBench) -> None:
    capturing.begin()
    graph = capturing.graph(capturing.captured)
    made = capturing.exec(graph)
    capturing.begin()
    assert code_of(driver.cuGraphInstantiate(graph, 0)) == UNSUPPORTED
    assert code_of(driver.cuGraphExecDestroy(made)) == UNSUPPORTED
    assert capturing.end() == "STREAM_CAPTURE_INVALIDATED"
