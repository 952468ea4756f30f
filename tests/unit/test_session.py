"""A real session on a real TCP connection, in this process: what can't be seen from outside."""

import asyncio
import gc
import socket
import weakref
from collections.abc import Callable

import pytest
import uvloop
from tests.peer import Peer

from tickpath.observe.records import RecordWriter
from tickpath.server.config import make_config
from tickpath.server.listeners import listen_tcp
from tickpath.server.polling import Polling
from tickpath.server.service import Service
from tickpath.server.session import Session
from tickpath.wire import Goodbye, Models


class Noted(Session):
    """A session that the test can find."""

    transport: asyncio.BaseTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        del self.transport
        super().connection_lost(exc)


class Server:
    """Sessions without a model. `sessions` are weak: they keep nothing alive."""

    def __init__(self, loop: asyncio.AbstractEventLoop, records: RecordWriter) -> None:
        config = make_config({"models": [{"path": "none.onnx"}], "write_bytes_max": 1024})
        self.service = Service(config, (), records, loop, 100, Polling(loop, 0))
        self.sessions: list[weakref.ref[Noted]] = []
        self.listener = listen_tcp("127.0.0.1", 0)

    def session(self) -> Noted:
        made = Noted(self.service)
        self.sessions.append(weakref.ref(made))
        return made

    def connect(self) -> socket.socket:
        return socket.create_connection(self.listener.getsockname(), timeout=20)


def serving(body: Callable[[Server], None], after: Callable[[Server], None] = lambda _: None) -> None:
    """Run `body` on a thread beside a loop with a server, then `after` on the loop once all sessions have ended."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        records = RecordWriter()
        server = Server(loop, records)
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


def test_small_replies_leave_at_once() -> None:
    def body(server: Server) -> None:
        with Peer(server.connect()) as peer:
            peer.greet()
            session = server.sessions[0]()
            assert session is not None
            accepted = session.transport.get_extra_info("socket")
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    serving(body)


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
