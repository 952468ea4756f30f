"""A server at work: who waits for whom, what is counted, and what it costs in the long run. One server for all."""

import asyncio
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.integration.observer.observing import Scrape
from tests.integration.test_starting import page, status
from tests.onnx_models import save, slow
from tests.peer import Peer
from tests.processes import children, wait_until_ended
from tests.serving import RunningServer, serve, write_zoo
from tests.waiting import wait_until

from tickpath.observe import observer
from tickpath.observe.http import Request
from tickpath.observe.process import CoreProcess
from tickpath.observe.reader import RecordReader
from tickpath.observe.settings import ObserverSettings
from tickpath.observe.tally import Tally
from tickpath.wire import PROTOCOL_VERSION, Cancel, Failure, Hello, Infer, OpenFeed, Ping, Pong, Result, Welcome

NULL, SLOW, THREADED, INLINE = 0, 1, 2, 3
FLOAT = memoryview(b"\0\0\x80\x3f")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Ten models: `null`, and `slow` on its thread by its timing; both kinds against it; and six more."""
    folder = tmp_path_factory.mktemp("serving")
    (null,) = write_zoo(folder, "null")
    long = str(save(slow(100_000), folder, "slow.onnx"))
    models: list[dict[str, Any]] = [
        null,
        {"path": long, "buckets": [1]},
        {**null, "name": "null-on-thread", "executor": "thread"},
        {"path": long, "name": "slow-inline", "buckets": [1], "executor": "inline"},
        *({**null, "name": f"null-{number}", "executor": "thread"} for number in range(6)),
    ]
    with serve(folder, models, observer_port=0) as server:
        yield server
    assert "Traceback" not in server.log.read_text()


@pytest.fixture
def peer(server: RunningServer) -> Iterator[Peer]:
    with server.peer() as peer:
        yield peer


def null(request_id: int, handle: int = NULL) -> Infer:
    return Infer(request_id, handle, 1, [memoryview(bytes(256))])


def slow_one(request_id: int, budget_ns: int = 0) -> Infer:
    return Infer(request_id, SLOW, 1, [FLOAT], budget_ns)


def scrape(server: RunningServer) -> Scrape:
    return Scrape(page(f"{server.ready.observer}/metrics"))


def settles(counts: Callable[[], list[float]], before: list[float], risen: list[float]) -> None:
    """Counts have risen by so much, or do in a moment: a request is counted after its answer has left."""
    expected = [then + more for then, more in zip(before, risen, strict=True)]
    wait_until(lambda: all(now >= then for now, then in zip(counts(), expected, strict=True)), "all are counted")
    assert counts() == expected


def receive(peer: Peer) -> tuple[str, int]:
    """Kind (the code of a failure) and id of what comes next."""
    message = peer.receive()
    assert message is not None
    if isinstance(message, Failure):
        return message.code.name, message.id
    assert isinstance(message, Result | Pong), message
    return type(message).__name__, message.id


def running(peer: Peer, first: int) -> None:
    """The request before `first` has been answered; when some more have come and gone, `first` runs."""
    for number in (901, 902, 903):
        peer.send(Ping(number))
        assert receive(peer) == ("Pong", number), f"{first} was to take longer"


def test_the_log_says_where_each_model_runs_and_why(server: RunningServer) -> None:
    lines = {
        line.split("serving ")[1].split(" version ")[0]: line
        for line in server.log.read_text().splitlines()
        if "serving " in line
    }
    where = {name: "inline" if "runs inline on the loop" in line else "thread" for name, line in lines.items()}
    assert len(where) == 10
    expected = {"null": "inline", "slow": "thread", "null-on-thread": "thread", "slow-inline": "inline"}
    assert {name: where[name] for name in expected} == expected
    assert all(re.search(r"\d µs at \d+ rows?, so", line) for line in lines.values())


def test_a_long_request_holds_up_nobody_else(server: RunningServer, peer: Peer) -> None:
    """Many round trips fit between two answers of the slow model: the loop does not wait for it."""
    peer.send(*(slow_one(number) for number in range(1, 6)))
    between = 0
    most = 0
    number = 100
    ended: list[int] = []
    with server.peer() as other:
        while len(ended) < 5:
            number += 1
            peer.send(Ping(number), null(number + 1000))
            while (came := receive(peer)) != ("Result", number + 1000):
                if came[0] == "Result":
                    ended.append(came[1])
                    between = 0
            other.send(null(1), null(2, THREADED))
            assert {receive(other), receive(other)} == {("Result", 1), ("Result", 2)}
            between += 1
            most = max(most, between)
    assert ended == [1, 2, 3, 4, 5]
    assert most >= 4


def test_cancel(peer: Peer) -> None:
    peer.send(*(slow_one(number) for number in range(1, 6)))
    assert receive(peer) == ("Result", 1)
    running(peer, 2)
    peer.send(Cancel(4), Cancel(77), Cancel(2), Cancel(4), Cancel(1))
    assert receive(peer) == ("CANCELLED", 4), "it had not begun"
    assert [receive(peer) for _ in range(3)] == [("Result", 2), ("Result", 3), ("Result", 5)]
    peer.send(Cancel(5), slow_one(4), null(6))
    assert [receive(peer) for _ in range(2)] == [("Result", 6), ("Result", 4)], "an id is free when it is answered"


def test_a_budget_that_would_end_in_the_queue_is_refused_at_once(server: RunningServer, peer: Peer) -> None:
    def counts() -> list[float]:
        now = scrape(server)
        return [
            now.value("tickpath_graph_replays_total", model="slow"),
            now.value("tickpath_deadline_misses_total", model="slow", stage="admission"),
            now.value("tickpath_requests_total", model="slow", code="DEADLINE"),
            now.value("tickpath_requests_total", model="slow", code="OK"),
        ]

    before = counts()
    peer.send(slow_one(1), slow_one(2, budget_ns=1_000_000), slow_one(3, budget_ns=3_600_000_000_000))
    assert [receive(peer) for _ in range(3)] == [("DEADLINE", 2), ("Result", 1), ("Result", 3)]
    settles(counts, before, [2, 1, 1, 2])


def test_a_budget_shorter_than_the_model_is_refused_unrun(server: RunningServer, peer: Peer) -> None:
    """Inline, so that it waits for nobody: what the model takes is known from its warm-up."""

    def counts() -> list[float]:
        now = scrape(server)
        return [
            now.value("tickpath_graph_replays_total", model="slow-inline"),
            now.value("tickpath_deadline_misses_total", model="slow-inline", stage="admission"),
        ]

    before = counts()
    peer.send(Infer(1, INLINE, 1, [FLOAT], budget_ns=1_000), Infer(2, INLINE, 1, [FLOAT]))
    assert [receive(peer), receive(peer)] == [("DEADLINE", 1), ("Result", 2)]
    settles(counts, before, [1, 1])


def test_the_queue_is_bounded_seen_and_forgotten_with_its_client(server: RunningServer, peer: Peer) -> None:
    peer.send(*(slow_one(number) for number in range(1, 101)))
    first = [receive(peer) for _ in range(10)]
    assert all(kind == "OVERLOADED" for kind, _ in first), "refused at once, before the first is answered"
    ids = count(101)

    def seen() -> bool:
        peer.send(*(slow_one(next(ids)) for _ in range(64)))
        now = scrape(server)
        return all(now.value(name, model="slow") > 0 for name in ("tickpath_queue_depth", "tickpath_in_flight"))

    wait_until(seen, "some run, some wait")
    peer.close()
    wait_until(lambda: scrape(server).value("tickpath_in_flight", model="slow") == 0, "nothing runs")
    wait_until(lambda: scrape(server).value("tickpath_queue_depth", model="slow") == 0, "nothing waits")
    with server.peer() as other:
        other.send(slow_one(1))
        assert receive(other) == ("Result", 1)


def test_a_steady_state_says_nothing(server: RunningServer, peer: Peer) -> None:
    before = server.log.read_text()
    for number in range(1, 1001):
        peer.send(null(number), null(number + 5000, THREADED))
        assert {receive(peer), receive(peer)} == {("Result", number), ("Result", number + 5000)}
    peer.send(Infer(1, 99, 1, []), Infer(2, NULL, 0, []))
    assert [receive(peer), receive(peer)] == [("UNKNOWN_MODEL", 1), ("BAD_SHAPE", 2)]
    assert server.log.read_text() == before


def test_nothing_that_a_client_sends_makes_a_series(server: RunningServer) -> None:
    """Twenty thousand models that there are not, asked for by handle and feed, by clients with as many names."""

    def series() -> set[tuple[str, ...]]:
        return {(sample.name, *map(str, sorted(sample.labels.items()))) for sample in scrape(server).samples}

    before, total = series(), 20_000
    for first in range(1, total, 500):
        with Peer(server.connect()) as peer:
            peer.send(Hello(PROTOCOL_VERSION, f"model-{first}"))
            assert isinstance(peer.receive(), Welcome)
            for start in range(first, first + 500, 20):
                peer.send(*(Infer(number, 1000 + number, 1, []) for number in range(start, start + 10)))
                peer.send(*(OpenFeed(number, 0, f"model-{number}") for number in range(start + 10, start + 20)))
                for _ in range(20):
                    assert isinstance(peer.receive(), Failure)
    refused = scrape(server)
    assert refused.value("tickpath_requests_total", model="(none)", code="UNKNOWN_MODEL") >= total / 2
    assert series() == before


@contextmanager
def liveness(server: RunningServer) -> Iterator[Callable[[], bytes]]:
    """What an observer in this process says on /livez of that server's core."""
    folder = Path(f"/proc/{server.ready.pid}/fd")
    records = next(link for link in folder.iterdir() if "tickpath-records" in os.readlink(link))
    fd = os.open(records, os.O_RDWR)
    core = CoreProcess(server.ready.pid)
    try:
        settings = ObserverSettings(fd, "here")
        watching = observer.Observer(Tally(RecordReader(fd), os.memfd_create("tally")), core, settings)
        yield lambda: asyncio.run(watching.answer(Request("GET", "/livez", ""))).body
    finally:
        os.close(core.pidfd)
        os.close(fd)


