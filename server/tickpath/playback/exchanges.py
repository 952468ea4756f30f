"""Which answer belongs to which request of a recording: an index of its segments, read once. No socket, no clock.

A request's id is its session's, and may come again once it is answered; so a reply belongs to the newest request of
that id that has none. What was dropped leaves a request without an answer, or an answer without a request.
"""

from array import array
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from tickpath.recorder.entries import HEADER_BYTES, DescribedModel, Entry, Kind
from tickpath.recorder.reading import Segment, description
from tickpath.recorder.segments import CLOSED, RecordingError, mapped
from tickpath.wire import (
    Cancel,
    ClientMessage,
    CloseFeed,
    Failure,
    FeedOpened,
    Goodbye,
    Hello,
    Infer,
    Models,
    OpenFeed,
    Ping,
    RemoteProtocolError,
    ServerMessage,
    SnapshotFeed,
    Tick,
    decode_client_message,
    decode_server_message,
)

NONE: Final = -1
CANCEL: Final = -2
_COLUMNS: Final = 9
# Segments looked at at one time.
FILES_OPEN: Final = 4

_UNASKED: Final = (Hello, Models, Ping, Goodbye)  # the core records none of these


class Session(NamedTuple):
    """One that was recorded: in which life of a core, its number there, and its client's name."""

    run: str
    number: int
    client: str


class Exchange(NamedTuple):
    """A request and where its answer is; places are of segments, offsets of an entry's body in one. `reply_segment`
    NONE: there is no answer. `handle` NONE: it is of no model, or of one that the recording does not tell; CANCEL: it
    takes another one back. The end of a session is one too, of length 0."""

    unix_ns: int
    session: int
    segment: int
    offset: int
    length: int
    reply_segment: int
    reply_offset: int
    reply_length: int
    handle: int

    @property
    def is_request(self) -> bool:
        """Whether an answer belongs to it."""
        return self.length > 0 and self.handle != CANCEL


