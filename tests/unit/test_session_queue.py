"""Requests that wait, over a real connection, for a model that does not go on until it is let: which is refused, when,
and where it is counted."""

import asyncio
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import sleep

import uvloop
from tests.numpy_engine import copy_through
from tests.peer import Peer
from tests.unit.test_session import FLOATS, Server
from tests.versions import make_version

from tickpath.engines import Array
from tickpath.observe.reader import RecordReader, Records
from tickpath.observe.records import RecordWriter, VersionCell, version_base
from tickpath.server.dispatch import OFF, Batching
from tickpath.server.executor import ThreadExecutor
from tickpath.server.version import Version
from tickpath.wire import Cancel, Code, Failure, Infer, Result

SECOND = 1_000_000_000
ROOM = 8


class Model:
    """One on a thread. `entered` rises as a run begins; it goes on when `open` does."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Semaphore(0)
        self.ran: list[list[float]] = []

    def compute(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        self.entered.release()
        assert self.open.acquire(timeout=60)
        self.ran.append([float(row[0]) for row in inputs[0]])
        copy_through(inputs, outputs)

    def starts(self) -> None:
        assert self.entered.acquire(timeout=60)

    def version(self, label: str, place: int, loop: asyncio.AbstractEventLoop, batching: Batching = OFF) -> Version:
        inline = make_version("echo", label, FLOATS, self.compute, place)
        executor = ThreadExecutor(inline.lane, loop, f"echo-{label}", ROOM, None, batching)
        return replace(inline, executor=executor)


class Serving(Server):
    """Version 1 is live; `swap` puts version 2 in its place."""

    def __init__(self, loop: asyncio.AbstractEventLoop, records: RecordWriter) -> None:
        self.models = (Model(), Model())
        self.versions = [model.version(str(i + 1), i, loop) for i, model in enumerate(self.models)]
        super().__init__(loop, records, self.versions[0])
        self._loop = loop
        self._records = records

    @property
    def model(self) -> Model:
        return self.models[0]

    def swap(self) -> None:
        async def change() -> None:
            self.service.catalogue.add(self.versions[1])
            self.service.catalogue.make_live(self.versions[1])

        asyncio.run_coroutine_threadsafe(change(), self._loop).result(60)

    def waits_for(self, count: int) -> None:
        """Returns when so many requests wait for version 1."""
        executor = self.versions[0].executor
        for _ in range(60_000):
            if executor.waiting_count() == count:
                return
            sleep(0.001)
        raise AssertionError(f"{executor.waiting_count()} wait, not {count}")

    def records(self) -> Records:
        """Of all that was answered."""
        return RecordReader(self._records.fd).take()

    def count(self, cell: VersionCell, place: int = 0) -> int:
        return int(RecordReader(self._records.fd).totals()[version_base(place) + cell])

    def codes(self, code: Code, place: int = 0) -> int:
        """How many requests ended so."""
        return int(RecordReader(self._records.fd).totals()[version_base(place) + VersionCell.CODES + code])


def serving(body: Callable[[Serving], None]) -> None:
    """Run `body` on a thread beside a loop with a server."""

    async def main() -> None:
        loop, records = asyncio.get_running_loop(), RecordWriter()
        server = Serving(loop, records)
        accepting = await loop.create_server(server.session, sock=server.listener)
        try:
            await asyncio.to_thread(body, server)
            for model in server.models:
                model.open.release(1000)
            while server.service.sessions or not all(version.executor.idle() for version in server.versions):
                await asyncio.sleep(0.001)
        finally:
            for version in server.versions:
                version.executor.close()
            accepting.close()
            await accepting.wait_closed()
            records.close()

    uvloop.run(main())


def ask(request_id: int, budget_ns: int = 0, priority: int = 0, key: int = 0) -> Infer:
    data = struct.pack("<f", request_id) + bytes(4 * (FLOATS - 1))
    return Infer(request_id, 0, 1, [memoryview(data)], budget_ns, priority, 0, 0, key)


def receive(peer: Peer, count: int) -> list[tuple[str, int]]:
    """Kind (the code of a failure) and id of what comes next."""
    found = []
    for _ in range(count):
        message = peer.receive()
        assert isinstance(message, Result | Failure), message
        found.append((message.code.name if isinstance(message, Failure) else "Result", message.id))
    return found


def test_a_record_says_whose_it_was_and_what_waited_as_it_came() -> None:
    """One runs, and those behind it each find one more that has not begun; a session's number is its turn to come."""

    def body(server: Serving) -> None:
        with Peer(server.connect()) as peer, Peer(server.connect()) as other:
            peer.greet()
            other.greet()
            peer.send(ask(1))
            server.model.starts()
            for request_id, (asking, waiting) in enumerate(((peer, 1), (other, 2), (peer, 3)), 2):
                asking.send(ask(request_id))
                server.waits_for(waiting)
            server.model.open.release(4)
            receive(peer, 3)
            receive(other, 1)
            found = server.records()
        assert {each["id"]: each["queued"] for each in found} == {1: 0, 2: 0, 3: 1, 4: 2}
        sessions = {int(each["id"]): int(each["session"]) for each in found}
        assert sessions[1] == sessions[2] == sessions[4] != sessions[3]
        assert {sessions[1], sessions[3]} == {1, 2}

    serving(body)


