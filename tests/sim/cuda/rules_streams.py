"""Streams, events, graphs, host functions: what waits for what. Run on the simulated driver by test_rules.py."""

import ctypes
import threading
from collections.abc import Callable

import numpy as np
import pytest
from cuda.bindings import driver
from tests.sim.cuda.calls import THREAD_LOCAL, Bench, DriverError, address_of, check, code_of
from tests.sim.cuda.simulator import Simulator

HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
ILLEGAL_ADDRESS = driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS.value
SEEDS = range(200)


class Log:
    """Host functions that write down who ran, in the order in which they ran."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._kept: list[object] = []

    def enqueue(self, stream: int, name: str) -> None:
        """The stream's next piece of work says the name."""
        function = HOST_FUNCTION(lambda _: self.seen.append(name))
        self._kept.append(function)
        address = ctypes.cast(function, ctypes.c_void_p).value
        check(driver.cuLaunchHostFunc(stream, driver.CUhostFn(address), 0))


def orders(sim: Simulator, program: Callable[[Bench, Log], None]) -> set[str]:
    """The orders that come about under many seeds."""
    seen = set()
    for seed in SEEDS:
        sim.reset(seed)
        with Bench() as bench:
            log = Log()
            program(bench, log)
            check(driver.cuCtxSynchronize())
            seen.add("".join(log.seen))
    return seen


def test_a_stream_keeps_its_order(sim: Simulator) -> None:
    def program(bench: Bench, log: Log) -> None:
        stream = bench.stream()
        for name in "abc":
            log.enqueue(stream, name)

    assert orders(sim, program) == {"abc"}


def test_streams_run_in_any_order(sim: Simulator) -> None:
    def program(bench: Bench, log: Log) -> None:
        for name in "abc":
            log.enqueue(bench.stream(), name)

    assert orders(sim, program) == {"abc", "acb", "bac", "bca", "cab", "cba"}


def test_a_wait_orders_two_streams(sim: Simulator) -> None:
    def program(bench: Bench, log: Log) -> None:
        first, second, event = bench.stream(), bench.stream(), bench.event()
        log.enqueue(first, "a")
        check(driver.cuEventRecord(event, first))
        log.enqueue(first, "b")
        check(driver.cuStreamWaitEvent(second, event, 0))
        log.enqueue(second, "c")

    assert orders(sim, program) == {"abc", "acb"}


def test_a_wait_means_the_record_before_it(sim: Simulator) -> None:
    """An event that is recorded again afterwards does not move a wait that was enqueued before."""

    def program(bench: Bench, log: Log) -> None:
        first, second, event = bench.stream(), bench.stream(), bench.event()
        check(driver.cuStreamWaitEvent(second, event, 0))  # never recorded: nothing to wait for
        log.enqueue(second, "c")
        log.enqueue(first, "a")
        check(driver.cuEventRecord(event, first))

    assert orders(sim, program) == {"ac", "ca"}


@pytest.mark.parametrize(("flags", "seen"), [(0, {"abc"}), (1, {"abc", "bac", "bca", "acb", "cab", "cba"})])
def test_the_legacy_stream_orders_blocking_streams(sim: Simulator, flags: int, seen: set[str]) -> None:
    def program(bench: Bench, log: Log) -> None:
        first, second = bench.stream(flags), bench.stream(flags)
        log.enqueue(first, "a")
        log.enqueue(0, "b")
        log.enqueue(second, "c")

    assert orders(sim, program) == seen


def test_nothing_need_run_before_someone_waits(sim: Simulator) -> None:
    pending = set()
    for seed in SEEDS:
        sim.reset(seed)
        with Bench() as bench:
            log, stream = Log(), bench.stream()
            for name in "abc":
                log.enqueue(stream, name)
            pending.add(sim.stats()["work_pending"])
            check(driver.cuStreamSynchronize(stream))
    assert pending == {0, 1, 2, 3}


