"""The blocking pool, for one thread."""

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from time import monotonic_ns
from types import TracebackType
from typing import Self, Unpack

from tickpath.client.blocking_connection import SocketConnection
from tickpath.client.blocking_feed import Feed
from tickpath.client.codec import Codec, Inputs
from tickpath.client.conversation import IN_FLIGHT
from tickpath.client.deadline import Deadline
from tickpath.client.errors import ConnectError, RefusedError, TickpathError, timed_out
from tickpath.client.feed_codec import Progress
from tickpath.client.pool.asking import Asking, held
from tickpath.client.pool.blocking_lines import Line, Lines, Opener
from tickpath.client.pool.call import Call
from tickpath.client.pool.course import Course
from tickpath.client.pool.hedging import Hedging
from tickpath.client.pool.options import HEALTH, Health, Hedge, SessionOptions
from tickpath.client.pool.servers import Server, Servers, distinct, none_ready
from tickpath.client.prediction import Prediction
from tickpath.client.reconnect import RECONNECT, Reconnect
from tickpath.wire import ModelInfo


class Pool:
    """Several servers of the same models, asked as one by one thread.

        with Pool(["10.0.0.1:7070", "10.0.0.2:7070"], hedge=Hedge(percentile=99)) as pool:
            prediction = pool.infer("mlp", np.zeros((1, 64), np.float32))

    `infer` asks the server that costs least now, and another one where that goes, drains or is overloaded, as long as
    the call's time lasts: an Infer leaves nothing behind on a server, so asking again is safe. Course's rules say after
    which errors. A feed stays on one server while that lives, and its ticks are never sent again.

    `addresses`: as Client takes one; each server once. `name`, `token`, `tls`: as Client takes them, for all alike.
    `timeout_s`: how long a call may take, all servers together, where the call does not say.
    `hedge`: None never asks two servers for the same. `health`: when a silent server is given up.
    `reconnect`: how often a server that is away is tried; a thread does so, and only while one is away.

    Models are found by name at each server, whatever handle, version and tensors it has there. A server that is away
    costs calls nothing, and is asked again from when it is back. Waits for a hedge are rounded up to a millisecond.
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
        self._openers = [Opener(address, timeout_s=timeout_s, **session) for address in addresses]
        self._timeout_s = timeout_s
        self._health = health
        self._reconnect = reconnect
        self._hedging = Hedging(hedge)
        self._lock = threading.Lock()
        self._open: Lines | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"Pool({self._addresses!r})"

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def connect(self) -> None:
        """Try every server once. Raises ConnectError where none is there, RefusedError where all refuse the session."""
        with self._turn():
            self._closed = False
            self._ready_lines(self._deadline(None))

    def close(self) -> None:
        """Close all connections. Calls raise ConnectError until `connect` is called again."""
        with self._turn():
            self._closed = True
            lines, self._open = self._open, None
            if lines is not None:
                lines.close()

    @property
    def servers(self) -> tuple[Server, ...]:
        """What is known of each server, in the order of `addresses`: `ready`, `in_flight`, `address`."""
        return self._open.servers.all if self._open is not None else ()

    def model(self, name: str, *, timeout_s: float | None = None) -> ModelInfo:
        """The model as one server has it. Raises UnknownModelError where none does."""
        with self._turn():
            deadline = self._deadline(timeout_s)
            lines = self._ready_lines(deadline)
            refused: TickpathError | None = None
            for server in lines.servers.all:
                with suppress(ConnectError):
                    line = lines.line(server)
                    try:
                        return line.opener.find(line.connection, name, deadline).info
                    except RefusedError as error:
                        refused = error
            raise refused or none_ready(lines.servers, lines.errors)

    def infer(
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
        """As Client.infer. `budget_ns` counts from the first server's receipt: who is asked later is given what is left
        of it. Requests of one `key` go to one server while that is there."""
        with self._turn():
            deadline = self._deadline(timeout_s)
            lines = self._ready_lines(deadline)
            asking = Asking(model, inputs, rows, budget_ns, event_time_ns, priority, key)
            call: Call[Line] = Call(Course(lines.servers, self._hedging, asking.route), asking, deadline)
            try:
                _advance(lines, call)
                while not call.course.over:
                    _step(lines, [call])
            finally:
                _let_go(call)
            return call.result()

    def infer_many(
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
        """As Client.infer_many, over all servers; `in_flight` counts all of them together."""
        with self._turn():
            lines = self._ready_lines(self._deadline(timeout_s))
            outcomes: list[Prediction | RefusedError] = []
            waiting: deque[Call[Line]] = deque()
            try:
                for each in inputs:
                    while waiting and (len(waiting) >= in_flight or not lines.has_room):
                        outcomes.append(_oldest(lines, waiting))
                    asking = Asking(model, held(each), rows, budget_ns, event_time_ns, priority)
                    waiting.append(Call(Course(lines.servers, self._hedging, None), asking, self._deadline(timeout_s)))
                    _advance(lines, waiting[-1])
                while waiting:
                    outcomes.append(_oldest(lines, waiting))
            finally:
                for call in waiting:
                    _let_go(call)
            return outcomes

    def open_feed(
        self, model: str, key: str, *, anew: bool = False, snapshot: bytes | None = None, timeout_s: float | None = None
    ) -> Feed:
        """As Client.open_feed, on the server that `key` belongs to. While that lives the feed stays there; then its
        next tick opens it on another, from the last snapshot that was taken or restored through this Feed, or empty.
        Where that is not where the ticks are, FeedGapError says which tick comes next there."""
        home: Line | None = None

        def ready(deadline: Deadline) -> SocketConnection:
            nonlocal home
            home = self._home(key, home, deadline)
            return home.connection

        def look_up(connection: SocketConnection, name: str, deadline: Deadline) -> Codec:
            assert home is not None
            return home.opener.find(connection, name, deadline)

        feed = Feed(self._turn, ready, look_up, self._deadline, Progress(model, key))
        if anew:
            feed.reset(timeout_s=timeout_s)
        elif snapshot is not None:
            feed.restore(snapshot, timeout_s=timeout_s)
        else:
            feed.resume(timeout_s=timeout_s)
        return feed

    def _home(self, key: str, home: Line | None, deadline: Deadline) -> Line:
        """The line of this key's server: the one it has, while that lives."""
        lines = self._ready_lines(deadline)
        if home is not None:
            with suppress(ConnectError):
                if lines.line(home.server) is home:
                    return home
        while True:
            server = lines.servers.choose(monotonic_ns(), key, ())
            if server is not None:
                with suppress(ConnectError):
                    return lines.line(server)
            elif not deadline.left_s():
                raise none_ready(lines.servers, lines.errors)
            else:
                lines.wait(deadline.at_ns())

    def _turn(self) -> threading.Lock:
        """As Client's."""
        if self._lock.locked():
            raise RuntimeError("this Pool is in another call: give each thread its own Pool, or use AsyncPool")
        return self._lock

    def _deadline(self, timeout_s: float | None) -> Deadline:
        return Deadline.after(self._timeout_s if timeout_s is None else timeout_s)

    def _ready_lines(self, deadline: Deadline) -> Lines:
        """The lines, opened where they are not yet, and what is due seen to."""
        lines = self._open
        if lines is not None and not lines.ours:
            lines.close()
            lines = None
        if lines is None:
            if self._closed:
                raise ConnectError("this pool is closed: call connect() first")
            lines = self._open_lines(deadline)
        elif lines.look_at_ns <= monotonic_ns():
            lines.wait(0)
        return lines

    def _open_lines(self, deadline: Deadline) -> Lines:
        servers = Servers.of(self._addresses, self._health, self._reconnect)
        lines = Lines(servers, self._openers, self._timeout_s)
        try:
            lines.connect(deadline)
        except BaseException:
            lines.close()
            raise
        self._open = lines
        return lines