def test_a_core_that_stands_still_is_not_alive(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "SILENT_NS_MAX", 300_000_000)
    with liveness(server) as said:
        wait_until(lambda: said() == b"alive\n", "alive")
        os.kill(server.ready.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: b"loop has stood still" in said(), "not alive")
        finally:
            os.kill(server.ready.pid, signal.SIGCONT)
        wait_until(lambda: said() == b"alive\n", "alive again")


def descriptors(server: RunningServer) -> int:
    return len(os.listdir(f"/proc/{server.ready.pid}/fd"))


def test_descriptors_go_with_their_clients(server: RunningServer) -> None:
    wait_until(lambda: scrape(server).value("tickpath_sessions") == 0, "no sessions")
    before = descriptors(server)
    peers = [server.peer() for _ in range(40)]
    assert descriptors(server) == before + 40
    for number, peer in enumerate(peers):
        peer.send(slow_one(1) if number < 3 else null(1))
        peer.reset() if number % 2 else peer.close()
    wait_until(lambda: descriptors(server) == before, "their descriptors are closed")


def test_a_storm_of_reconnects_leaves_no_memory_behind(server: RunningServer) -> None:
    def storm(sessions: int) -> None:
        for number in range(sessions):
            with server.peer() as peer:
                peer.send(null(1))
                assert receive(peer) == ("Result", 1)
                if number % 2:
                    peer.reset()

    storm(300)
    before = server.rss_bytes()
    storm(2000)
    # One leaked session is a buffer of 32 KiB: all of them would be 64 MiB, one in twenty 3 MiB.
    assert server.rss_bytes() - before < 3 * 1024 * 1024