def test_a_query_says_when_it_has_ended(sim: Simulator, bench: Bench) -> None:
    log, stream, event = Log(), bench.stream(), bench.event()
    assert code_of(driver.cuEventQuery(event)) == "CUDA_SUCCESS"
    log.enqueue(stream, "a")
    check(driver.cuEventRecord(event, stream))
    while code_of(driver.cuEventQuery(event)) == "NOT_READY":
        pass
    assert log.seen == ["a"]
    assert sim.stats()["work_unobserved"] == 0


def test_launches_of_one_graph_follow_each_other(sim: Simulator) -> None:
    def program(bench: Bench, log: Log) -> None:
        first, second = bench.stream(), bench.stream()
        check(driver.cuStreamBeginCapture(first, THREAD_LOCAL))
        log.enqueue(first, "a")
        log.enqueue(first, "b")
        graph = bench.exec(bench.graph(first))
        check(driver.cuGraphLaunch(graph, first))
        check(driver.cuGraphLaunch(graph, second))

    assert orders(sim, program) == {"abab"}


def test_a_graph_keeps_what_it_captured(sim: Simulator, bench: Bench) -> None:
    stream, device, out = bench.stream(), bench.device(1), bench.pinned(1).view(np.int32)
    check(driver.cuStreamBeginCapture(stream, THREAD_LOCAL))
    check(driver.cuMemsetD32Async(device, 5, 1, stream))
    check(driver.cuMemcpyDtoHAsync(out.ctypes.data, device, 4, stream))
    graph = bench.graph(stream)
    executable = bench.exec(graph)
    bench.give_back(graph)
    for _ in range(3):
        check(driver.cuMemsetD32Async(device, 6, 1, stream))
        check(driver.cuGraphLaunch(executable, stream))
        check(driver.cuStreamSynchronize(stream))
        assert out[0] == 5
    assert code_of(driver.cuGraphLaunch(graph, stream)) == "INVALID_VALUE"


def test_an_executable_graph_can_be_updated_in_place(bench: Bench) -> None:
    stream, device = bench.stream(), bench.device(1)

    def captured(*values: int) -> int:
        check(driver.cuStreamBeginCapture(stream, THREAD_LOCAL))
        for value in values:
            check(driver.cuMemsetD32Async(device, value, 1, stream))
        return bench.graph(stream)

    executable = bench.exec(captured(1))
    assert code_of(driver.cuGraphExecUpdate(executable, captured(2))) == "CUDA_SUCCESS"
    assert code_of(driver.cuGraphExecUpdate(executable, captured(2, 3))) == "GRAPH_EXEC_UPDATE_FAILURE"
    out = np.zeros(1, np.int32)
    check(driver.cuGraphLaunch(executable, stream))
    check(driver.cuMemcpyDtoHAsync(out.ctypes.data, device, 4, stream))
    assert out[0] == 2


def test_a_latch_holds_a_stream(sim: Simulator) -> None:
    """A value in mapped memory that the stream waits for: as on a device, no thread of the host is held up by it."""
    for seed in SEEDS:
        sim.reset(seed)
        with Bench() as bench:
            log, stream, latch = Log(), bench.stream(), bench.pinned(1).view(np.int32)
            latch[:] = 0
            check(driver.cuStreamWaitValue32(stream, latch.ctypes.data, 1, 0))
            log.enqueue(stream, "a")
            assert {code_of(driver.cuStreamQuery(stream)) for _ in range(5)} == {"NOT_READY"}
            latch[:] = 1
            check(driver.cuStreamSynchronize(stream))
            assert log.seen == ["a"]


def test_host_functions_run_on_a_thread_of_the_drivers(sim: Simulator, bench: Bench) -> None:
    threads: list[int] = []
    codes: list[str] = []

    def ask(_: int) -> None:
        threads.append(threading.get_ident())
        codes.append(code_of(driver.cuMemAlloc(4)))

    function, stream = HOST_FUNCTION(ask), bench.stream()
    check(driver.cuLaunchHostFunc(stream, driver.CUhostFn(ctypes.cast(function, ctypes.c_void_p).value), 0))
    check(driver.cuStreamSynchronize(stream))
    assert threads != [threading.get_ident()]
    assert codes == ["NOT_PERMITTED"]
    assert "cuMemAlloc was called from a host function" in sim.violation()


