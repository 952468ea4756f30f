"""What is said on one connection, sans-IO: ids, handles, which reply answers what. Both clients use it.

Rules
- A request gets the next id; ids are never used twice. 0 is the session's: Hello is asked under it.
- Every request is answered once. A reply to what was not asked is a protocol error, and the conversation is over.
- Who no longer waits for a request forgets it: its reply is dropped when it comes, and until then it counts as in
  flight, since the server counts it so.
- A handle holds on one connection only: models are looked up by name in what this connection's server said.
- No more requests are made than Welcome.limits allows: one more is refused here, as the server would.
"""

from collections.abc import Callable
from operator import index
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from tickpath.client.codec import Codec, Inputs
from tickpath.client.errors import (
    BadShapeError,
    BadValueError,
    OverloadedError,
    ProtocolError,
    RefusedError,
    TickpathError,
    UnknownModelError,
    lost,
    refusal,
)
from tickpath.client.feed_codec import FeedCodec
from tickpath.client.prediction import Prediction
from tickpath.wire import (
    KEY_CHARS_MAX,
    PREFIX_BYTES,
    PROTOCOL_VERSION,
    REPLY_BYTES_MAX,
    Cancel,
    ClientMessage,
    CloseFeed,
    Code,
    Failure,
    FeedClosed,
    FeedOpened,
    FeedSnapshot,
    FrameDecoder,
    Goodbye,
    Hello,
    Infer,
    ModelInfo,
    ModelList,
    Models,
    OpenFeed,
    Ping,
    Pong,
    RemoteProtocolError,
    Result,
    ServerMessage,
    SnapshotFeed,
    Tick,
    Welcome,
    decode_server_message,
    encode_frame,
)

# Numbers travel as MessagePack's unsigned integers.
NUMBER_MAX: Final = 2**64 - 1

# Between a model's name and its version; no name has one.
VERSION_MARK: Final = "@"

# Of one infer_many: enough to hide the round trip, few enough to leave the server room for others.
IN_FLIGHT: Final = 16

Options: TypeAlias = tuple[int | None, int, int, int]
"""What each request of an infer_many has: rows, budget_ns, event_time_ns, priority."""

T = TypeVar("T")


class Request(Generic[T]):
    """What was asked, and what came of it: send `frame`; when `done`, take `result()`."""

    __slots__ = ("_outcome", "_read", "answer_type", "done", "forgotten", "frame", "id")

    def __init__(self, request_id: int, frame: bytes, answer_type: type[Any], read: Callable[[Any], T]) -> None:
        self.id = request_id
        self.frame = frame
        self.done = False
        self.forgotten = False
        self.answer_type = answer_type
        self._outcome: T | TickpathError
        self._read = read

    @classmethod
    def refused(cls, refused: RefusedError) -> "Request[T]":
        """One that was refused before anything was asked: done, with nothing to send."""
        request = cls(0, b"", Failure, _never_read)
        request.fail(refused)
        return request

    def settle(self, message: ServerMessage) -> None:
        """Take the server's answer. Raises RemoteProtocolError where it is not one to this."""
        if type(message) is self.answer_type:
            self._outcome = self._read(message)
        elif type(message) is Failure:
            self._outcome = refusal(message.code, message.message, message.next_sequence)
        else:
            asked = self.answer_type.__name__
            raise RemoteProtocolError(Code.BAD_MESSAGE, f"expected {asked}, got {type(message).__name__}")
        self.done = True

    def fail(self, error: TickpathError) -> None:
        """There is no answer, for this reason."""
        self._outcome = error
        self.done = True

    def answer(self) -> T | RefusedError:
        """What came or how it was refused, once `done`. Raises whatever else became of it."""
        outcome = self._outcome
        if isinstance(outcome, TickpathError) and not isinstance(outcome, RefusedError):
            raise outcome
        return outcome

    def result(self) -> T:
        """What came, once `done`. Raises RefusedError, and whatever else became of it."""
        outcome = self._outcome
        if isinstance(outcome, TickpathError):
            raise outcome
        return outcome


