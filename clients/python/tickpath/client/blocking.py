"""The blocking client, for one thread."""

import threading
import time
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Self, TypeAlias

from tickpath.client.address import parse_address
from tickpath.client.blocking_connection import SocketConnection, make_connection, open_socket
from tickpath.client.blocking_feed import Feed
from tickpath.client.codec import Codec, Inputs
from tickpath.client.conversation import IN_FLIGHT, Conversation, Options, Request
from tickpath.client.deadline import Deadline
from tickpath.client.errors import (
    ConnectError,
    ConnectionLostError,
    RefusedError,
    RequestTimeoutError,
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

Waiting: TypeAlias = deque[tuple[Request[Prediction], Deadline]]
"""What is on its way on one connection, the oldest first."""


class Client:
    """A connection to a tickpath server, for one thread: a call while another is under way raises RuntimeError.

        with Client("127.0.0.1:7070") as client:
            prediction = client.infer("mlp", np.zeros((1, 64), np.float32))
            prediction["y"], prediction.stages

    `address`: "host:port", "[::1]:7070", ("host", port), "tls://host:port" or "unix:/path".
    `name`, `token`: what the server is told at Hello. A token may be a function, such as `token_file(path)`, which is
    asked at each connection.
    `tls`: files for a tls:// address: whom to trust, and a certificate of this client's.
    `timeout_s`: how long a call may take, connecting included, where the call does not say.
    `reconnect`: how the next call that needs it opens a connection again; None: only `connect` opens one. What was in
    flight when a connection ended raises ConnectionLostError and is never sent again: it may have run.

    Before a request is sent, what came meanwhile is looked at: a Goodbye or a closed connection is better learnt then
    than by losing the request to it. It costs one system call.

    A child process that was forked opens a connection of its own.
    """

    def __init__(
        self,
        address: str | tuple[str, int],
        *,
        name: str = "python",
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
        self._lock = threading.Lock()
        self._connection: SocketConnection | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"Client({str(self._address)!r})"

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def connect(self) -> None:
        """Open the connection now, in one attempt. Raises ConnectError, RefusedError (the server refuses the session)
        or ProtocolError (what answers there is not tickpath)."""
        with self._turn():
            self._closed = False
            if self._usable_connection() is None:
                self._connection = self._open(self._deadline(None))

    def close(self) -> None:
        """Close the connection. Calls raise ConnectError until `connect` is called again."""
        with self._turn():
            self._closed = True
            if self._connection is not None:
                self._connection.leave()

    @property
    def limits(self) -> Limits:
        """What the server takes at the most. Raises ConnectError before the first connection."""
        return self._last_connection.conversation.welcome.limits

    @property
    def server(self) -> str:
        """What the server calls itself. Raises ConnectError before the first connection."""
        return self._last_connection.conversation.welcome.server

    def models(self, *, versions: bool = False, timeout_s: float | None = None) -> tuple[ModelInfo, ...]:
        """What the server serves now; with `versions`, every version that is loaded."""
        with self._turn():
            deadline = self._deadline(timeout_s)
            connection = self._ready(deadline)
            return connection.answer(connection.conversation.models(versions), deadline)

    def model(self, name: str, *, timeout_s: float | None = None) -> ModelInfo:
        """One model. Raises UnknownModelError, naming those that are served."""
        with self._turn():
            deadline = self._deadline(timeout_s)
            return self._codec(self._ready(deadline), name, deadline).info

    def ping(self, *, timeout_s: float | None = None) -> int:
        """Ask the server for a sign of life: its monotonic clock, the one of `Prediction.stamps`, in nanoseconds."""
        with self._turn():
            deadline = self._deadline(timeout_s)
            connection = self._ready(deadline)
            return connection.answer(connection.conversation.ping(), deadline)

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
        """One prediction of `model`; of `name@version`, whichever version is live.

        `inputs`: one array, a list in the model's order, or a dict by name, as codec.py's rules say; each has its batch
        axis, also for one row. Any memory order will do; the dtype must be the model's.
        `rows`: only needed where no input has a batch axis; elsewhere it is checked.
        `budget_ns`: from the server's receipt; a request that can't make it is refused (DeadlineError). 0: none.
        `event_time_ns`: Unix time of the event behind the request, kept in the server's records. 0: unknown.
        `priority`: 0 is served first; `limits.priority_levels` says how many levels there are.
        `key`: newest wins: an older request of this client to this model under the same key, if it still waits, is
        refused (SupersededError). 0: none.
        Raises RefusedError (one subclass per code), RequestTimeoutError, ConnectError, ConnectionLostError and
        ProtocolError.
        """
        with self._turn():
            deadline = self._deadline(timeout_s)
            connection = self._ready(deadline)
            codec = self._codec(connection, model, deadline)
            request = connection.conversation.infer(codec, inputs, rows, budget_ns, event_time_ns, priority, key)
            return connection.answer(request, deadline)

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
        """Many predictions, with up to `in_flight` requests (never more than the server allows) on their way at once.

        The list has one place per request, in their order: its Prediction, or the RefusedError that it met; the others
        go on. `rows`, `budget_ns`, `event_time_ns` and `priority` are each request's, as in `infer`; there is no `key`,
        under which each would take the place of the one before. `timeout_s` counts for each request from its sending.
        What is no answer at all (a timeout, a lost connection) is raised, and so is UnknownModelError at the start; the
        requests then in flight are taken back.
        """
        with self._turn():
            deadline = self._deadline(timeout_s)
            connection = self._ready(deadline)
            self._codec(connection, model, deadline)
            options = rows, budget_ns, event_time_ns, priority
            outcomes: list[Prediction | RefusedError] = []
            waiting: Waiting = deque()
            try:
                for each in inputs:
                    while waiting and (len(waiting) >= in_flight or not connection.has_room):
                        outcomes.append(_oldest(connection, waiting))
                    deadline = self._deadline(timeout_s)
                    if not waiting:
                        connection = self._ready(deadline)
                    waiting.append((self._begin(connection, model, each, options, deadline), deadline))
                while waiting:
                    outcomes.append(_oldest(connection, waiting))
            finally:
                for request, _ in waiting:
                    connection.forget(request)
            return outcomes

    def open_feed(
        self, model: str, key: str, *, anew: bool = False, snapshot: bytes | None = None, timeout_s: float | None = None
    ) -> Feed:
        """The feed of `model` under this key (an instrument, say): the one that this client's name has there, or a new
        one. `anew` empties it; `snapshot` has it go on where that was taken. Raises ForbiddenError where the key is
        another client's, BadValueError where the model keeps no feeds or the snapshot does not fit."""
        feed = Feed(self._turn, self._ready, self._codec, self._deadline, Progress(model, key))
        if anew:
            feed.reset(timeout_s=timeout_s)
        elif snapshot is not None:
            feed.restore(snapshot, timeout_s=timeout_s)
        else:
            feed.resume(timeout_s=timeout_s)
        return feed

    def _turn(self) -> threading.Lock:
        """One caller at a time: a second one is refused, since two threads would take each other's replies. To be taken
        by `with`, between whose taking and leaving a lock no exception of a signal's handler can come."""
        if self._lock.locked():
            raise RuntimeError("this Client is in another call: give each thread its own Client, or use AsyncClient")
        return self._lock

    def _deadline(self, timeout_s: float | None) -> Deadline:
        return Deadline.after(self._timeout_s if timeout_s is None else timeout_s)

    def _codec(self, connection: SocketConnection, model: str, deadline: Deadline) -> Codec:
        conversation = connection.conversation
        codec = conversation.codec(model)
        if codec is None:
            connection.answer(conversation.look_up(model), deadline)
            codec = conversation.codec(model)
        if codec is None:
            raise conversation.unknown_model(model)
        return codec

    def _begin(
        self, connection: SocketConnection, model: str, inputs: Inputs, options: Options, deadline: Deadline
    ) -> Request[Prediction]:
        try:
            codec = self._codec(connection, model, deadline)
            request = connection.conversation.infer(codec, inputs, *options)
        except RefusedError as refused:
            return Request.refused(refused)
        connection.send(request.frame, deadline)
        return request

    def _ready(self, deadline: Deadline) -> SocketConnection:
        """A connection that takes requests: the one there is, or a new one where the policy allows it."""
        connection = self._usable_connection()
        if connection is None:
            if self._closed or self._reconnect is None:
                raise not_connected(self._address)
            connection = self._connection = self._open_again(self._reconnect, deadline)
        return connection

    def _usable_connection(self) -> SocketConnection | None:
        connection = self._connection
        if connection is None:
            return None
        if not connection.ours:
            connection.leave()
            return None
        try:
            connection.take_arrived()
        except ConnectionLostError:
            return None  # nobody waited for anything on it
        if connection.takes_more:
            return connection
        connection.leave()
        return None

    def _open_again(self, reconnect: Reconnect, deadline: Deadline) -> SocketConnection:
        for wait_s in reconnect.waits_s():
            try:
                return self._open(deadline)
            except ConnectError:
                if wait_s >= deadline.left_s():
                    raise
            time.sleep(wait_s)
        raise AssertionError("waits have no end")

    def _open(self, deadline: Deadline) -> SocketConnection:
        token = token_now(self._token)
        try:
            connected = open_socket(self._address, self._tls, deadline)
        except (OSError, UnicodeError) as error:  # UnicodeError: no name can be like this one
            raise unreachable(self._address, error) from None
        conversation = Conversation(str(self._address), self._name, token)
        connection = make_connection(connected, conversation, self._tls)
        try:
            connection.answer(connection.conversation.hello(), deadline)
        except (RequestTimeoutError, ConnectionLostError) as error:
            connection.close()
            raise no_welcome(self._address, error) from None
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def _last_connection(self) -> SocketConnection:
        if self._connection is None:
            raise not_connected(self._address)
        return self._connection


def _oldest(connection: SocketConnection, waiting: Waiting) -> Prediction | RefusedError:
    request, deadline = waiting[0]
    connection.wait_for(request, deadline)
    waiting.popleft()
    return request.answer()
