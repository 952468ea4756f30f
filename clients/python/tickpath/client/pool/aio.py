"""The asyncio pool, for one event loop: calls of many tasks share its connections."""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from time import monotonic_ns
from types import TracebackType
from typing import Self, Unpack

from tickpath.client.aio import codec_of
from tickpath.client.aio_connection import AioConnection
from tickpath.client.aio_feed import AsyncFeed
from tickpath.client.codec import Inputs
from tickpath.client.conversation import IN_FLIGHT
from tickpath.client.deadline import Deadline
from tickpath.client.errors import ConnectError, RefusedError, TickpathError, lost
from tickpath.client.feed_codec import Progress
from tickpath.client.pool.aio_lines import AioLines, AsyncOpener
from tickpath.client.pool.asking import Asking, held
from tickpath.client.pool.call import Call
from tickpath.client.pool.course import Course
from tickpath.client.pool.hedging import Hedging
from tickpath.client.pool.options import HEALTH, Health, Hedge, SessionOptions
from tickpath.client.pool.servers import NEVER_NS, Server, Servers, distinct, none_ready
from tickpath.client.prediction import Prediction
from tickpath.client.reconnect import RECONNECT, Reconnect
from tickpath.wire import ModelInfo


class AsyncPool:
    """As Pool, for one event loop: any number of tasks may call it, each method to be awaited.

        async with AsyncPool(["10.0.0.1:7070", "10.0.0.2:7070"], hedge=Hedge(percentile=99)) as pool:
            prediction = await pool.infer("mlp", np.zeros((1, 64), np.float32))

    A task for each server keeps its connection, from `connect` to `close`. A caller's task that is cancelled takes its
    requests back. Raises RuntimeError where it is used from another event loop than the one it was connected in.
    """

    def __init__(
        self,
        addresses: Sequence[str | tuple[str, int]],
        *,
        timeout_s: float = 5.0,
        hedge: Hedge | None = None,
        health: Health = HEALTH,
        reconnect: Reconnect = RECONNECT,
        **session: Unpack[SessionOptions],
    ) -> None:
        self._addresses = distinct(addresses)
        self._openers = [AsyncOpener(address, timeout_s=timeout_s, **session) for address in addresses]
        self._timeout_s = timeout_s
        self._health = health
        self._reconnect = reconnect
        self._hedging = Hedging(hedge)
        self._connecting = asyncio.Lock()
        self._open: AioLines | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"AsyncPool({self._addresses!r})"

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """As Pool.connect."""
        self._closed = False
        await self._ready_lines(self._deadline(None))

    async def close(self) -> None:
        """As Pool.close; what is in flight raises ConnectionLostError."""
        self._closed = True
        lines, self._open = self._open, None
        if lines is not None:
            await lines.close(lost(", ".join(self._addresses), "this pool was closed"))

    @property
    def servers(self) -> tuple[Server, ...]:
        """As Pool.servers."""
        return self._open.servers.all if self._open is not None else ()

    async def model(self, name: str, *, timeout_s: float | None = None) -> ModelInfo:
        """As Pool.model."""
        deadline = self._deadline(timeout_s)
        lines = await self._ready_lines(deadline)
        refused: TickpathError | None = None
        for server in lines.servers.all:
            try:
                return (await codec_of(lines.connection(server), name, deadline)).info
            except ConnectError:
                continue
            except RefusedError as error:
                refused = error
        raise refused or none_ready(lines.servers, lines.errors)

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
        """As Pool.infer. The inputs may be changed as soon as this awaits."""
        deadline = self._deadline(timeout_s)
        asking = Asking(model, held(inputs), rows, budget_ns, event_time_ns, priority, key)
        lines = self._usable_lines() or await self._ready_lines(deadline)
        call: Call[AioConnection] = Call(Course(lines.servers, self._hedging, asking.route), asking, deadline)
        try:
            await _advance(lines, call)
            while not call.course.over:
                await _news(lines, call)
                await _advance(lines, call)
        finally:
            for connection, request in call.let_go(monotonic_ns()):
                connection.take_back(request)
        return call.result()

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
        """As Pool.infer_many."""
        lines = await self._ready_lines(self._deadline(timeout_s))
        outcomes: list[Prediction | RefusedError] = []
        waiting: deque[asyncio.Task[Prediction]] = deque()
        try:
            for each in inputs:
                while waiting and len(waiting) >= min(in_flight, lines.room()):
                    outcomes.append(await _oldest(waiting))
                call = self.infer(
                    model,
                    held(each),
                    rows=rows,
                    budget_ns=budget_ns,
                    event_time_ns=event_time_ns,
                    priority=priority,
                    timeout_s=timeout_s,
                )
                waiting.append(lines.loop.create_task(call))
            while waiting:
                outcomes.append(await _oldest(waiting))
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        return outcomes

    async def open_feed(
        self, model: str, key: str, *, anew: bool = False, snapshot: bytes | None = None, timeout_s: float | None = None
    ) -> AsyncFeed:
        """As Pool.open_feed."""

        async def ready(deadline: Deadline) -> AioConnection:
            return await self._home(key, deadline)

        feed = AsyncFeed(ready, codec_of, self._deadline, Progress(model, key))
        if anew:
            await feed.reset(timeout_s=timeout_s)
        elif snapshot is not None:
            await feed.restore(snapshot, timeout_s=timeout_s)
        else:
            await feed.resume(timeout_s=timeout_s)
        return feed

    async def _home(self, key: str, deadline: Deadline) -> AioConnection:
        """A connection to this key's server."""
        lines = self._usable_lines() or await self._ready_lines(deadline)
        while True:
            server = lines.servers.choose(monotonic_ns(), key, ())
            if server is not None:
                try:
                    return lines.connection(server)
                except ConnectError:
                    continue
            if not deadline.left_s():
                raise none_ready(lines.servers, lines.errors)
            await lines.some_ready(deadline)

    def _deadline(self, timeout_s: float | None) -> Deadline:
        return Deadline.after(self._timeout_s if timeout_s is None else timeout_s)

    def _usable_lines(self) -> AioLines | None:
        lines = self._open
        if lines is not None and asyncio.get_running_loop() is not lines.loop:
            raise RuntimeError("this AsyncPool is connected in another event loop: give each loop its own")
        return lines

    async def _ready_lines(self, deadline: Deadline) -> AioLines:
        """The lines, opened where they are not yet: of all tasks that come here at once, one opens them."""
        async with self._connecting:
            lines = self._usable_lines()
            if lines is None:
                if self._closed:
                    raise ConnectError("this pool is closed: call connect() first")
                lines = await self._open_lines(deadline)
            return lines

    async def _open_lines(self, deadline: Deadline) -> AioLines:
        servers = Servers.of(self._addresses, self._health, self._reconnect)
        lines = AioLines(servers, self._openers, self._health, self._timeout_s)
        try:
            await lines.tried(deadline)
            if not any(server.ready for server in servers.all):
                raise none_ready(servers, lines.errors)
        except BaseException:
            await lines.close(lost(", ".join(self._addresses), "this pool was not opened"))
            raise
        self._open = lines
        return lines


