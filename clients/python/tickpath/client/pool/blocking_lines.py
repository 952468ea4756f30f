"""The sockets of a Pool: one connection to each server, how it comes and how it goes.

Theory of operation
- All of it belongs to the pool's caller, but for opening connections: that may take seconds, so a short-lived thread
  does it, one for each server that is away and due. It hands over what came of it, and a byte in a pipe says so.
  While all servers are there, there is no thread.
- Nothing runs between two calls: what has come meanwhile, and who is to be pinged, is looked at by the next call.
- A connection that took a Goodbye is kept until what is in flight on it is answered; its server is away from then on.
"""

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from select import POLLIN, poll
from time import monotonic_ns
from typing import Any, Final

from tickpath.client.blocking import Client
from tickpath.client.blocking_connection import SocketConnection
from tickpath.client.codec import Codec
from tickpath.client.conversation import Request
from tickpath.client.deadline import Deadline
from tickpath.client.errors import ConnectionLostError, TickpathError, lost, not_connected
from tickpath.client.pool.servers import Duty, Server, Servers, none_ready

NS_PER_MS: Final = 1_000_000


class Opener(Client):
    """Opens connections to one server, and finds its models there, as Client does."""

    def open(self, deadline: Deadline) -> SocketConnection:
        """Raises ConnectError, RefusedError, ProtocolError."""
        return self._open(deadline)

    def find(self, connection: SocketConnection, model: str, deadline: Deadline) -> Codec:
        """The model on this connection. Raises UnknownModelError and what a call raises."""
        return self._codec(connection, model, deadline)


class Line:
    """One connection to one server, and what is asked on it."""

    def __init__(self, server: Server, opener: Opener, connection: SocketConnection) -> None:
        self.server = server
        self.opener = opener
        self.connection = connection
        self.fd = connection.fileno()
        self.asked: set[Request[Any]] = set()
        self.ping: Request[int] | None = None

    def forget(self, request: Request[Any]) -> None:
        """Nobody waits for this request any more."""
        self.asked.discard(request)
        self.connection.forget(request)

    def settle(self, now_ns: int) -> None:
        """Let go of what is answered."""
        for request in self.asked:
            if request.done:
                self.asked = {request for request in self.asked if not request.done}
                self.server.heard(now_ns)
                break
        if self.ping is not None and self.ping.done:
            self.ping = None
            self.server.heard(now_ns)


