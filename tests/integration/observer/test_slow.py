"""Why was this one late? Requests that are made slow on purpose, in a real server, and what /slow says of them."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.browser import wait_until
from tests.integration.observer.observing import get
from tests.operators import Operator, add_whole_version
from tests.peer import Peer
from tests.repositories import add_version, slow_scale
from tests.serving import RunningServer, serve

from tickpath.observe.schema import SlowReport, SlowRequest
from tickpath.wire import Infer, Welcome

# Some milliseconds a request: long beside anything that a busy machine does by itself all the time.
STEPS = 20_000
ROW = np.ones((1, 3), np.float32).tobytes()
BURST = 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slow")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    add_version(folder / "models", "btc", "1", slow_scale(1, STEPS))
    (folder / "models" / "btc" / "model.toml").write_text('executor = "thread"\nbuckets = [1]\n')
    with serve(folder, [], repository=str(folder / "models"), admin=str(folder / "admin"), observer_port=0) as running:
        yield running


class Asking:
    """A pipelining client of one session."""

    def __init__(self, server: RunningServer) -> None:
        self._peer = Peer(server.connect())
        welcome = self._peer.greet()
        assert isinstance(welcome, Welcome)
        (self._handle,) = (info.handle for info in welcome.models)
        self._last = 0

    def send(self, count: int) -> range:
        """So many requests at once. Returns their ids."""
        ids = range(self._last + 1, self._last + count + 1)
        self._last += count
        self._peer.send(*(Infer(number, self._handle, 1, [memoryview(ROW)], event_time_ns=7) for number in ids))
        return ids

    def receive(self, count: int) -> None:
        for _ in range(count):
            assert self._peer.receive() is not None

    def go_on(self, until: threading.Event) -> None:
        """Have a few requests waiting at any time."""
        self.send(5)
        while not until.is_set():
            self.receive(1)
            self.send(1)
        self.receive(5)

    def close(self) -> None:
        self._peer.close()


@pytest.fixture
def asking(server: RunningServer) -> Iterator[Asking]:
    asking = Asking(server)
    yield asking
    asking.close()


@pytest.fixture
def busy(asking: Asking) -> Iterator[None]:
    """Requests go on and on during the test."""
    end = threading.Event()
    thread = threading.Thread(target=asking.go_on, args=(end,))
    thread.start()
    yield
    end.set()
    thread.join()


def slow(server: RunningServer, query: str = "?count=200") -> SlowReport:
    return msgspec.json.decode(get(f"{server.ready.observer}/slow{query}")[1], type=SlowReport)


def find(server: RunningServer, meant: Callable[[SlowRequest], bool], what: str) -> SlowRequest:
    """The first of the slow requests that is meant, once there is one."""
    found: list[SlowRequest] = wait_until(lambda: [each for each in slow(server).requests if meant(each)], what)
    return found[0]


def has(request: SlowRequest, kind: str, stages: tuple[str, ...], overlap_ns: int = 0) -> bool:
    """Whether one of these stages was late with such a cause."""
    return any(
        stage.late and stage.name in stages and cause.kind == kind and cause.overlap_ns >= overlap_ns
        for stage in request.stages
        for cause in stage.causes
    )


def test_a_request_behind_others_waited_in_the_queue(server: RunningServer, asking: Asking) -> None:
    asking.receive(len(asking.send(BURST)))
    first, last = (
        find(server, lambda each, number=number: each.id == str(number), f"request {number}")  # type: ignore[misc]
        for number in (BURST // 2, BURST)
    )
    assert last.duration_ns > first.duration_ns
    assert last.queued > BURST // 2
    assert has(last, "queued", ("queue",))
    assert f"queued behind {last.queued}" in last.why
    assert (last.model, last.version, last.executor, last.rows, last.event_time_ns) == ("btc", "1", "thread", 1, "7")
    assert last.session == first.session
    marks = list(last.stamps_ns.values())
    assert marks == sorted(marks)
    assert sum(stage.span_ns for stage in last.stages) == last.duration_ns == marks[-1] - marks[0]


def test_a_core_that_was_stopped_shows_in_the_stage_in_which_it_was(server: RunningServer, asking: Asking) -> None:
    asking.send(BURST)
    asking.receive(1)  # now another one runs, and the others wait
    os.kill(server.ready.pid, signal.SIGSTOP)
    try:
        os.waitid(os.P_PID, server.ready.pid, os.WSTOPPED | os.WNOWAIT)
        time.sleep(0.5)  # how long it stands still
    finally:
        os.kill(server.ready.pid, signal.SIGCONT)
    asking.receive(BURST - 1)
    stopped = find(server, lambda each: has(each, "loop_lag", ("queue", "compute"), 250_000_000), "stopped")
    assert "the core's loop stood still for" in stopped.why


@pytest.mark.usefixtures("busy")
def test_a_reload_shows_with_what_became_live(server: RunningServer, folder: Path) -> None:
    add_whole_version(folder / "models", "btc", "2", slow_scale(2, STEPS))
    with Operator(folder / "admin") as operator:
        operator.done("reload", model="btc")
    during = find(server, lambda each: any("btc@2 was live" in text for text in _texts(each, "reload")), "reloaded")
    assert during.version in ("1", "2")


@pytest.mark.usefixtures("busy")
def test_the_garbage_collector_shows(server: RunningServer) -> None:
    def collected() -> bool:
        for _ in range(200):  # what a closed connection leaves is what there is to collect
            with server.peer() as peer:
                peer.send(Infer(1, 10**6, 1, []))
                peer.receive()
        return any(_texts(each, "gc") for each in slow(server).requests)

    wait_until(collected, "a request during which the collector ran")


def _texts(request: SlowRequest, kind: str) -> list[str]:
    return [cause.text for stage in request.stages for cause in stage.causes if cause.kind == kind]


def test_the_slowest_come_first_and_as_many_as_asked(server: RunningServer, asking: Asking) -> None:
    asking.receive(len(asking.send(BURST)))
    wait_until(lambda: len(slow(server).requests) > 5, "more than five")
    durations_ns = [each.duration_ns for each in slow(server).requests]
    assert durations_ns == sorted(durations_ns, reverse=True)
    assert len(slow(server, "?count=3").requests) == 3
    assert len(slow(server, "?count=3&model=btc").requests) == 3
    assert slow(server, "?model=eth").requests == ()
