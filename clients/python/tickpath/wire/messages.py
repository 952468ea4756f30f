"""Every message, as an array whose first element is its tag. docs/PROTOCOL.md is the authority.

Arrays grow at their end only: a reader takes missing trailing elements as their defaults and passes over extra ones, so
either peer may be the newer one.

Ranges are checked as a message is decoded, never as it is encoded: `TENSORS_MAX` and the like bind the sender too.
`gc=False`: a message holds no cycles, so the collector need never look at it.
"""

from math import prod
from typing import Annotated, Final

import msgspec

from tickpath.wire.codes import Code
from tickpath.wire.dtypes import ITEM_BYTES

PROTOCOL_VERSION: Final = 1

# A tensor of 0 bytes takes 2 on the wire and 200 in memory: without a bound, a frame of 64 MiB could take 6 GiB.
TENSORS_MAX: Final = 1024
# What a client may say before anyone knows who it is. 2048 hold a signed web token with its claims, and the whole Hello
# still fits in the 4096 bytes that every server takes.
CLIENT_CHARS_MAX: Final = 128
TOKEN_CHARS_MAX: Final = 2048
REASON_CHARS_MAX: Final = 1024
# A feed's name: an instrument, a venue and a strategy fit; a server keeps it as long as the feed.
KEY_CHARS_MAX: Final = 128

Natural = Annotated[int, msgspec.Meta(ge=0)]
Id = Annotated[int, msgspec.Meta(ge=1)]  # 0 is the session itself, in Failure
Stamps = tuple[Natural, Natural, Natural, Natural, Natural, Natural]


class Message(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """Base of all that travels: encoded as an array, never changed once made."""


class TensorInfo(Message, frozen=True):
    """One input or output of a model.

    `shape` is that of one row; along `batch_axis` a tensor of `rows` rows is `rows` times as long. `batch_axis` -1: the
    tensor has no batch axis and always has exactly this shape. `optional`: an input that may be sent as nil and then
    takes the model's own value.
    """

    name: str
    dtype: str
    shape: tuple[Natural, ...]
    batch_axis: Annotated[int, msgspec.Meta(ge=-1)] = -1
    optional: bool = False

    def shape_at(self, rows: int) -> tuple[int, ...]:
        """The tensor's shape in a request of `rows` rows."""
        axis = self.batch_axis
        if axis < 0:
            return self.shape
        return (*self.shape[:axis], self.shape[axis] * rows, *self.shape[axis + 1 :])

    def bytes_at(self, rows: int) -> int:
        """Bytes of the tensor in a request of `rows` rows. Raises KeyError at a dtype that ITEM_BYTES does not know."""
        return prod(self.shape_at(rows)) * ITEM_BYTES[self.dtype]

    def describe(self) -> str:
        """For people: `float32[N,100,40]`, where N is the batch axis (`3N` where one row takes three places)."""
        sizes = [str(size) for size in self.shape]
        if self.batch_axis >= 0:
            per_row = self.shape[self.batch_axis]
            sizes[self.batch_axis] = "N" if per_row == 1 else f"{per_row}N"
        return f"{self.dtype}[{','.join(sizes)}]"


class ModelInfo(Message, frozen=True):
    """A model as a client sees it. `handle` names it in requests, on this connection only; `buckets` ascend, and the
    last one is the most rows a request may have. `feeds` are the kinds of feeds that it keeps: "window" or "carry".
    `sha256` is that of the model file, in hexadecimal; empty where the server does not tell."""

    name: str
    version: str
    handle: Natural
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    buckets: tuple[Natural, ...]
    feeds: tuple[str, ...] = ()
    sha256: str = ""


class Limits(Message, frozen=True):
    """What this server takes at the most, told at the start so that a client never has to find out by being refused.
    Those of feeds are 0 where an older server tells none."""

    frame_bytes_max: Natural
    in_flight_max: Natural
    sessions_max: Natural
    frame_ns_max: Natural
    priority_levels: Natural = 1
    feeds_per_session_max: Natural = 0
    feeds_max: Natural = 0
    feed_bytes_max: Natural = 0
    feed_idle_ns: Natural = 0


class Hello(Message, frozen=True, tag=1):
    """The first message of a client, and only the first. `token` is empty where the server asks for none."""

    protocol: Natural
    client: Annotated[str, msgspec.Meta(max_length=CLIENT_CHARS_MAX)]
    token: Annotated[str, msgspec.Meta(max_length=TOKEN_CHARS_MAX)] = ""

    def __repr__(self) -> str:
        """Never the token, wherever it is printed."""
        return f"Hello(protocol={self.protocol}, client={self.client!r}, token={'...' if self.token else ''!r})"


class Welcome(Message, frozen=True, tag=2):
    """The answer to Hello: the session is open."""

    protocol: Natural
    server: str
    limits: Limits
    models: tuple[ModelInfo, ...]


class Models(Message, frozen=True, tag=3):
    """Asks for the models as they are now; with `versions`, for every version that is loaded, each under a handle that
    stays with it."""

    id: Id
    versions: bool = False


class ModelList(Message, frozen=True, tag=4):
    """The answer to Models. `limits` are those of now: a model that was loaded since Welcome may need larger frames."""

    id: Id
    models: tuple[ModelInfo, ...]
    limits: Limits | None = None


class Infer(Message, frozen=True, tag=5):
    """Asks for one prediction of `rows` rows.

    `inputs` stand in the model's own order, each the raw bytes of a C-order little-endian tensor, or nil for an
    optional input. `budget_ns` counts from the server's receipt, 0 is none. `priority` 0 is the highest. `feed` 0 is
    none. `event_time_ns` (Unix time of the event behind the request, 0 unknown) is kept in the server's records and
    changes nothing else. `key`: of the requests of one session and handle under one key only the newest matters, 0 is
    none.
    """

    id: Id
    handle: Natural
    rows: Natural
    inputs: Annotated[list[memoryview | None], msgspec.Meta(max_length=TENSORS_MAX)]
    budget_ns: Natural = 0
    priority: Natural = 0
    feed: Natural = 0
    event_time_ns: Natural = 0
    key: Natural = 0


class Result(Message, frozen=True, tag=6):
    """The answer to an Infer or a Tick. `stamps` are the six marks of `STAMP_NAMES`, in nanoseconds of the server's
    monotonic clock. `flags` are bits of `Flag`; `age_ns` is how old an answer is that stands in for one
    (`Flag.LAST_ANSWER`), 0 for any other."""

    id: Id
    version: str
    outputs: Annotated[list[memoryview], msgspec.Meta(max_length=TENSORS_MAX)]
    stamps: Stamps
    flags: Natural = 0
    age_ns: Natural = 0


class Failure(Message, frozen=True, tag=7):
    """A refusal. `id` is that of the request, or 0 where it is the session that is refused; then the session closes.
    `next_sequence` is what a refused Tick's feed takes next, 0 for all that is no Tick of an open feed: whoever sent
    this very number has not been taken."""

    id: Natural
    code: Code
    message: str
    next_sequence: Natural = 0


class OpenFeed(Message, frozen=True, tag=8):
    """Asks for the feed of this name: one that goes on where it is, or a new one. `anew` empties it; `snapshot` gives
    it what a FeedSnapshot said."""

    id: Id
    handle: Natural
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=KEY_CHARS_MAX)]
    anew: bool = False
    snapshot: memoryview | None = None


