"""A real session on a real TCP connection, in this process: what can't be seen from outside."""

import asyncio
import gc
import socket
import weakref
from collections.abc import Callable, Sequence
from time import monotonic_ns

import pytest
import uvloop
from tests.numpy_engine import Compute, copy_through
from tests.peer import Peer
from tests.versions import catalogue_of, make_version

from tickpath.engines import Array
from tickpath.observe.reader import RecordReader
from tickpath.observe.records import RecordWriter, VersionCell, version_base
from tickpath.server import session as session_module
from tickpath.server.config import make_config
from tickpath.server.listeners import KEEPALIVE, listen_tcp
from tickpath.server.polling import Polling
from tickpath.server.service import Service
from tickpath.server.session import Session
from tickpath.server.version import Version
from tickpath.wire import Goodbye, Infer, Models, Result

FLOATS = 64


class Noted(Session):
    """A session that the test can find, and that says when it has answered."""

    transport: asyncio.BaseTransport

    def __init__(self, server: "Server") -> None:
        super().__init__(server.service)
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        del self.transport
        super().connection_lost(exc)

    def _send(self, frame: bytes) -> None:
        super()._send(frame)
        self._server.answered(self)


class Server:
    """Sessions, and one model that echoes. `sessions` are weak: they keep nothing alive. `answered` is called on the
    loop's thread after each answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, records: RecordWriter, version: Version) -> None:
        config = make_config({"models": [{"path": "none.onnx"}], "write_bytes_max": 1024})
        self.service = Service(config, catalogue_of(version), records, loop, 100, Polling(loop, 0))
        self.sessions: list[weakref.ref[Noted]] = []
        self.answered: Callable[[Noted], None] = lambda _: None
        self.listener = listen_tcp("127.0.0.1", 0)

    def session(self) -> Noted:
        made = Noted(self)
        self.sessions.append(weakref.ref(made))
        return made

    def connect(self) -> socket.socket:
        return socket.create_connection(self.listener.getsockname(), timeout=20)


def serving(
    body: Callable[[Server], None],
    after: Callable[[Server], None] = lambda _: None,
    compute: Compute = copy_through,
) -> None:
    """Run `body` on a thread beside a loop with a server, then `after` on the loop once all sessions have ended."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        records = RecordWriter()
        server = Server(loop, records, make_version("echo", floats=FLOATS, compute=compute))
        accepting = await loop.create_server(server.session, sock=server.listener)
        try:
            await asyncio.to_thread(body, server)
            while server.service.sessions:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.001)
            after(server)
        finally:
            accepting.close()
            await accepting.wait_closed()
            records.close()

    uvloop.run(main())


def test_small_replies_leave_at_once_and_dead_peers_are_noticed() -> None:
    def body(server: Server) -> None:
        with Peer(server.connect()) as peer:
            peer.greet()
            session = server.sessions[0]()
            assert session is not None
            accepted = session.transport.get_extra_info("socket")
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert {option: accepted.getsockopt(socket.IPPROTO_TCP, option) for option in KEEPALIVE} == KEEPALIVE

    serving(body)


def ask(request_id: int, budget_ns: int = 0) -> Infer:
    return Infer(request_id, 0, 1, [memoryview(bytes(4 * FLOATS))], budget_ns)


def results(peer: Peer, count: int) -> list[Result]:
    """What comes next: answers to requests 1 to `count`, in this order."""
    replies = [peer.receive() for _ in range(count)]
    assert [reply.id for reply in replies if isinstance(reply, Result)] == list(range(1, count + 1))
    return [reply for reply in replies if isinstance(reply, Result)]


def test_who_sends_a_flood_lets_others_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred requests come in one segment, and while the first is answered another client asks one thing."""
    monkeypatch.setattr(session_module, "TURN_NS", 0)
    answered: list[str] = []

    def body(server: Server) -> None:
        with Peer(server.connect()) as flooding, Peer(server.connect()) as other:
            flooding.greet()
            other.greet()

            def note(session: Noted) -> None:
                answered.append("flooding" if session is server.sessions[0]() else "other")
                if len(answered) == 1:
                    other.send(ask(1))

            server.answered = note
            flooding.send(*map(ask, range(1, 101)))
            results(other, 1)
            results(flooding, 100)

    serving(body)
    assert answered.count("flooding") == 100
    assert answered.index("other") < 10


def waits_for_its_turn(_session: Noted) -> None:
    """Its first turn is over."""


def waits_for_its_reader(session: Noted) -> None:
    session.pause_writing()
    session._service.loop.call_soon(session.resume_writing)


@pytest.mark.parametrize(("turn_ns", "wait"), [(0, waits_for_its_turn), (10**9, waits_for_its_reader)])
def test_what_waits_in_the_buffer_was_received_when_it_came(
    monkeypatch: pytest.MonkeyPatch, turn_ns: int, wait: Callable[[Noted], None]
) -> None:
    monkeypatch.setattr(session_module, "TURN_NS", turn_ns)

    def body(server: Server) -> None:
        with Peer(server.connect()) as peer:
            peer.greet()
            server.answered = wait
            peer.send(*map(ask, range(1, 11)))
            first_byte, received, started, *_ = zip(*(result.stamps for result in results(peer, 10)), strict=True)
        assert set(first_byte) == set(received) == {received[0]}
        assert sorted(set(started)) == list(started)

    serving(body)


def test_an_answer_that_is_too_late_is_given_and_counted() -> None:
    """The model had begun in time, and took longer than it was known to."""
    budget_ns = 50_000_000

    def overrun(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        copy_through(inputs, outputs)
        late_ns = monotonic_ns() + budget_ns
        while monotonic_ns() <= late_ns:
            pass

    def body(server: Server) -> None:
        reader = RecordReader(server.service.records.fd)
        with Peer(server.connect()) as peer:
            peer.greet()
            peer.send(ask(1, budget_ns), ask(2))
            results(peer, 2)
        assert reader.totals()[version_base(0) + VersionCell.LATE_ANSWERS] == 1

    serving(body, compute=overrun)


def leaves(_peer: Peer) -> None:
    """Closes."""


def resets(peer: Peer) -> None:
    peer.reset()


def says_goodbye(peer: Peer) -> None:
    peer.send(Goodbye())
    assert peer.receive() is None


def breaks_off(peer: Peer) -> None:
    peer.socket.sendall(peer.frame(Models(1))[:-1])


def is_refused(peer: Peer) -> None:
    peer.socket.sendall(b"\0\0\0\0")
    assert peer.receive() is not None
    assert peer.receive() is None


def reads_late(peer: Peer) -> None:
    """Has the server wait for it, and leaves it waiting."""
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.send(*[Models(1)] * 50_000)
    assert peer.receive() is not None


@pytest.mark.parametrize("ending", [leaves, resets, says_goodbye, breaks_off, is_refused, reads_late])
def test_a_session_goes_with_its_connection_and_waits_for_no_collector(ending: Callable[[Peer], None]) -> None:
    """The collector is off while a server serves: in a cycle, 32 KiB of buffer would stay for each client that left."""

    def body(server: Server) -> None:
        with Peer(server.connect()) as peer:
            peer.greet()
            ending(peer)

    def after(server: Server) -> None:
        assert len(server.sessions) == 1
        assert [session() for session in server.sessions] == [None]

    gc.disable()
    try:
        serving(body, after)
    finally:
        gc.enable()
