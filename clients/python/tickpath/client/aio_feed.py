"""A feed of the asyncio client."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Self

from tickpath.client.aio_connection import AioConnection
from tickpath.client.codec import Codec, Inputs
from tickpath.client.conversation import IN_FLIGHT, Request
from tickpath.client.deadline import Deadline
from tickpath.client.errors import RefusedError
from tickpath.client.feed_codec import FeedCodec, Progress
from tickpath.client.prediction import Prediction
from tickpath.wire import FeedOpened


class AsyncFeed:
    """As Feed, each method to be awaited. Made by `AsyncClient.open_feed`. Ticks of several tasks are numbered in the
    order in which their calls begin."""

    def __init__(
        self,
        ready: Callable[[Deadline], Awaitable[AioConnection]],
        look_up: Callable[[AioConnection, str, Deadline], Awaitable[Codec]],
        deadline: Callable[[float | None], Deadline],
        progress: Progress,
    ) -> None:
        self._ready = ready
        self._look_up = look_up
        self._deadline = deadline
        self._progress = progress
        self._opening = asyncio.Lock()
        self._connection: AioConnection | None = None
        self._codec: FeedCodec

    def __repr__(self) -> str:
        return f"AsyncFeed({self._progress.model!r}, {self._progress.key!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None and self._connection.takes_more:
            await self.close()

    @property
    def info(self) -> FeedOpened:
        """As Feed.info."""
        return self._codec.opened

    @property
    def next_sequence(self) -> int:
        """As Feed.next_sequence."""
        return self._progress.next_sequence

    async def tick(
        self,
        inputs: Inputs,
        *,
        sequence: int | None = None,
        budget_ns: int = 0,
        event_time_ns: int = 0,
        timeout_s: float | None = None,
    ) -> Prediction:
        """As Feed.tick."""
        deadline = self._deadline(timeout_s)
        connection = self._usable() or await self._opened(deadline)
        request = self._begin(connection, inputs, sequence, budget_ns, event_time_ns)
        return await connection.answer(request, deadline)

    async def tick_many(
        self,
        inputs: Iterable[Inputs],
        *,
        in_flight: int = IN_FLIGHT,
        budget_ns: int = 0,
        timeout_s: float | None = None,
    ) -> list[Prediction | RefusedError]:
        """As Feed.tick_many."""
        connection = self._usable() or await self._opened(self._deadline(timeout_s))
        outcomes: list[Prediction | RefusedError] = []
        waiting: list[Request[Prediction]] = []
        try:
            for each in inputs:
                while waiting and (len(waiting) >= in_flight or connection.conversation.full):
                    outcomes.append(await _oldest(connection, waiting))
                request = self._begin(connection, each, None, budget_ns, 0)
                waiting.append(request)
                connection.send(request, self._deadline(timeout_s))
            while waiting:
                outcomes.append(await _oldest(connection, waiting))
        finally:
            for request in waiting:
                connection.take_back(request)
        return outcomes

    async def snapshot(self, *, timeout_s: float | None = None) -> bytes:
        """As Feed.snapshot."""
        deadline = self._deadline(timeout_s)
        connection = self._usable() or await self._opened(deadline)
        request = connection.conversation.snapshot_feed(self._codec)
        snapshot, next_sequence = await connection.answer(request, deadline)
        self._progress.keep(snapshot, next_sequence)
        return snapshot

    async def restore(self, snapshot: bytes, *, timeout_s: float | None = None) -> None:
        """As Feed.restore."""
        await self._open(anew=False, snapshot=snapshot, timeout_s=timeout_s)

    async def reset(self, *, timeout_s: float | None = None) -> None:
        """As Feed.reset."""
        await self._open(anew=True, snapshot=None, timeout_s=timeout_s)

    async def resume(self, *, timeout_s: float | None = None) -> None:
        """As Feed.resume."""
        await self._open(anew=False, snapshot=None, timeout_s=timeout_s)

    async def close(self, *, timeout_s: float | None = None) -> None:
        """As Feed.close."""
        deadline = self._deadline(timeout_s)
        connection = self._usable() or await self._opened(deadline)
        await connection.answer(connection.conversation.close_feed(self._codec), deadline)
        self._connection = None

    async def _open(self, anew: bool, snapshot: bytes | None, timeout_s: float | None) -> None:
        deadline = self._deadline(timeout_s)
        async with self._opening:
            await self._open_on(await self._ready(deadline), anew, snapshot, deadline)
            self._progress.opened(self._codec.opened, resumed=False)
            self._progress.keep(snapshot, self.next_sequence)

    def _usable(self) -> AioConnection | None:
        connection = self._connection
        return connection if connection is not None and connection.takes_more else None

    async def _opened(self, deadline: Deadline) -> AioConnection:
        """The connection on which the feed is open: of all tasks that come here at once, one opens it again."""
        async with self._opening:
            connection = self._usable()
            if connection is None:
                connection = await self._ready(deadline)
                await self._open_on(connection, False, None, deadline)
                if (snapshot := self._progress.lacked(self._codec.opened)) is not None:
                    await self._open_on(connection, False, snapshot, deadline)
                self._progress.opened(self._codec.opened, resumed=self._progress.next_sequence != 0)
            return connection

    async def _open_on(self, connection: AioConnection, anew: bool, snapshot: bytes | None, deadline: Deadline) -> None:
        codec = await self._look_up(connection, self._progress.model, deadline)
        request = connection.conversation.open_feed(codec, self._progress.key, anew, snapshot)
        self._codec = await connection.answer(request, deadline)
        self._connection = connection

    def _begin(
        self, connection: AioConnection, inputs: Inputs, sequence: int | None, budget_ns: int, event_time_ns: int
    ) -> Request[Prediction]:
        return connection.conversation.tick(
            self._codec, inputs, lambda: self._progress.number(sequence), budget_ns, event_time_ns
        )


async def _oldest(connection: AioConnection, waiting: list[Request[Prediction]]) -> Prediction | RefusedError:
    await connection.wait_for(waiting[0])
    return waiting.pop(0).answer()