def test_idle_is_idle_and_spinning_is_not(server: RunningServer, tmp_path: Path) -> None:
    """Ten models with seven threads against one that spins, over the same second."""
    with serve(tmp_path, write_zoo(tmp_path, "null"), flags=["--spin"]) as spinning:
        wait_until(lambda: scrape(server).value("tickpath_in_flight", model="slow") == 0, "nothing runs")
        idle_s, spun_s = server.cpu_s(), spinning.cpu_s()
        time.sleep(1)
        idle_s, spun_s = server.cpu_s() - idle_s, spinning.cpu_s() - spun_s
        assert spun_s > 20 * idle_s
        assert spun_s > 0
        with spinning.peer() as peer:
            peer.send(null(1))
            assert receive(peer) == ("Result", 1)


class Load(threading.Thread):
    """A client that asks without end, and counts its answers."""

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self.answered = 0
        self.enough = threading.Event()
        self._peer = peer

    def run(self) -> None:
        while not self.enough.is_set():
            self._peer.send(null(self.answered + 1))
            assert receive(self._peer) == ("Result", self.answered + 1)
            self.answered += 1


def test_a_killed_observer_comes_back_with_every_count_and_costs_no_answer(server: RunningServer, peer: Peer) -> None:
    def answered() -> list[float]:
        """By the core's totals; and by the observer's histograms, with what came too fast for it while it was away."""
        seen = scrape(server)
        lost = seen.value("tickpath_records_lost_total")
        return [
            seen.value("tickpath_requests_total", model="null", code="OK"),
            seen.value("tickpath_request_duration_seconds_count", model="null") + lost,
        ]

    url = f"{server.ready.observer}/readyz"
    before = answered()
    assert status(url) == 200
    load = Load(peer)
    load.start()
    try:
        wait_until(lambda: load.answered > 100, "answers")
        (observer,) = children(server.ready.pid)
        os.kill(observer, 9)
        wait_until_ended(observer)
        at_death = load.answered
        wait_until(lambda: status(url) == 200, "another observer")
        assert load.answered > at_death
        assert children(server.ready.pid) != [observer]
    finally:
        load.enough.set()
        load.join()
    settles(answered, before, [load.answered] * 2)
    assert server.log.read_text().count("the observer ended with exit code -9; starting it again") == 1