async def _advance(lines: AioLines, call: Call[AioConnection]) -> None:
    """Take what has come for this call, and ask whom its course says."""
    now_ns = monotonic_ns()
    call.collect(now_ns)
    while (server := call.course.next(now_ns)) is not None:
        try:
            connection = lines.connection(server)
            conversation = connection.conversation
            codec = conversation.codec(call.asking.model) or await codec_of(
                connection, call.asking.model, call.deadline
            )
            request = call.asking.request(conversation, codec, call.course.spent_ns(now_ns))
        except TickpathError as error:
            call.course.failed(server, error, now_ns)
        else:
            call.requests[server] = connection, request
            connection.send(request, call.deadline)


async def _news(lines: AioLines, call: Call[AioConnection]) -> None:
    """Until something has become of what is asked, another server is to be asked, or one is back."""
    if not call.requests:
        await lines.some_ready(call.deadline)
        if not call.deadline.left_s():
            call.course.give_up(none_ready(lines.servers, lines.errors), monotonic_ns())
    elif len(call.requests) == 1 and call.course.wake_ns == NEVER_NS:
        [(connection, request)] = call.requests.values()
        await connection.wait_for(request)
    else:
        waiters = [connection.waiter(request) for connection, request in call.requests.values()]
        if all(waiters):
            wake_ns = call.course.wake_ns
            left_s = None if wake_ns == NEVER_NS else max(0, wake_ns - monotonic_ns()) / 1e9
            await asyncio.wait(filter(None, waiters), timeout=left_s, return_when=asyncio.FIRST_COMPLETED)


async def _oldest(waiting: deque[asyncio.Task[Prediction]]) -> Prediction | RefusedError:
    try:
        return await waiting[0]
    except RefusedError as refused:
        return refused
    finally:
        waiting.popleft()