def test_only_the_newest_of_a_key_runs() -> None:
    def body(server: Serving) -> None:
        with Peer(server.connect()) as peer, Peer(server.connect()) as other:
            peer.greet()
            other.greet()
            peer.send(ask(1, key=5))
            server.model.starts()
            other.send(ask(9, key=5))
            peer.send(ask(2, key=5), ask(3, key=6), ask(4, key=5), ask(5), ask(6, key=5), ask(7))
            assert receive(peer, 2) == [("SUPERSEDED", 2), ("SUPERSEDED", 4)], "at once: the first still runs"
            server.model.open.release(100)
            assert sorted(receive(peer, 5)) == [("Result", number) for number in (1, 3, 5, 6, 7)]
            assert receive(other, 1) == [("Result", 9)], "a key is its session's own"
        assert server.codes(Code.SUPERSEDED) == 2
        mine = [number for (number,) in server.model.ran if number != 9]
        assert mine == [1, 6, 3, 5, 7], "the newest has the place of the oldest"

    serving(body)


def test_a_newer_one_that_is_refused_changes_nothing() -> None:
    def body(server: Serving) -> None:
        with Peer(server.connect()) as peer:
            peer.greet()
            peer.send(ask(1))
            server.model.starts()
            peer.send(ask(2, key=5), ask(3, key=5, priority=4))
            assert receive(peer, 1) == [("BAD_VALUE", 3)]
            server.model.open.release(100)
            assert receive(peer, 2) == [("Result", 1), ("Result", 2)]

    serving(body)


def test_the_newest_wins_across_a_reload() -> None:
    def body(server: Serving) -> None:
        with Peer(server.connect()) as peer:
            peer.greet()
            peer.send(ask(1, key=5))
            server.models[0].starts()
            peer.send(ask(2, key=5), ask(3, key=6))
            server.waits_for(2)
            server.swap()
            peer.send(ask(4, key=5))
            assert receive(peer, 1) == [("SUPERSEDED", 2)]
            server.models[1].open.release(100)
            assert receive(peer, 1) == [("Result", 4)]
            server.models[0].open.release(100)
            assert receive(peer, 2) == [("Result", 1), ("Result", 3)]
        assert [server.codes(Code.SUPERSEDED, place) for place in (0, 1)] == [1, 0]

    serving(body)