class Lines:
    """Every server's line. `servers` says what is known of them."""

    def __init__(self, servers: Servers, openers: Sequence[Opener], timeout_s: float) -> None:
        self.servers = servers
        self.look_at_ns = 0
        """When to call `look_after` next."""
        self.errors: dict[Server, TickpathError] = {}
        """Why a server was away the last time."""
        self._pid = os.getpid()
        self._openers = openers
        self._timeout_s = timeout_s
        self._current: list[Line | None] = [None] * len(openers)
        self._by_fd: dict[int, Line] = {}
        self._handing = threading.Lock()
        self._closed = False
        self._news: list[tuple[Server, SocketConnection | TickpathError]] = []
        self._news_fd, self._tell_fd = os.pipe()
        os.set_blocking(self._news_fd, False)
        self._poller = poll()
        self._poller.register(self._news_fd, POLLIN)

    @property
    def ours(self) -> bool:
        """False in a child that was forked since."""
        return self._pid == os.getpid()

    @property
    def has_room(self) -> bool:
        """Whether some server takes one more request now."""
        return any(line is not None and line.connection.has_room for line in self._current)

    def connect(self, deadline: Deadline) -> None:
        """Try every server once. Raises ConnectError, or what a server refused with, if none is there."""
        self.look_after(monotonic_ns())
        while any(server.connecting for server in self.servers.all) and deadline.left_s():
            self.wait(deadline.at_ns())
        if not any(server.ready for server in self.servers.all):
            raise none_ready(self.servers, self.errors)

    def line(self, server: Server) -> Line:
        """The server's line, once what has come on it is looked at. Raises ConnectError, and the server is away."""
        line = self._current[server.place]
        if line is not None:
            try:
                line.connection.take_arrived()
            except TickpathError as error:
                self._lose(line, error)
            else:
                self._settle(line)
            if self._current[server.place] is line:
                return line
        raise not_connected(server.address)

    def send(self, line: Line, request: Request[Any], deadline: Deadline) -> None:
        """Raises what a connection's `send` does; if it has ended, all that is asked on it has failed too."""
        try:
            line.connection.send(request.frame, deadline)
        except TickpathError as error:
            self._lose(line, error if isinstance(error, ConnectionLostError) else lost(line.server.address, error))
            raise
        line.asked.add(request)

    def wait(self, until_ns: int) -> None:
        """Until something came from a server, or this time or the next duty is there; then see to both."""
        left_ns = min(until_ns, self.look_at_ns) - monotonic_ns()
        for fd, _ in self._poller.poll(max(0, -(-left_ns // NS_PER_MS))):
            if fd == self._news_fd:
                self._take_news()
            elif (line := self._by_fd.get(fd)) is not None:
                self._receive(line)
        now_ns = monotonic_ns()
        if now_ns >= self.look_at_ns:
            self.look_after(now_ns)

    def look_after(self, now_ns: int) -> None:
        """Do what servers need now: connect, ping, give up."""
        for server in self.servers.all:
            match server.duty(now_ns):
                case Duty.CONNECT:
                    self._connect(server)
                case Duty.PING if line := self._current[server.place]:
                    self._ping(line, now_ns)
                case Duty.GIVE_UP if line := self._current[server.place]:
                    self._receive(line)  # its answer may have come while nobody looked
                    if server.duty(monotonic_ns()) is Duty.GIVE_UP:
                        self._lose(line, lost(server.address, "it does not answer a ping"))
        self.look_at_ns = min(server.due_ns() for server in self.servers.all)

    def close(self) -> None:
        """Say goodbye to all; in a forked child, only let go of them."""
        if self.ours:  # in a child the lock may be held for ever, by a thread that is not there
            with self._handing:
                self._closed = True
                self._take_handed()
        os.close(self._tell_fd)
        for line in list(self._by_fd.values()):
            line.connection.leave()
            line.server.lost(monotonic_ns())
        self._by_fd.clear()
        self._current = [None] * len(self._current)
        os.close(self._news_fd)

    def _connect(self, server: Server) -> None:
        server.connecting = True
        arguments = server, self._openers[server.place], Deadline.after(self._timeout_s)
        threading.Thread(target=self._open, args=arguments, name=f"connect {server.address}", daemon=True).start()

    def _open(self, server: Server, opener: Opener, deadline: Deadline) -> None:
        outcome: SocketConnection | TickpathError
        try:
            outcome = opener.open(deadline)
        except TickpathError as error:
            outcome = error
        with self._handing:
            if not self._closed:
                self._news.append((server, outcome))
                os.write(self._tell_fd, b"\0")
            elif isinstance(outcome, SocketConnection):
                outcome.leave()

    def _take_news(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._news_fd, 4096)
        with self._handing:
            self._take_handed()

    def _take_handed(self) -> None:
        for server, outcome in self._news:
            if isinstance(outcome, SocketConnection):
                line = Line(server, self._openers[server.place], outcome)
                self._current[server.place] = self._by_fd[line.fd] = line
                self._poller.register(line.fd, POLLIN)
                self.errors.pop(server, None)
                server.opened(monotonic_ns())
            else:
                self.errors[server] = outcome
                server.lost(monotonic_ns())
        self._news.clear()
        self.look_at_ns = 0

    def _ping(self, line: Line, now_ns: int) -> None:
        request = line.connection.conversation.ping()
        try:
            line.connection.send(request.frame, Deadline.after(0))
        except TickpathError as error:
            self._lose(line, lost(line.server.address, error))
        else:
            line.ping = request
            line.server.pinged(now_ns)

    def _receive(self, line: Line) -> None:
        try:
            line.connection.receive()
        except TickpathError as error:
            self._lose(line, error)
        else:
            self._settle(line)

    def _settle(self, line: Line) -> None:
        line.settle(monotonic_ns())
        if line.connection.takes_more:
            return
        self._away(line)
        if not line.asked:
            self._drop(line)
            line.connection.leave()

    def _lose(self, line: Line, error: TickpathError) -> None:
        """Its connection has ended: so has all that is asked on it, each with an exception of its own."""
        self.errors[line.server] = error
        for request in line.asked:
            if not request.done:
                request.fail(type(error)(*error.args))
        line.asked.clear()
        self._away(line)
        self._drop(line)
        line.connection.close()

    def _drop(self, line: Line) -> None:
        if self._by_fd.get(line.fd) is line:  # a descriptor that was closed may be another connection's by now
            del self._by_fd[line.fd]
            self._poller.unregister(line.fd)

    def _away(self, line: Line) -> None:
        server = line.server
        if self._current[server.place] is line:
            self._current[server.place] = None
            server.lost(monotonic_ns())
            self.look_at_ns = min(self.look_at_ns, server.due_ns())
