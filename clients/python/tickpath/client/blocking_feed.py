"""A feed of the blocking client."""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from tickpath.client.blocking_connection import SocketConnection
from tickpath.client.codec import Codec, Inputs
from tickpath.client.conversation import IN_FLIGHT, Request
from tickpath.client.deadline import Deadline
from tickpath.client.errors import RefusedError
from tickpath.client.feed_codec import FeedCodec, Progress
from tickpath.client.prediction import Prediction
from tickpath.wire import FeedOpened


class Feed:
    """A model's feed, whose window and state are on the server: a tick sends what is new. Made by `Client.open_feed`.

        with client.open_feed("deeplob", "BTC") as feed:
            prediction = feed.tick(row)

    Leaving the block closes the feed: the server forgets it. A client that only goes away leaves it there, and has it
    again under the same name. Methods raise what `Client.infer` raises.

    Ticks are numbered by themselves. A refusal says in `next_sequence` what the feed takes next: if that is the tick's
    own number, its row was not taken; send it again with `sequence=`, or `reset`, else every later tick is a gap
    (FeedGapError).
    """

    def __init__(
        self,
        turn: Callable[[], threading.Lock],
        ready: Callable[[Deadline], SocketConnection],
        look_up: Callable[[SocketConnection, str, Deadline], Codec],
        deadline: Callable[[float | None], Deadline],
        progress: Progress,
    ) -> None:
        self._turn = turn
        self._ready = ready
        self._look_up = look_up
        self._deadline = deadline
        self._progress = progress
        self._connection: SocketConnection | None = None
        self._codec: FeedCodec

    def __repr__(self) -> str:
        return f"Feed({self._progress.model!r}, {self._progress.key!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None and self._connection.takes_more:
            self.close()

    @property
    def info(self) -> FeedOpened:
        """What the server said as it opened the feed: window, inputs of a tick, outputs."""
        return self._codec.opened

    @property
    def next_sequence(self) -> int:
        """The number of the next tick."""
        return self._progress.next_sequence

    def tick(
        self,
        inputs: Inputs,
        *,
        sequence: int | None = None,
        budget_ns: int = 0,
        event_time_ns: int = 0,
        timeout_s: float | None = None,
    ) -> Prediction:
        """One prediction from what is new: one row for each input that `info.inputs` lists, as `Client.infer` takes
        inputs; axes of length one may be left out. `sequence`: the tick's number, if not the next. Raises NotReadyError
        while the window is not full and the model does not pad it: the row is taken all the same."""
        with self._turn():
            deadline = self._deadline(timeout_s)
            connection = self._opened(deadline)
            request = self._begin(connection, inputs, sequence, budget_ns, event_time_ns)
            return connection.answer(request, deadline)

    def tick_many(
        self,
        inputs: Iterable[Inputs],
        *,
        in_flight: int = IN_FLIGHT,
        budget_ns: int = 0,
        timeout_s: float | None = None,
    ) -> list[Prediction | RefusedError]:
        """Many ticks, with up to `in_flight` on their way at once; the list is as `Client.infer_many` gives it."""
        with self._turn():
            outcomes: list[Prediction | RefusedError] = []
            waiting: deque[tuple[Request[Prediction], Deadline]] = deque()
            connection = self._opened(self._deadline(timeout_s))
            try:
                for each in inputs:
                    while waiting and (len(waiting) >= in_flight or not connection.has_room):
                        outcomes.append(_oldest(connection, waiting))
                    deadline = self._deadline(timeout_s)
                    request = self._begin(connection, each, None, budget_ns, 0)
                    waiting.append((request, deadline))
                    connection.send(request.frame, deadline)
                while waiting:
                    outcomes.append(_oldest(connection, waiting))
            finally:
                for request, _ in waiting:
                    connection.forget(request)
            return outcomes

    def snapshot(self, *, timeout_s: float | None = None) -> bytes:
        """What the feed holds, for `restore` on any server with an equal model. It is also kept here: where the client
        has to open the feed again on a server that has not got as far, it is restored, and ticks go on behind it."""
        with self._turn():
            deadline = self._deadline(timeout_s)
            connection = self._opened(deadline)
            request = connection.conversation.snapshot_feed(self._codec)
            snapshot, next_sequence = connection.answer(request, deadline)
            self._progress.keep(snapshot, next_sequence)
            return snapshot

    def restore(self, snapshot: bytes, *, timeout_s: float | None = None) -> None:
        """Go on where this snapshot was taken. Raises BadValueError where it does not fit the model."""
        self._open(anew=False, snapshot=snapshot, timeout_s=timeout_s)

    def reset(self, *, timeout_s: float | None = None) -> None:
        """Begin anew, with an empty window and tick 1."""
        self._open(anew=True, snapshot=None, timeout_s=timeout_s)

    def resume(self, *, timeout_s: float | None = None) -> None:
        """Go on where the feed is on the server, be that where this client is or not."""
        self._open(anew=False, snapshot=None, timeout_s=timeout_s)

    def close(self, *, timeout_s: float | None = None) -> None:
        """Have the server forget the feed."""
        with self._turn():
            deadline = self._deadline(timeout_s)
            connection = self._opened(deadline)
            connection.answer(connection.conversation.close_feed(self._codec), deadline)
            self._connection = None

    def _open(self, anew: bool, snapshot: bytes | None, timeout_s: float | None) -> None:
        with self._turn():
            deadline = self._deadline(timeout_s)
            self._open_on(self._ready(deadline), anew, snapshot, deadline)
            self._progress.opened(self._codec.opened, resumed=False)
            self._progress.keep(snapshot, self.next_sequence)

    def _opened(self, deadline: Deadline) -> SocketConnection:
        """The connection on which the feed is open: opened again, where the client has another than before."""
        connection = self._ready(deadline)
        if connection is not self._connection:
            self._open_on(connection, False, None, deadline)
            if (snapshot := self._progress.lacked(self._codec.opened)) is not None:
                self._open_on(connection, False, snapshot, deadline)
            self._progress.opened(self._codec.opened, resumed=self._progress.next_sequence != 0)
        return connection

    def _open_on(self, connection: SocketConnection, anew: bool, snapshot: bytes | None, deadline: Deadline) -> None:
        codec = self._look_up(connection, self._progress.model, deadline)
        request = connection.conversation.open_feed(codec, self._progress.key, anew, snapshot)
        self._codec = connection.answer(request, deadline)
        self._connection = connection

    def _begin(
        self, connection: SocketConnection, inputs: Inputs, sequence: int | None, budget_ns: int, event_time_ns: int
    ) -> Request[Prediction]:
        return connection.conversation.tick(
            self._codec, inputs, lambda: self._progress.number(sequence), budget_ns, event_time_ns
        )


def _oldest(
    connection: SocketConnection, waiting: deque[tuple[Request[Prediction], Deadline]]
) -> Prediction | RefusedError:
    request, deadline = waiting[0]
    connection.wait_for(request, deadline)
    waiting.popleft()
    return request.answer()
