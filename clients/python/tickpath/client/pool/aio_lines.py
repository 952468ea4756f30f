"""The connections of an AsyncPool: one to each server, each looked after by a task of its own.

Theory of operation
- A server's task opens its connection, pings it when it has been silent, and opens another when it is gone. Whoever
  finds that a connection takes no more requests tells the task.
- A connection that took a Goodbye closes once what is in flight on it is answered.
"""

import asyncio
from collections.abc import Sequence
from time import monotonic_ns
from typing import Final

from tickpath.client.aio import AsyncClient
from tickpath.client.aio_connection import AioConnection
from tickpath.client.deadline import Deadline
from tickpath.client.errors import (
    ConnectionLostError,
    RequestTimeoutError,
    TickpathError,
    lost,
    not_connected,
    unreachable,
)
from tickpath.client.pool.options import Health
from tickpath.client.pool.servers import Duty, Server, Servers

# A loop that was busy meanwhile may look at its timers before its sockets: one silence is no proof, two in turn are.
PINGS: Final = 2


class AsyncOpener(AsyncClient):
    """Opens connections to one server as AsyncClient does."""

    async def open(self, deadline: Deadline) -> AioConnection:
        """Raises ConnectError, RefusedError, ProtocolError."""
        try:
            async with asyncio.timeout(deadline.left_s()):
                return await self._open(deadline)
        except TimeoutError:
            raise unreachable(self._address, f"not within {deadline.timeout_s:g} s") from None


class AioLines:
    """Every server's connection. `servers` says what is known of them."""

    def __init__(self, servers: Servers, openers: Sequence[AsyncOpener], health: Health, timeout_s: float) -> None:
        self.servers = servers
        self.errors: dict[Server, TickpathError] = {}
        """Why a server was away the last time."""
        self.loop = asyncio.get_running_loop()
        self._pong_s_max = health.pong_s_max
        self._timeout_s = timeout_s
        self._current: list[AioConnection | None] = [None] * len(openers)
        self._all: set[AioConnection] = set()
        self._gone = [asyncio.Event() for _ in openers]
        self._tried = [self.loop.create_future() for _ in openers]
        self._waiting: set[asyncio.Future[None]] = set()
        self._keepers = [
            self.loop.create_task(self._keep(server, opener))
            for server, opener in zip(servers.all, openers, strict=True)
        ]

    async def tried(self, deadline: Deadline) -> None:
        """Until every server was tried once, or the time is over."""
        await asyncio.wait(self._tried, timeout=deadline.left_s())

    async def some_ready(self, deadline: Deadline) -> None:
        """Until a server comes back, or the time is over."""
        back = self.loop.create_future()
        self._waiting.add(back)
        try:
            await asyncio.wait({back}, timeout=deadline.left_s())
        finally:
            self._waiting.discard(back)

    def connection(self, server: Server) -> AioConnection:
        """The server's connection. Raises ConnectError, and the server is away."""
        connection = self._current[server.place]
        if connection is None or not connection.takes_more:
            self._away(server, connection)
            raise not_connected(server.address)
        return connection

    def room(self) -> int:
        """How many requests all servers together take at once."""
        ready = [connection for connection in self._current if connection is not None]
        return sum(connection.conversation.welcome.limits.in_flight_max for connection in ready)

    async def close(self, error: TickpathError) -> None:
        """End all connections: what is in flight fails with this error."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        connections = set(self._all)
        for connection in connections:
            connection.end(error)
        if connections:
            await asyncio.wait({connection.closed for connection in connections}, timeout=self._timeout_s)
        for connection in connections & self._all:
            connection.abort()

    async def _keep(self, server: Server, opener: AsyncOpener) -> None:
        while True:
            connection = await self._opened(server, opener)
            await self._watch(server, connection)
            self._away(server, connection)
            connection.leave()

    async def _opened(self, server: Server, opener: AsyncOpener) -> AioConnection:
        while True:
            await asyncio.sleep((server.due_ns() - monotonic_ns()) / 1e9)
            try:
                connection = await opener.open(Deadline.after(self._timeout_s))
            except TickpathError as error:
                self.errors[server] = error
                server.lost(monotonic_ns())
                self._tell(server)
            else:
                self._take(server, connection)
                return connection

    def _take(self, server: Server, connection: AioConnection) -> None:
        self._gone[server.place].clear()
        self._current[server.place] = connection
        self._all.add(connection)
        self.errors.pop(server, None)
        connection.closed.add_done_callback(lambda _: self._closed(server, connection))
        server.opened(monotonic_ns())
        self._tell(server)

    def _tell(self, server: Server) -> None:
        if not self._tried[server.place].done():
            self._tried[server.place].set_result(None)
        if server.ready:
            for waiting in self._waiting:
                if not waiting.done():
                    waiting.set_result(None)

    async def _watch(self, server: Server, connection: AioConnection) -> None:
        """Until it takes no more requests."""
        while connection.takes_more:
            try:
                async with asyncio.timeout(max(0, server.due_ns() - monotonic_ns()) / 1e9):
                    await self._gone[server.place].wait()
            except TimeoutError:
                if server.duty(monotonic_ns()) is Duty.PING and not await self._answers(server, connection):
                    error = lost(server.address, "it does not answer a ping")
                    self.errors[server] = error
                    connection.end(error)
                    connection.abort()

    async def _answers(self, server: Server, connection: AioConnection) -> bool:
        server.pinged(monotonic_ns())
        for _ in range(PINGS):
            try:
                await connection.answer(connection.conversation.ping(), Deadline.after(self._pong_s_max / PINGS))
            except RequestTimeoutError:
                continue
            except TickpathError:
                return False
            server.heard(monotonic_ns())
            return True
        return False

    def _closed(self, server: Server, connection: AioConnection) -> None:
        self._all.discard(connection)
        self._away(server, connection)

    def _away(self, server: Server, connection: AioConnection | None) -> None:
        if connection is not None and self._current[server.place] is connection:
            self._current[server.place] = None
            self.errors.setdefault(server, ConnectionLostError(f"the connection to {server.address} was lost"))
            server.lost(monotonic_ns())
            self._gone[server.place].set()