def test_what_is_higher_runs_first() -> None:
    def body(server: Serving) -> None:
        with Peer(server.connect()) as peer:
            assert peer.greet().limits.priority_levels == 4
            peer.send(ask(1, priority=3))
            server.model.starts()
            peer.send(ask(2, priority=3), ask(3, priority=1), ask(4, priority=0), ask(5, priority=1))
            server.model.open.release(100)
            assert receive(peer, 5) == [("Result", number) for number in (1, 4, 3, 5, 2)]

    serving(body)


def test_one_session_leaves_others_their_share_and_their_turn() -> None:
    def body(server: Serving) -> None:
        with Peer(server.connect()) as greedy, Peer(server.connect()) as modest:
            greedy.greet()
            modest.greet()
            greedy.send(ask(1))
            server.model.starts()
            greedy.send(*map(ask, range(2, 21)))
            refused = receive(greedy, 14)
            assert {kind for kind, _ in refused} == {"OVERLOADED"}
            modest.send(ask(1), ask(2))
            server.waits_for(7)
            server.model.open.release(100)
            assert receive(modest, 2) == [("Result", 1), ("Result", 2)]
            assert receive(greedy, 6) == [("Result", number) for number in range(1, 7)]
        assert server.codes(Code.OVERLOADED) == 14

    serving(body)


def test_what_expires_is_answered_while_another_runs() -> None:
    def body(server: Serving) -> None:
        with Peer(server.connect()) as peer:
            peer.greet()
            peer.send(ask(1))
            server.model.starts()
            peer.send(
                ask(2, budget_ns=20_000_000), ask(3), ask(4, budget_ns=30_000_000), ask(5, budget_ns=3600 * SECOND)
            )
            assert receive(peer, 2) == [("DEADLINE", 2), ("DEADLINE", 4)], "and nothing has gone on meanwhile"
            server.model.open.release(100)
            assert receive(peer, 3) == [("Result", 1), ("Result", 3), ("Result", 5)]
        assert server.count(VersionCell.LATE_IN_QUEUE) == 2
        assert server.count(VersionCell.LATE_AT_ADMISSION) == 0

    serving(body)


def test_what_can_not_be_kept_is_refused_as_it_comes() -> None:
    def body(server: Serving) -> None:
        server.versions[0].lane.times[0].mean_ns = server.versions[0].lane.times[0].high_ns = SECOND
        with Peer(server.connect()) as peer:
            peer.greet()
            peer.send(ask(1))
            server.model.starts()
            peer.send(ask(2), ask(3, budget_ns=2 * SECOND), ask(4, budget_ns=100 * SECOND))
            assert receive(peer, 1) == [("DEADLINE", 3)]
            server.model.open.release(100)
            assert receive(peer, 3) == [("Result", 1), ("Result", 2), ("Result", 4)], "what is due first goes first"
        assert server.count(VersionCell.LATE_AT_ADMISSION) == 1

    serving(body)


def test_what_a_lost_client_asked_does_not_run() -> None:
    def body(server: Serving) -> None:
        with Peer(server.connect()) as peer, Peer(server.connect()) as other:
            other.greet()
            peer.greet()
            peer.send(*map(ask, range(1, 5)))
            server.model.starts()
            other.send(ask(9))
            server.waits_for(4)
            peer.reset()
            server.waits_for(1)
            server.model.open.release(100)
            assert receive(other, 1) == [("Result", 9)]
        assert server.codes(Code.CANCELLED) == 3
        assert server.model.ran == [[1], [9]]

    serving(body)


def test_cancel_reaches_what_lies_ready() -> None:
    def body(server: Serving) -> None:
        with Peer(server.connect()) as peer:
            peer.greet()
            peer.send(ask(1))
            server.model.starts()
            peer.send(ask(2), ask(3), Cancel(2), Cancel(1))
            assert receive(peer, 1) == [("CANCELLED", 2)]
            server.model.open.release(100)
            assert receive(peer, 2) == [("Result", 1), ("Result", 3)]

    serving(body)
