"""The asyncio client, for one event loop, asyncio's own or uvloop: calls of many tasks share one connection."""

import asyncio
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from tickpath.client.address import parse_address
from tickpath.client.aio_connection import AioConnection, open_connection
from tickpath.client.aio_feed import AsyncFeed
from tickpath.client.codec import Codec, Inputs
from tickpath.client.conversation import IN_FLIGHT, Conversation, Options, Request
from tickpath.client.deadline import Deadline
from tickpath.client.errors import (
    ConnectError,
    ConnectionLostError,
    RefusedError,
    RequestTimeoutError,
    lost,
    no_welcome,
    not_connected,
    unreachable,
)
from tickpath.client.feed_codec import Progress
from tickpath.client.prediction import Prediction
from tickpath.client.reconnect import RECONNECT, Reconnect
from tickpath.client.tls import Tls, tls_for
from tickpath.client.token import Token, token_now
from tickpath.wire import Limits, ModelInfo


class AsyncClient:
    """A connection to a tickpath server, for one event loop: any number of tasks may call it, and all share the
    connection.

        async with AsyncClient("127.0.0.1:7070") as client:
            prediction = await client.infer("mlp", np.zeros((1, 64), np.float32))

    Takes what `Client` takes and has its methods, each to be awaited. One request more than the server allows in flight
    (`limits.in_flight_max`) is refused at once with OverloadedError. A task that is cancelled takes its request back.
    Raises RuntimeError where it is used from another event loop than the one it was connected in.
    """

    def __init__(
        self,
        address: str | tuple[str, int],
        *,
        name: str = "python-asyncio",
        token: Token = "",
        tls: Tls | None = None,
        timeout_s: float = 5.0,
        reconnect: Reconnect | None = RECONNECT,
    ) -> None:
        self._address = parse_address(address)
        self._name = name
        self._token = token
        self._tls = tls_for(self._address, tls)
        self._timeout_s = timeout_s
        self._reconnect = reconnect
        self._connection: AioConnection | None = None
        self._connections: set[AioConnection] = set()
        self._connecting = asyncio.Lock()
        self._closed = False

    def __repr__(self) -> str:
        return f"AsyncClient({str(self._address)!r})"

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """As Client.connect."""
        self._closed = False
        if self._usable_connection() is None:
            await self._open_shared(None, self._deadline(None))

    async def close(self) -> None:
        """As Client.close; what is in flight raises ConnectionLostError."""
        self._closed = True
        connections = set(self._connections)
        for connection in connections:
            connection.end(lost(self._address, "this client was closed"))
        if connections:
            await asyncio.wait({connection.closed for connection in connections}, timeout=self._timeout_s)
        for connection in connections & self._connections:
            connection.abort()

    @property
    def limits(self) -> Limits:
        """As Client.limits."""
        return self._last_connection.conversation.welcome.limits

    @property
    def server(self) -> str:
        """As Client.server."""
        return self._last_connection.conversation.welcome.server

    async def models(self, *, versions: bool = False, timeout_s: float | None = None) -> tuple[ModelInfo, ...]:
        """As Client.models."""
        deadline = self._deadline(timeout_s)
        connection = self._usable_connection() or await self._open_again(deadline)
        return await connection.answer(connection.conversation.models(versions), deadline)

    async def model(self, name: str, *, timeout_s: float | None = None) -> ModelInfo:
        """As Client.model."""
        deadline = self._deadline(timeout_s)
        connection = self._usable_connection() or await self._open_again(deadline)
        return (await codec_of(connection, name, deadline)).info

    async def ping(self, *, timeout_s: float | None = None) -> int:
        """As Client.ping."""
        deadline = self._deadline(timeout_s)
        connection = self._usable_connection() or await self._open_again(deadline)
        return await connection.answer(connection.conversation.ping(), deadline)

    async def infer(
        self,
        model: str,
        inputs: Inputs,
        *,
        rows: int | None = None,
        budget_ns: int = 0,
        event_time_ns: int = 0,
        priority: int = 0,
        key: int = 0,
        timeout_s: float | None = None,
    ) -> Prediction:
        """As Client.infer. The inputs may be changed as soon as this awaits."""
        deadline = self._deadline(timeout_s)
        connection = self._usable_connection() or await self._open_again(deadline)
        codec = connection.conversation.codec(model) or await _looked_up(connection, model, deadline)
        request = connection.conversation.infer(codec, inputs, rows, budget_ns, event_time_ns, priority, key)
        return await connection.answer(request, deadline)

    async def infer_many(
        self,
        model: str,
        inputs: Iterable[Inputs],
        *,
        in_flight: int = IN_FLIGHT,
        rows: int | None = None,
        budget_ns: int = 0,
        event_time_ns: int = 0,
        priority: int = 0,
        timeout_s: float | None = None,
    ) -> list[Prediction | RefusedError]:
        """As Client.infer_many."""
        await self.model(model, timeout_s=timeout_s)
        options = rows, budget_ns, event_time_ns, priority
        outcomes: list[Prediction | RefusedError] = []
        waiting: deque[tuple[AioConnection, Request[Prediction]]] = deque()
        try:
            for each in inputs:
                while waiting and (len(waiting) >= in_flight or waiting[-1][0].conversation.full):
                    outcomes.append(await _oldest(waiting))
                waiting.append(await self._begin(model, each, options, self._deadline(timeout_s)))
            while waiting:
                outcomes.append(await _oldest(waiting))
        finally:
            for connection, request in waiting:
                connection.take_back(request)
        return outcomes

    async def open_feed(
        self, model: str, key: str, *, anew: bool = False, snapshot: bytes | None = None, timeout_s: float | None = None
    ) -> AsyncFeed:
        """As Client.open_feed."""
        feed = AsyncFeed(self._ready, codec_of, self._deadline, Progress(model, key))
        if anew:
            await feed.reset(timeout_s=timeout_s)
        elif snapshot is not None:
            await feed.restore(snapshot, timeout_s=timeout_s)
        else:
            await feed.resume(timeout_s=timeout_s)
        return feed

    async def _ready(self, deadline: Deadline) -> AioConnection:
        return self._usable_connection() or await self._open_again(deadline)

    async def _begin(
        self, model: str, inputs: Inputs, options: Options, deadline: Deadline
    ) -> tuple[AioConnection, Request[Prediction]]:
        connection = self._usable_connection() or await self._open_again(deadline)
        try:
            codec = connection.conversation.codec(model) or await _looked_up(connection, model, deadline)
            request = connection.conversation.infer(codec, inputs, *options)
        except RefusedError as refused:
            return connection, Request.refused(refused)
        connection.send(request, deadline)
        return connection, request

    def _deadline(self, timeout_s: float | None) -> Deadline:
        return Deadline.after(self._timeout_s if timeout_s is None else timeout_s)

    def _usable_connection(self) -> AioConnection | None:
        connection = self._connection
        if connection is None or not connection.takes_more:
            return None
        if asyncio.get_running_loop() is not connection.loop:
            raise RuntimeError("this AsyncClient is connected in another event loop: give each loop its own")
        return connection

    async def _open_again(self, deadline: Deadline) -> AioConnection:
        if self._closed or self._reconnect is None:
            raise not_connected(self._address)
        return await self._open_shared(self._reconnect, deadline)

    async def _open_shared(self, reconnect: Reconnect | None, deadline: Deadline) -> AioConnection:
        """A usable connection: of all tasks that come here at once, one opens it. `reconnect` None: in one attempt."""
        try:
            async with asyncio.timeout(deadline.left_s()), self._connecting:
                connection = self._usable_connection()
                if connection is None:
                    connection = await self._open_repeatedly(reconnect, deadline)
                    self._replace(connection)
        except TimeoutError:
            raise unreachable(self._address, f"not within {deadline.timeout_s:g} s") from None
        return connection

    def _replace(self, connection: AioConnection) -> None:
        if self._closed:
            connection.abort()
            raise not_connected(self._address)
        if self._connection is not None:
            self._connection.leave()
        self._connection = connection
        self._connections.add(connection)
        connection.closed.add_done_callback(lambda _: self._connections.discard(connection))

    async def _open_repeatedly(self, reconnect: Reconnect | None, deadline: Deadline) -> AioConnection:
        if reconnect is None:
            return await self._open(deadline)
        for wait_s in reconnect.waits_s():
            try:
                return await self._open(deadline)
            except ConnectError:
                if wait_s >= deadline.left_s():
                    raise
            await asyncio.sleep(wait_s)
        raise AssertionError("waits have no end")

    async def _open(self, deadline: Deadline) -> AioConnection:
        conversation = Conversation(str(self._address), self._name, token_now(self._token))
        try:
            connection = await open_connection(self._address, self._tls, conversation)
        except (OSError, UnicodeError) as error:  # UnicodeError: no name can be like this one
            raise unreachable(self._address, error) from None
        try:
            await connection.answer(conversation.hello(), deadline)
        except (RequestTimeoutError, ConnectionLostError) as error:
            connection.abort()
            raise no_welcome(self._address, error) from None
        except BaseException:
            connection.abort()
            raise
        return connection

    @property
    def _last_connection(self) -> AioConnection:
        if self._connection is None:
            raise not_connected(self._address)
        return self._connection


async def codec_of(connection: AioConnection, model: str, deadline: Deadline) -> Codec:
    """The model on this connection: the server is asked where it is not known yet. Raises UnknownModelError."""
    return connection.conversation.codec(model) or await _looked_up(connection, model, deadline)


async def _looked_up(connection: AioConnection, model: str, deadline: Deadline) -> Codec:
    """Ask the server, and look again. Raises UnknownModelError."""
    conversation = connection.conversation
    await connection.answer(conversation.look_up(model), deadline)
    codec = conversation.codec(model)
    if codec is None:
        raise conversation.unknown_model(model)
    return codec


async def _oldest(waiting: deque[tuple[AioConnection, Request[Prediction]]]) -> Prediction | RefusedError:
    connection, request = waiting[0]
    await connection.wait_for(request)
    waiting.popleft()
    return request.answer()
