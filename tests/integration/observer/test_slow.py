"""Why was this one late? Requests that are made slow on purpose, in a real server, and what /slow says of them."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.integration.observer.observing import get
from tests.operators import Operator, add_whole_version
from tests.peer import Peer
from tests.repositories import add_version, slow_scale
from tests.serving import RunningServer, serve
from tests.waiting import wait_until

from tickpath.observe.schema import SlowReport, SlowRequest
from tickpath.wire import Infer

# Some milliseconds a request: long beside anything that a busy machine does by itself all the time.
STEPS = 2_000
# Several of housekeeping's turns, one of which collects; and of so few in a second each is kept.
LONG_STEPS = 100_000
ROW = np.ones((1, 3), np.float32).tobytes()
BURST = 20
# Half of the descriptors that a process usually may have.
SESSIONS_MAX = 500


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slow")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    """One model a test, each on a thread of its own: none has slow requests of another test."""
    for name, steps in (("queue", STEPS), ("stop", STEPS), ("gc", LONG_STEPS), ("reload", 100)):
        add_version(folder / "models", name, "1", slow_scale(1, steps))
        (folder / "models" / name / "model.toml").write_text('executor = "thread"\nbuckets = [1]\n')
    admin = str(folder / "admin")
    with serve(folder, [], repository=str(folder / "models"), admin=admin, observer_port=0) as running:
        yield running


class Asking:
    """A pipelining client of one session."""

    def __init__(self, server: RunningServer, model: str) -> None:
        self._peer = Peer(server.connect())
        self._handle = next(info.handle for info in self._peer.greet().models if info.name == model)
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

    def close(self) -> None:
        self._peer.close()


@contextmanager
def asking(server: RunningServer, model: str) -> Iterator[Asking]:
    client = Asking(server, model)
    try:
        yield client
    finally:
        client.close()


@contextmanager
def going_on(server: RunningServer, model: str, waiting: int) -> Iterator[None]:
    """So many requests of this model wait at any time during the block."""
    end = threading.Event()

    def go_on(client: Asking) -> None:
        client.send(waiting)
        while not end.is_set():
            client.receive(1)
            client.send(1)
        client.receive(waiting)

    with asking(server, model) as client:
        thread = threading.Thread(target=go_on, args=(client,))
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()


def slow(server: RunningServer, model: str, count: int = 20) -> tuple[SlowRequest, ...]:
    """The slowest requests of a model; none where the observer does not get to answer in its time."""
    with suppress(OSError):
        answer = get(f"{server.ready.observer}/slow?count={count}&model={model}")[1]
        return msgspec.json.decode(answer, type=SlowReport).requests
    return ()


def find(server: RunningServer, model: str, meant: Callable[[SlowRequest], bool], what: str) -> SlowRequest:
    """The first of the slow requests that is meant, once there is one."""
    found: list[SlowRequest] = wait_until(lambda: [each for each in slow(server, model) if meant(each)], what)
    return found[0]


def has(request: SlowRequest, kind: str, stages: tuple[str, ...], overlap_ns: int = 0) -> bool:
    """Whether one of these stages was late with such a cause."""
    return any(
        stage.late and stage.name in stages and cause.kind == kind and cause.overlap_ns >= overlap_ns
        for stage in request.stages
        for cause in stage.causes
    )


def test_a_request_behind_others_waited_in_the_queue(server: RunningServer) -> None:
    with asking(server, "queue") as client:
        client.receive(len(client.send(BURST)))
    last = find(server, "queue", lambda each: each.id == str(BURST), "the last request")
    assert last.queued > BURST // 2
    assert has(last, "queued", ("queue",))
    assert f"queued behind {last.queued}" in last.why
    assert (last.model, last.version, last.executor, last.rows, last.event_time_ns) == ("queue", "1", "thread", 1, "7")
    marks = list(last.stamps_ns.values())
    assert marks == sorted(marks)
    assert sum(stage.span_ns for stage in last.stages) == last.duration_ns == marks[-1] - marks[0]
    requests = slow(server, "queue")
    assert {each.session for each in requests} == {last.session}
    durations_ns = [each.duration_ns for each in requests]
    assert durations_ns == sorted(durations_ns, reverse=True)
    assert [each.id for each in slow(server, "queue", 2)] == [each.id for each in requests[:2]]


def test_a_core_that_was_stopped_shows_in_the_stage_in_which_it_was(server: RunningServer) -> None:
    with asking(server, "stop") as client:
        client.send(BURST)
        client.receive(1)  # now another one runs, and the others wait
        os.kill(server.ready.pid, signal.SIGSTOP)
        try:
            os.waitid(os.P_PID, server.ready.pid, os.WSTOPPED | os.WNOWAIT)
            time.sleep(0.5)  # how long it stands still
        finally:
            os.kill(server.ready.pid, signal.SIGCONT)
        client.receive(BURST - 1)
    stopped = find(server, "stop", lambda each: has(each, "loop_lag", ("queue", "compute"), 250_000_000), "stopped")
    assert "the core's loop stood still for" in stopped.why


def test_a_reload_shows_with_what_became_live(server: RunningServer, folder: Path) -> None:
    add_whole_version(folder / "models", "reload", "2", slow_scale(2, 100))
    with going_on(server, "reload", 1), Operator(folder / "admin") as operator:
        operator.done("reload", model="reload")
        during = find(server, "reload", lambda each: bool(_texts(each, "reload")), "a request during the reload")
    assert all("after which reload@2 was live" in text for text in _texts(during, "reload"))


def test_the_garbage_collector_shows(server: RunningServer) -> None:
    # It runs where thousands of objects are new: a session is some twenty of them.
    with ExitStack() as sessions, going_on(server, "gc", 1):

        def collected() -> bool:
            if len(server_sessions) >= SESSIONS_MAX:
                sessions.close()
                server_sessions.clear()
            server_sessions.extend(sessions.enter_context(server.peer()) for _ in range(SESSIONS_MAX))
            return any(_texts(each, "gc") for each in slow(server, "gc"))

        server_sessions: list[Peer] = []
        wait_until(collected, "a request during which the collector ran")


def _texts(request: SlowRequest, kind: str) -> list[str]:
    return [cause.text for stage in request.stages for cause in stage.causes if cause.kind == kind]


def test_a_model_that_nobody_serves_has_no_slow_requests(server: RunningServer) -> None:
    assert slow(server, "eth") == ()