def test_what_a_host_function_follows_may_be_used(sim: Simulator, bench: Bench) -> None:
    ended, stream, host, device = threading.Event(), bench.stream(), bench.pinned(4), bench.device(4)
    function = HOST_FUNCTION(lambda _: ended.set())
    sim.background(True)
    check(driver.cuMemsetD32Async(device, 0, 4, stream))
    check(driver.cuMemcpyDtoHAsync(address_of(host), device, host.nbytes, stream))
    check(driver.cuLaunchHostFunc(stream, driver.CUhostFn(ctypes.cast(function, ctypes.c_void_p).value), 0))
    assert ended.wait(30)
    sim.background(False)
    assert not host.any()
    bench.give_back(device)
    assert sim.violation() == ""


def test_an_error_on_the_device_stays(sim: Simulator, bench: Bench) -> None:
    stream, device = bench.stream(), bench.device(4)
    sim.inject("work", 1, ILLEGAL_ADDRESS)
    check(driver.cuMemsetD32Async(device, 0, 4, stream))
    for result in (
        driver.cuStreamSynchronize(stream),
        driver.cuMemAlloc(4),
        driver.cuStreamQuery(stream),
        driver.cuMemFree(device),
        driver.cuStreamDestroy(stream),
        driver.cuDevicePrimaryCtxRetain(0),
    ):
        assert code_of(result) == "ILLEGAL_ADDRESS"
    assert sim.leaks() == "", "what is destroyed is gone all the same"
    assert sim.violation() == "", "an ordered fault is nobody's fault"


@pytest.mark.parametrize("name", ["cuMemAlloc", "*"])
def test_a_call_fails_when_it_is_told_to(sim: Simulator, bench: Bench, name: str) -> None:
    sim.inject(name, 2, driver.CUresult.CUDA_ERROR_UNKNOWN.value)
    bench.device(1)
    with pytest.raises(DriverError, match="UNKNOWN"):
        bench.device(1)
    bench.device(1)
    assert sim.calls("cuMemAlloc") == 3
    assert sim.stats()["device_allocations"] == 2


def test_time_goes_on_between_events(bench: Bench) -> None:
    stream = bench.stream()
    start, end = (driver.cuEventCreate(0)[1] for _ in range(2))
    check(driver.cuEventRecord(start, stream))
    assert code_of(driver.cuEventElapsedTime(start, end)) == "INVALID_HANDLE"
    check(driver.cuEventRecord(end, stream))
    check(driver.cuStreamSynchronize(stream))
    assert driver.cuEventElapsedTime(start, end)[1] > 0


@pytest.mark.parametrize("make", [Bench.stream, Bench.event])
def test_a_handle_is_good_until_it_is_destroyed(bench: Bench, make: Callable[[Bench], int]) -> None:
    thing = make(bench)
    bench.give_back(thing)
    assert make(bench) != thing
    assert code_of(driver.cuStreamSynchronize(thing)) == "INVALID_HANDLE"
    assert code_of(driver.cuEventSynchronize(thing)) == "INVALID_HANDLE"


def test_a_thread_needs_a_context(bench: Bench) -> None:
    assert bench.context
    codes: list[str] = []
    thread = threading.Thread(target=lambda: codes.append(code_of(driver.cuMemAlloc(4))))
    thread.start()
    thread.join()
    assert codes == ["INVALID_CONTEXT"]


def test_a_context_that_is_gone_is_not_usable(bench: Bench) -> None:
    bench.close()
    assert code_of(driver.cuMemAlloc(4)) == "CONTEXT_IS_DESTROYED"