class Conversation:
    """One connection's talk with the server at `address` (which is only named in messages)."""

    def __init__(self, address: str, client_name: str, token: str) -> None:
        self.address = address
        self.goodbye: str | None = None
        """Why the server takes no new requests here; None while it does."""
        self._client_name = client_name
        self._token = token
        self._welcome: Welcome | None = None
        self._models: dict[str, ModelInfo] = {}
        self._codecs: dict[str, Codec] = {}
        self._asked: dict[int, Request[Any]] = {}
        self._in_flight_max = 0
        self._frame_bytes_max = 0
        self._last_id = 0
        self._decoder = FrameDecoder(REPLY_BYTES_MAX)
        self.get_buffer = self._decoder.get_buffer
        self.received = self._decoder.received

    @property
    def welcome(self) -> Welcome:
        """What the server said at the start; only once Hello is answered."""
        assert self._welcome is not None
        return self._welcome

    @property
    def in_flight(self) -> int:
        """Requests that the server has not answered, the forgotten ones among them."""
        return len(self._asked)

    @property
    def has_room(self) -> bool:
        """Whether a new request may be sent now."""
        return self.goodbye is None and not self.full

    @property
    def full(self) -> bool:
        """One more request would be over the server's limit."""
        return len(self._asked) >= self._in_flight_max

    def hello(self) -> Request[Welcome]:
        """The first thing to ask."""
        return self._request(0, Hello(PROTOCOL_VERSION, self._client_name, self._token), Welcome, self._welcomed)

    def models(self, versions: bool = False) -> Request[tuple[ModelInfo, ...]]:
        """Asks what is served now, or for every version that is loaded. Once answered, `codec` knows it."""
        read = self._listed_versions if versions else self._listed
        return self._request(self._next_id(), Models(self._last_id, versions), ModelList, read)

    def look_up(self, name: str) -> Request[tuple[ModelInfo, ...]]:
        """Asks for what `codec` did not know: every version, where one is named, else what is served now."""
        return self.models(VERSION_MARK in name)

    def ping(self) -> Request[int]:
        """Asks for the server's clock, in nanoseconds."""
        return self._request(self._next_id(), Ping(self._last_id), Pong, lambda pong: pong.server_ns)

    def codec(self, name: str) -> Codec | None:
        """The model of this name (`name@version`: that version, whichever is live), if the server is known to have it.
        Raises ProtocolError as Codec does."""
        codec = self._codecs.get(name)
        if codec is None and (info := self._models.get(name)) is not None:
            codec = self._codecs[name] = Codec(info)
        return codec

    def unknown_model(self, name: str) -> UnknownModelError:
        """What to raise when the server has been asked and has no such model."""
        served = ", ".join(map(repr, self._models)) or "none"
        return UnknownModelError(f"no model {name!r} at {self.address}; it serves: {served}")

    def infer(
        self,
        codec: Codec,
        inputs: Inputs,
        rows: int | None,
        budget_ns: int,
        event_time_ns: int,
        priority: int = 0,
        key: int = 0,
    ) -> Request[Prediction]:
        """Asks for one prediction. Raises RefusedError, and then nothing was asked."""
        if len(self._asked) >= self._in_flight_max:
            raise OverloadedError(self._too_many())
        if budget_ns or event_time_ns:
            budget_ns, event_time_ns = _number("budget_ns", budget_ns), _number("event_time_ns", event_time_ns)
        if priority or key:
            priority, key = _number("priority", priority), _number("key", key)
        data, layout = codec.pack(inputs, rows)
        request_id = self._next_id()
        message = Infer(request_id, codec.info.handle, layout.rows, data, budget_ns, priority, 0, event_time_ns, key)
        request = self._request(request_id, message, Result, layout.read)
        return self._checked(request, codec)

    def open_feed(self, codec: Codec, key: str, anew: bool, snapshot: bytes | None) -> Request[FeedCodec]:
        """Asks for a feed of this model: how it stands, and how its rows are packed. Raises RefusedError, and then
        nothing was asked."""
        if not 0 < len(key) <= KEY_CHARS_MAX:
            raise BadValueError(f"a feed's key has 1 to {KEY_CHARS_MAX} characters, got {len(key)}")
        info, data = codec.info, None if snapshot is None else memoryview(snapshot)
        message = OpenFeed(self._next_id(), info.handle, key, anew, data)
        request = self._request(
            message.id, message, FeedOpened, lambda opened: FeedCodec(opened, info.name, info.handle)
        )
        return self._checked(request, codec)

    def tick(
        self,
        codec: FeedCodec,
        inputs: Inputs,
        number: Callable[[], int],
        budget_ns: int,
        event_time_ns: int,
    ) -> Request[Prediction]:
        """Asks for one prediction of a feed; `number` is asked for once the row is known to fit. Raises RefusedError,
        and then nothing was asked."""
        if len(self._asked) >= self._in_flight_max:
            raise OverloadedError(self._too_many())
        if budget_ns or event_time_ns:
            budget_ns, event_time_ns = _number("budget_ns", budget_ns), _number("event_time_ns", event_time_ns)
        data, layout = codec.pack_tick(inputs)
        message = Tick(self._next_id(), codec.opened.feed, number(), data, budget_ns, 0, event_time_ns)
        return self._request(message.id, message, Result, layout.read)

    def snapshot_feed(self, codec: FeedCodec) -> Request[tuple[bytes, int]]:
        """Asks for what a feed holds, and for the tick that comes after it."""
        message = SnapshotFeed(self._next_id(), codec.opened.feed)
        return self._request(message.id, message, FeedSnapshot, _read_snapshot)

    def close_feed(self, codec: FeedCodec) -> Request[None]:
        """Asks the server to forget a feed."""
        message = CloseFeed(self._next_id(), codec.opened.feed)
        return self._request(message.id, message, FeedClosed, lambda _: None)

    def forget(self, request: Request[Any]) -> bytes | None:
        """Nobody waits for this request any more. The frame that tells the server so, or None if there is none."""
        if request.done or request.forgotten:
            return None
        request.forgotten = True
        return encode_frame(Cancel(request.id)) if request.answer_type is Result else None

    def say_goodbye(self) -> bytes:
        """The last frame to send."""
        return encode_frame(Goodbye())

    def next_answered(self) -> Request[Any] | None:
        """The next request whose answer has come whole, or None until more bytes were received. Raises ProtocolError,
        or ConnectionLostError when the server ends the session; then the conversation is over."""
        try:
            while (frame := self._decoder.next_frame()) is not None:
                request = self._take(decode_server_message(frame))
                if request is not None:
                    return request
        except RemoteProtocolError as error:
            raise ProtocolError(
                f"the server at {self.address} sent what the protocol does not allow: {error.message}"
            ) from None
        return None

    def _take(self, message: ServerMessage) -> Request[Any] | None:
        if isinstance(message, Goodbye):
            self.goodbye = message.reason or "it said goodbye"
            return None
        request = self._asked.pop(0 if isinstance(message, Welcome) else message.id, None)
        if request is None:
            raise self._unasked(message)
        if type(message) is Failure and message.code is Code.UNKNOWN_MODEL:
            self._listed(ModelList(0, ()))  # a handle was taken away: the next look-up asks anew
        if request.forgotten:
            return None
        request.settle(message)
        return request

    def _unasked(self, message: ServerMessage) -> Exception:
        if type(message) is Failure and message.id == 0:
            return lost(self.address, f"the server ended the session: {message.code.name}: {message.message}")
        return RemoteProtocolError(Code.BAD_MESSAGE, f"{type(message).__name__} answers no request that is in flight")

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _request(
        self, request_id: int, message: ClientMessage, answer_type: type[Any], read: Callable[[Any], T]
    ) -> Request[T]:
        request = Request(request_id, encode_frame(message), answer_type, read)
        self._asked[request_id] = request
        return request

    def _checked(self, request: Request[T], codec: Codec) -> Request[T]:
        if len(request.frame) > self._frame_bytes_max + PREFIX_BYTES:
            del self._asked[request.id]
            raise BadShapeError(self._too_large(codec, request.frame))
        return request

    def _welcomed(self, welcome: Welcome) -> Welcome:
        if welcome.protocol != PROTOCOL_VERSION:
            text = f"protocol {welcome.protocol}; this client speaks {PROTOCOL_VERSION}, so use the other's version"
            raise RemoteProtocolError(Code.BAD_MESSAGE, text)
        self._welcome = welcome
        self._in_flight_max = welcome.limits.in_flight_max
        self._frame_bytes_max = welcome.limits.frame_bytes_max
        self._listed(ModelList(0, welcome.models))
        return welcome

    def _listed(self, listed: ModelList) -> tuple[ModelInfo, ...]:
        self._models = {model.name: model for model in listed.models}
        return self._known(listed)

    def _listed_versions(self, listed: ModelList) -> tuple[ModelInfo, ...]:
        self._models |= {f"{model.name}{VERSION_MARK}{model.version}": model for model in listed.models}
        return self._known(listed)

    def _known(self, listed: ModelList) -> tuple[ModelInfo, ...]:
        self._codecs = {}
        if listed.limits is not None:
            self._frame_bytes_max = listed.limits.frame_bytes_max
            self._welcome = msgspec.structs.replace(self.welcome, limits=listed.limits)
        return listed.models

    def _too_many(self) -> str:
        limit = self.welcome.limits.in_flight_max
        return f"{limit} requests are in flight, and {self.address} allows no more: wait for some first"

    def _too_large(self, codec: Codec, frame: bytes) -> str:
        limit = self._frame_bytes_max
        return (
            f"model {codec.info.name!r}: the request is {len(frame) - PREFIX_BYTES} bytes, "
            f"and {self.address} takes {limit}; send less at once"
        )


def _read_snapshot(answer: FeedSnapshot) -> tuple[bytes, int]:
    return bytes(answer.snapshot), answer.next_sequence


def _never_read(message: ServerMessage) -> Any:
    raise AssertionError(f"nothing was asked, {message} came")


def _number(name: str, value: int) -> int:
    number = index(value)
    if not 0 <= number <= NUMBER_MAX:
        raise BadValueError(f"{name} is 0 to 2**64 - 1, got {number}")
    return number