class CloseFeed(Message, frozen=True, tag=9):
    """Asks the server to forget a feed."""

    id: Id
    feed: Natural


class Tick(Message, frozen=True, tag=10):
    """Asks for one prediction from a feed, by what is new: `inputs` are what FeedOpened lists, as Infer has them.
    `sequence` counts a feed's ticks from 1. The other fields are those of Infer."""

    id: Id
    feed: Natural
    sequence: Natural
    inputs: Annotated[list[memoryview | None], msgspec.Meta(max_length=TENSORS_MAX)]
    budget_ns: Natural = 0
    priority: Natural = 0
    event_time_ns: Natural = 0


class Cancel(Message, frozen=True, tag=11):
    """Takes a request back if it has not started. It is answered CANCELLED, or with its Result when it was too late."""

    id: Id


class Ping(Message, frozen=True, tag=12):
    """Asks for a Pong."""

    id: Id


class Pong(Message, frozen=True, tag=13):
    """The answer to Ping. `server_ns` is the server's monotonic clock, the one of the stamps."""

    id: Id
    server_ns: Natural


class Goodbye(Message, frozen=True, tag=14):
    """Either side: no new request will be sent, or taken. Answers to what is in flight still come."""

    reason: Annotated[str, msgspec.Meta(max_length=REASON_CHARS_MAX)] = ""


class FeedOpened(Message, frozen=True, tag=15):
    """The answer to OpenFeed. `feed` names it in Tick. Of a window of `window` rows (0: the feed has none) it holds
    `filled`; a prediction needs them all, unless `pads`. `inputs` and `outputs` are a Tick's and its Result's."""

    id: Id
    feed: Natural
    next_sequence: Natural
    window: Natural
    filled: Natural
    pads: bool
    version: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]


class SnapshotFeed(Message, frozen=True, tag=16):
    """Asks for what a feed holds."""

    id: Id
    feed: Natural


class FeedSnapshot(Message, frozen=True, tag=17):
    """The answer to SnapshotFeed: bytes for `OpenFeed.snapshot`, of any server with an equal model."""

    id: Id
    next_sequence: Natural
    snapshot: memoryview


class FeedClosed(Message, frozen=True, tag=18):
    """The answer to CloseFeed."""

    id: Id


STAMP_NAMES: Final = ("first_byte", "received", "started", "filled", "computed", "read")
"""first byte of the frame seen, whole frame received, request started, inputs copied in, engine done, outputs ready to
encode."""

STAGES: Final = ("receive", "queue", "input", "compute", "output")
"""The spans between one stamp and the next; the sixth stage, send, ends after the reply has left and is only in the
metrics."""

ClientMessage = Hello | Models | Infer | OpenFeed | CloseFeed | Tick | SnapshotFeed | Cancel | Ping | Goodbye
ServerMessage = Welcome | ModelList | Result | Failure | FeedOpened | FeedSnapshot | FeedClosed | Pong | Goodbye