def _step(lines: Lines, calls: Iterable[Call[Line]]) -> None:
    """Wait for news, unless there are some (a look-up takes in what comes), and see what each call makes of it."""
    if not any(call.has_news for call in calls):
        lines.wait(min(min(call.course.wake_ns, call.deadline_ns) for call in calls))
    for call in calls:
        _advance(lines, call)


def _advance(lines: Lines, call: Call[Line]) -> None:
    """Take what has come for this call, and ask whom its course says. Ends it when its time is over."""
    now_ns = monotonic_ns()
    call.collect(now_ns)
    while (server := call.course.next(now_ns)) is not None:
        try:
            line = lines.line(server)
            codec = line.opener.find(line.connection, call.asking.model, call.deadline)
            request = call.asking.request(line.connection.conversation, codec, call.course.spent_ns(now_ns))
            lines.send(line, request, call.deadline)
        except TickpathError as error:
            call.course.failed(server, error, now_ns)
        else:
            call.requests[server] = line, request
    if now_ns >= call.deadline_ns and not call.course.over:
        _time_up(lines, call, now_ns)
    if call.course.over:
        _let_go(call)


def _let_go(call: Call[Line]) -> None:
    for line, request in call.let_go(monotonic_ns()):
        line.forget(request)


def _time_up(lines: Lines, call: Call[Line], now_ns: int) -> None:
    if not call.requests:
        call.course.give_up(none_ready(lines.servers, lines.errors), now_ns)
        return
    asked = " and ".join(server.address for server in call.requests)
    call.course.give_up(timed_out(asked, call.deadline.timeout_s), now_ns)


def _oldest(lines: Lines, waiting: deque[Call[Line]]) -> Prediction | RefusedError:
    oldest = waiting[0]
    while not oldest.course.over:
        _step(lines, waiting)
    waiting.popleft()
    try:
        return oldest.result()
    except RefusedError as refused:
        return refused