class Exchanges:
    """All of a recording's segments; 72 bytes for each exchange."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []
        self.models: dict[tuple[str, int], DescribedModel] = {}
        """By a core's life and a handle."""
        self.hashes: dict[tuple[str, str], str] = {}
        """sha256 by a model's name and version."""
        self.segments: list[Segment] = []
        self.orphans = 0
        """Answers to requests that the recording does not hold."""
        self.unreadable = 0
        """Entries that are whole and hold no message."""
        self._table = array("q")
        self._places: dict[tuple[str, int], int] = {}
        self._waiting: dict[tuple[int, int], list[int]] = {}
        self._feeds: dict[tuple[str, int], int] = {}  # handle by a core's life and a feed's number
        self._opening: dict[int, int] = {}  # handle by index of an OpenFeed

    def __len__(self) -> int:
        return len(self._table) // _COLUMNS

    def __getitem__(self, index: int) -> Exchange:
        start = index * _COLUMNS
        return Exchange(*self._table[start : start + _COLUMNS])

    def __iter__(self) -> Iterator[Exchange]:
        return map(self.__getitem__, range(len(self)))

    def session(self, exchange: Exchange) -> Session:
        return self.sessions[exchange.session]

    def model(self, exchange: Exchange) -> DescribedModel | None:
        """Whose it is, where the recording tells."""
        return self.models.get((self.sessions[exchange.session].run, exchange.handle))

    def add(self, segment: Segment) -> None:
        """Read a segment to its end. Raises RecordingError, OSError."""
        place = len(self.segments)
        self.segments.append(segment)
        for offset, entry in segment:
            self._take(segment, place, offset + HEADER_BYTES, entry)

    def _take(self, segment: Segment, place: int, offset: int, entry: Entry) -> None:
        run = segment.header.run
        match entry.kind:
            case Kind.DESCRIPTION:
                told = description(entry)
                self.models |= {(run, model.handle): model for model in told.models}
                self.hashes |= {(version.name, version.version): version.sha256 for version in told.versions}
            case Kind.OPENED:
                self._session(run, entry.session, bytes(entry.body).decode(errors="replace"))
            case Kind.REQUEST:
                self._request(segment, place, offset, entry)
            case Kind.REPLY:
                self._reply(run, place, offset, entry)
            case Kind.CLOSED:
                session = self._session(run, entry.session)
                self._row(segment.unix_ns(entry.at_ns), session, place, offset, 0, NONE)

    def _session(self, run: str, number: int, client: str = "") -> int:
        key = (run, number)
        if key not in self._places:
            self._places[key] = len(self.sessions)
            self.sessions.append(Session(run, number, client))
        return self._places[key]

    def _row(self, unix_ns: int, session: int, place: int, offset: int, length: int, handle: int) -> int:
        index = len(self)
        self._table.extend((unix_ns, session, place, offset, length, NONE, 0, 0, handle))
        return index

    def _request(self, segment: Segment, place: int, offset: int, entry: Entry) -> None:
        message = decode_request(entry.body)
        if message is None or isinstance(message, _UNASKED):
            self.unreadable += 1
            return
        run = segment.header.run
        session = self._session(run, entry.session)
        handle = self._handle(run, message)
        # Nothing that was ever recorded has a handle as large as that.
        handle = handle if handle < 2**31 else NONE
        index = self._row(segment.unix_ns(entry.at_ns), session, place, offset, len(entry.body), handle)
        if isinstance(message, OpenFeed):
            self._opening[index] = handle
        if not isinstance(message, Cancel):
            self._waiting.setdefault((session, message.id), []).append(index)

    def _handle(self, run: str, message: ClientMessage) -> int:
        match message:
            case Infer(handle=handle) | OpenFeed(handle=handle):
                return handle
            case Tick(feed=feed) | CloseFeed(feed=feed) | SnapshotFeed(feed=feed):
                return self._feeds.get((run, feed), NONE)
            case Cancel():
                return CANCEL
        return NONE

    def _reply(self, run: str, place: int, offset: int, entry: Entry) -> None:
        message = decode_reply(entry.body)
        if message is None:
            self.unreadable += 1
            return
        request_id: int = getattr(message, "id", 0)
        key = (self._session(run, entry.session), request_id)
        if (waiting := self._waiting.get(key)) is None:
            # The last words to a session answer nothing.
            self.orphans += not (isinstance(message, Failure) and request_id == 0)
            return
        index = waiting.pop()
        if not waiting:
            del self._waiting[key]
        start = index * _COLUMNS
        self._table[start + 5 : start + 8] = array("q", (place, offset, len(entry.body)))
        handle = self._opening.pop(index, NONE)
        if isinstance(message, FeedOpened):
            self._feeds[run, message.feed] = handle


class Bodies:
    """What the exchanges' places and offsets lead to."""

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._paths = [segment.path for segment in segments]
        # A reply lies in its request's segment or in one of the next.
        self._data = lru_cache(FILES_OPEN)(self._map)

    def read(self, place: int, offset: int, length: int) -> memoryview:
        """The body of an entry. Raises OSError; RecordingError where the file is not what it was."""
        body = self._data(place)[offset : offset + length]
        if len(body) < length:
            raise RecordingError(f"{self._paths[place]} has become shorter since it was read: was it a server's own?")
        return body

    def _map(self, place: int) -> memoryview:
        path = self._paths[place]
        return mapped(path if path.exists() else path.with_suffix(CLOSED))  # one that was written is closed by now


def decode_request(body: memoryview) -> ClientMessage | None:
    """None where it is no message."""
    try:
        return decode_client_message(body)
    except RemoteProtocolError:
        return None


def decode_reply(body: memoryview) -> ServerMessage | None:
    """None where it is no message."""
    try:
        return decode_server_message(body)
    except RemoteProtocolError:
        return None
