"""The entries of clients/vectors/, each with its name and meaning: canonical frames as the messages they come from, all
others as bytes written by hand, since no encoder of ours makes them.
"""

import struct
from typing import Final

import msgspec

from tickpath.wire import (
    Cancel,
    ClientMessage,
    CloseFeed,
    Code,
    Failure,
    FeedClosed,
    FeedOpened,
    FeedSnapshot,
    Goodbye,
    Hello,
    Infer,
    Limits,
    ModelInfo,
    ModelList,
    Models,
    OpenFeed,
    Ping,
    Pong,
    Result,
    ServerMessage,
    SnapshotFeed,
    TensorInfo,
    Tick,
    Welcome,
)

U64_MAX: Final = 2**64 - 1
NAN: Final = struct.pack("<f", float("nan"))


class Stream(msgspec.Struct, frozen=True):
    """Bytes as they come, and the bodies of the frames in them; `code` where the stream then ends in a refusal,
    `bytes_waiting` where it ends within a frame."""

    name: str
    meaning: str
    frame_bytes_max: int
    stream: str
    frames: list[str]
    bytes_waiting: int = 0
    code: str | None = None


def raw(data: bytes) -> memoryview:
    """A tensor's bytes."""
    return memoryview(data)


BOOK: Final = TensorInfo("book", "float32", (1, 2), 0)
MOVE: Final = TensorInfo("move", "float32", (1, 1), 0)
MID: Final = ModelInfo("mid", "1", 0, (BOOK,), (MOVE,), (1, 2, 4, 8))
RICH: Final = ModelInfo(
    "gru.v2",
    "2025-09-17",
    U64_MAX,
    (
        TensorInfo("x", "float16", (120, 1, 3), 1),
        TensorInfo("pairs", "int64", (3, 2), 0),
        TensorInfo("h0", "float64", (1, 64), -1, True),
        TensorInfo("scale", "bool", ()),
    ),
    (TensorInfo("größe", "uint8", (1, 0), 0),),
    (1, 8, 128, 2048),
    ("es", "nq"),
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
)
LIMITS: Final = Limits(64 * 1024 * 1024, 128, 1024, 5_000_000_000, 1, 512, 4096, 2**28, 900_000_000_000)
STAMPS: Final = (
    1_000_000_000_000,
    1_000_000_000_500,
    1_000_000_001_000,
    1_000_000_001_200,
    1_000_000_009_000,
    1_000_000_009_100,
)

CLIENT_CANONICAL: Final[list[tuple[str, str, ClientMessage]]] = [
    ("worked-hello", "the Hello of docs/PROTOCOL.md", Hello(1, "desk-7")),
    ("worked-infer", "the Infer of docs/PROTOCOL.md", Infer(1, 0, 1, [raw(struct.pack("<2f", 1.5, -2.0))], 2_000_000)),
    ("hello-empty", "an empty client name and no token", Hello(1, "")),
    ("hello-full", "UTF-8 in the name, 128 characters; a token of 300", Hello(1, "µ" * 128, "t" * 300)),
    ("hello-newer", "a later protocol: a message, which the server then refuses", Hello(U64_MAX, "tomorrow")),
    ("models", "the smallest id", Models(1)),
    ("models-max", "the largest id", Models(U64_MAX)),
    ("models-versions", "every version", Models(7, True)),
    ("infer-no-inputs", "a model without inputs", Infer(2, 0, 1, [])),
    (
        "infer-nil",
        "an optional input left out between two",
        Infer(3, 1, 1, [raw(b"\1\2"), None, raw(b"\3")]),
    ),
    ("infer-empty-tensor", "a tensor of 0 bytes is not an input left out", Infer(4, 1, 1, [raw(b"")])),
    ("infer-nan", "NaN travels as its IEEE bytes", Infer(5, 0, 1, [raw(NAN + NAN)])),
    ("infer-bin16", "a tensor of 256 bytes", Infer(6, 0, 32, [raw(bytes(range(256)))])),
    ("infer-bin32", "a tensor of 65,536 bytes", Infer(7, 0, 8192, [raw(bytes(65_536))])),
    ("infer-16-inputs", "an array16 of inputs", Infer(8, 0, 1, [raw(bytes([i])) for i in range(16)])),
    ("infer-zero-rows", "a message, which the server then refuses BAD_SHAPE", Infer(9, 0, 0, [raw(b"")])),
    (
        "infer-max",
        "the largest of every number: a message, which the server then refuses",
        Infer(U64_MAX, U64_MAX, U64_MAX, [None], U64_MAX, U64_MAX, U64_MAX, U64_MAX, U64_MAX),
    ),
    ("open-feed", "as it is, or a new one", OpenFeed(1, 0, "ESH4")),
    ("open-feed-anew", "emptied; 128 characters of UTF-8", OpenFeed(2, U64_MAX, "ß" * 128, True)),
    ("open-feed-snapshot", "as a snapshot says", OpenFeed(3, 0, "ESH4", False, raw(b"\x96\1"))),
    (
        "open-feed-empty-snapshot",
        "0 bytes are not nil: a message, which the server refuses",
        OpenFeed(4, 0, "k", False, raw(b"")),
    ),
    ("close-feed", "forgets feed 1", CloseFeed(5, 1)),
    ("close-feed-max", "the largest numbers", CloseFeed(U64_MAX, U64_MAX)),
    ("tick", "one row of two floats", Tick(6, 1, 1, [raw(struct.pack("<2f", 1.5, -2.0))])),
    (
        "tick-max",
        "the largest of every number, an input left out",
        Tick(U64_MAX, U64_MAX, U64_MAX, [None], U64_MAX, U64_MAX, U64_MAX),
    ),
    ("tick-no-inputs", "a message, which the server then refuses BAD_SHAPE", Tick(7, 1, 2, [])),
    ("snapshot-feed", "copies feed 1", SnapshotFeed(8, 1)),
    ("cancel", "takes back request 1", Cancel(1)),
    ("ping-127", "the largest number in one byte", Ping(127)),
    ("ping-128", "the smallest number in two bytes", Ping(128)),
    ("ping-256", "the smallest number in three bytes", Ping(256)),
    ("ping-65536", "the smallest number in five bytes", Ping(65_536)),
    ("ping-2-32", "the smallest number in nine bytes", Ping(2**32)),
    ("ping-2-63", "a number no signed 64-bit integer holds", Ping(2**63)),
    ("ping-max", "the largest id", Ping(U64_MAX)),
    ("goodbye-empty", "no reason given", Goodbye()),
    ("goodbye", "with a reason", Goodbye("end of day")),
]

SERVER_CANONICAL: Final[list[tuple[str, str, ServerMessage]]] = [
    ("worked-welcome", "the Welcome of docs/PROTOCOL.md", Welcome(1, "tickpath 0.1.0", LIMITS, (MID,))),
    ("worked-result", "the Result of docs/PROTOCOL.md", Result(1, "1", [raw(struct.pack("<f", 0.25))], STAMPS)),
    ("welcome-no-models", "nothing is served yet", Welcome(1, "", LIMITS, ())),
    (
        "welcome-rich",
        "batch axis 1, three places per row, an optional input, a scalar, feeds",
        Welcome(1, "s", LIMITS, (RICH,)),
    ),
    ("model-list", "two models", ModelList(7, (MID, RICH))),
    ("model-list-empty", "no models", ModelList(U64_MAX, ())),
    ("model-list-limits", "with the limits of now", ModelList(7, (MID,), Limits(4096, 32, 1024, 5_000_000_000))),
    ("result-max", "the largest id and stamps", Result(U64_MAX, "", [], (U64_MAX,) * 6)),
    ("result-nan", "NaN and an empty tensor", Result(2, "2025-09-17", [raw(NAN), raw(b"")], (0,) * 6)),
    ("result-bin16", "an output of 256 bytes", Result(3, "1", [raw(bytes(256))], STAMPS)),
    ("result-flags", "an input and an output that are not finite", Result(4, "1", [raw(NAN)], STAMPS, 3)),
    (
        "result-last",
        "an answer of before, 20 ms old, and its version",
        Result(5, "0", [raw(b"")], STAMPS, 8, 20_000_000),
    ),
    ("result-flags-max", "bits that nobody knows yet", Result(6, "1", [], STAMPS, U64_MAX, U64_MAX)),
    *((f"failure-{code.name}", f"code {code.value}", Failure(code.value, code, "expected, came, do")) for code in Code),
    ("failure-session", "id 0: the session is refused and closes", Failure(0, Code.BAD_MESSAGE, "not a message")),
    ("failure-empty", "the largest id, no message", Failure(U64_MAX, Code.DEADLINE, "")),
    ("failure-tick", "a tick that was not taken: 7 is next", Failure(6, Code.FEED_GAP, "7 is next", 7)),
    ("failure-next-max", "the largest number", Failure(1, Code.DEADLINE, "", U64_MAX)),
    (
        "feed-opened",
        "a window of 100 rows, 12 of which are there",
        FeedOpened(1, 1, 13, 100, 12, False, "1", (BOOK,), (MOVE,)),
    ),
    ("feed-opened-carry", "states that run on: no window", FeedOpened(2, 2, 1, 0, 0, False, "", (), ())),
    (
        "feed-opened-max",
        "the largest of every number; pads",
        FeedOpened(U64_MAX, U64_MAX, U64_MAX, U64_MAX, U64_MAX, True, "v", (), ()),
    ),
    ("feed-snapshot", "what a feed holds, before tick 13", FeedSnapshot(8, 13, raw(b"\x96\1"))),
    ("feed-snapshot-max", "the largest numbers, no bytes", FeedSnapshot(U64_MAX, U64_MAX, raw(b""))),
    ("feed-closed", "the answer to CloseFeed", FeedClosed(5)),
    ("pong", "an answer to Ping", Pong(1, 1_000_000_000_000)),
    ("pong-max", "the largest numbers", Pong(U64_MAX, U64_MAX)),
    ("goodbye-empty", "no reason given", Goodbye()),
    ("goodbye", "the server drains", Goodbye("draining")),
]

CLIENT_OTHER: Final = [
    ("hello-token-missing", "a trailing element left out takes its default", "93 01 01 a1 61"),
    ("hello-extra", "trailing elements of a newer peer are passed over", "96 01 01 a1 61 a0 c0 81 a1 6b 93 01 02 c3"),
    ("hello-str8", "text with a length of one byte", "94 01 01 d9 01 61 a0"),
    ("hello-str16", "text with a length of two bytes", "94 01 01 da 00 01 61 a0"),
    ("hello-str32", "text with a length of four bytes", "94 01 01 db 00 00 00 01 61 a0"),
    ("infer-defaults", "no budget, priority, feed or event time", "95 05 01 00 01 91 c4 01 ff"),
    ("infer-budget-only", "only the budget is given", "96 05 01 00 01 91 c4 01 ff cd 03 e8"),
    (
        "infer-extra",
        "an extra element after key",
        "9b 05 01 00 01 91 c4 01 ff 00 00 00 00 00 cb 7f f8 00 00 00 00 00 00",
    ),
    ("infer-no-key", "from a client that knows no keys", "99 05 01 00 01 91 c4 01 ff 00 00 00 00"),
    ("infer-bin16-short", "bin16 where bin8 would do", "95 05 01 00 01 91 c5 00 01 ff"),
    ("infer-bin32-short", "bin32 where bin8 would do", "95 05 01 00 01 91 c6 00 00 00 01 ff"),
    ("infer-array16-short", "array16 of inputs where a short one would do", "95 05 01 00 01 dc 00 01 c0"),
    ("infer-array32-short", "array32 of inputs where a short one would do", "95 05 01 00 01 dd 00 00 00 01 c0"),
    ("open-feed-short", "a snapshot and anew left out", "94 08 01 00 a1 6b"),
    ("open-feed-extra", "an extra element", "97 08 01 00 a1 6b c2 c0 05"),
    ("tick-short", "no budget, priority or event time", "95 0a 01 01 01 91 c4 01 ff"),
    ("ping-uint8", "5 as uint8", "92 0c cc 05"),
    ("ping-uint16", "5 as uint16", "92 0c cd 00 05"),
    ("ping-uint32", "5 as uint32", "92 0c ce 00 00 00 05"),
    ("ping-uint64", "5 as uint64", "92 0c cf 00 00 00 00 00 00 00 05"),
    ("ping-int8", "5 as int8", "92 0c d0 05"),
    ("ping-int16", "5 as int16", "92 0c d1 00 05"),
    ("ping-int32", "5 as int32", "92 0c d2 00 00 00 05"),
    ("ping-int64", "5 as int64", "92 0c d3 00 00 00 00 00 00 00 05"),
    ("ping-tag-uint64", "the tag as uint64", "92 cf 00 00 00 00 00 00 00 0c 05"),
    ("ping-array16", "the message as array16", "dc 00 02 0c 05"),
    ("ping-array32", "the message as array32", "dd 00 00 00 02 0c 05"),
    (
        "ping-extra-ext",
        "an extra element may be of any MessagePack type, an extension too",
        "93 0c 05 c7 06 40 07 e9 04 16 09 1e",
    ),
    ("goodbye-short", "the shortest message: a tag alone", "91 0e"),
]

SERVER_OTHER: Final = [
    ("welcome-limits-short", "priority_levels and what is behind it left out", "95 02 01 a0 94 10 01 01 01 90"),
    ("welcome-limits-extra", "a limit this reader does not know", "95 02 01 a0 9a 10 01 01 01 02 03 04 05 06 ff 90"),
    (
        "model-list-short",
        "a model without feeds, a tensor without batch axis and optional",
        "93 04 01 91 97 a1 6d a1 31 00 91 93 a1 78 a4 62 6f 6f 6c 91 01 90 91 01 90",
    ),
    (
        "result-wide",
        "every number as uint64, the output as bin32",
        "95 06 cf 00 00 00 00 00 00 00 01 a1 31 91 c6 00 00 00 01 ff 96 00 00 00 00 00 cf 00 00 00 00 00 00 00 01",
    ),
    ("failure-extra", "an element after next_sequence", "96 07 01 10 a0 00 c0"),
    ("feed-closed-extra", "an extra element", "93 12 01 c0"),
    ("result-short", "flags and age_ns left out", "95 06 01 a1 31 91 c4 01 ff 96 00 00 00 00 00 00"),
    ("result-flags-only", "age_ns left out", "96 06 01 a1 31 91 c4 01 ff 96 00 00 00 00 00 00 10"),
    (
        "result-extra",
        "an extra element after age_ns",
        "98 06 01 a1 31 91 c4 01 ff 96 00 00 00 00 00 00 08 01 a1 78",
    ),
    ("failure-wide-code", "the code as uint16", "94 07 01 cd 00 10 a0"),
    ("pong-extra", "an extra element", "94 0d 01 02 c2"),
    ("goodbye-short", "the shortest message: a tag alone", "91 0e"),
]

BOTH_INVALID: Final = [
    ("not-an-array", "a map", "81 0c 05"),
    ("number", "a number alone", "0c 0c"),
    ("empty-array", "an array without a tag, and a byte more", "90 c0"),
    ("never-used", "the one byte MessagePack never uses", "c1 c1"),
    ("tag-unknown", "tag 19 is nobody's", "92 13 01"),
    ("tag-zero", "tag 0 is nobody's", "92 00 01"),
    ("tag-negative", "tags are unsigned", "92 ff 01"),
    ("tag-text", "a tag is a number", "92 a1 0c 01"),
    ("tag-float", "14.0 is not 14", "91 cb 40 2c 00 00 00 00 00 00"),
    ("tag-nested", "200 arrays within each other", "91" * 200),
    ("array-4-gib", "an array of 4,294,967,295 elements, none of which came", "dd ff ff ff ff"),
    ("map-4-gib", "a map of 4,294,967,295 entries, none of which came", "df ff ff ff ff"),
    ("bin-4-gib", "4,294,967,295 bytes, none of which came", "c6 ff ff ff ff"),
    ("trailing-byte", "a byte after the message", "91 0e 00"),
    ("two-messages", "a frame holds one message", "91 0e 91 0e"),
    ("goodbye-bad-utf8", "text that is not UTF-8", "92 0e a1 ff"),
    ("goodbye-surrogate", "text with half a surrogate pair", "92 0e a3 ed a0 80"),
    ("goodbye-bin", "bytes where text is wanted", "92 0e c4 01 61"),
    ("goodbye-nil", "nil is not an empty text", "92 0e c0"),
    ("goodbye-cut", "text of 2 bytes, one of which came", "92 0e a2 61"),
    ("extra-cut", "an extra element that is not whole", "93 0e a0 c5 00"),
    ("extra-never-used", "an extra element that is not MessagePack", "93 0e a0 c1"),
]

CLIENT_INVALID: Final = [
    ("servers-tag", "a Pong is no client's message", "93 0d 01 01"),
    ("id-missing", "Ping without its id", "91 0c"),
    ("id-zero", "id 0 is the session's", "92 0c 00"),
    ("id-negative", "ids are unsigned", "92 0c ff"),
    ("id-int64-min", "ids are unsigned", "92 0c d3 80 00 00 00 00 00 00 00"),
    ("id-float", "5.0 is not 5", "92 0c cb 40 14 00 00 00 00 00 00"),
    ("id-nan", "a float where a number without fraction is wanted", "92 0c cb 7f f8 00 00 00 00 00 00"),
    ("id-bool", "true is not 1", "92 0c c3"),
    ("id-nil", "nil is not a number", "92 0c c0"),
    ("id-text", "text is not a number", "92 0c a1 31"),
    ("id-timestamp", "an extension is not a number", "92 0c d6 ff 00 00 00 01"),
    ("id-cut", "a number of 8 bytes, one of which came", "92 0c cf 00"),
    ("hello-client-missing", "a required element left out", "92 01 01"),
    ("hello-client-long", "a name of 129 characters", "93 01 01 d9 81" + "61" * 129),
    ("open-feed-key-missing", "a required element left out", "93 08 01 00"),
    ("open-feed-key-empty", "a key has a character at least", "94 08 01 00 a0"),
    ("open-feed-key-long", "a key of 129 characters", "94 08 01 00 d9 81" + "61" * 129),
    ("open-feed-key-bin", "a key is text", "94 08 01 00 c4 01 61"),
    ("open-feed-anew-number", "1 is not true", "95 08 01 00 a1 6b 01"),
    ("open-feed-snapshot-text", "a snapshot is bin", "96 08 01 00 a1 6b c2 a1 61"),
    ("tick-sequence-negative", "ticks are counted upward", "95 0a 01 01 ff 91 c0"),
    ("tick-inputs-missing", "a required element left out", "94 0a 01 01 01"),
    ("tick-inputs-1025", "one input over the most there may be", "95 0a 01 01 01 dc 04 01" + "c0" * 1025),
    ("infer-rows-negative", "there is no -1 for rows", "95 05 01 00 ff 91 c0"),
    ("infer-handle-negative", "handles are unsigned", "95 05 01 ff 01 91 c0"),
    ("infer-budget-negative", "a budget is unsigned", "96 05 01 00 01 91 c0 ff"),
    ("infer-key-negative", "a key is unsigned", "9a 05 01 00 01 91 c0 00 00 00 00 ff"),
    ("infer-inputs-missing", "a required element left out", "94 05 01 00 01"),
    ("infer-inputs-nil", "nil is not an empty array", "95 05 01 00 01 c0"),
    ("infer-inputs-map", "inputs go by order, not by name", "95 05 01 00 01 81 a1 78 c4 00"),
    ("infer-inputs-4-gib", "4,294,967,295 inputs, none of which came", "95 05 01 00 01 dd ff ff ff ff"),
    ("infer-inputs-1025", "one input over the most there may be", "95 05 01 00 01 dc 04 01" + "c0" * 1025),
    ("infer-input-text", "a tensor is bin, not str", "95 05 01 00 01 91 a1 61"),
    ("infer-input-array", "a tensor is bin, not an array of numbers", "95 05 01 00 01 91 92 01 02"),
    ("infer-input-ext", "a tensor is bin, not an extension", "95 05 01 00 01 91 c7 06 40 07 e9 04 16 09 1e"),
    ("infer-input-4-gib", "a tensor of 4,294,967,295 bytes, none of which came", "95 05 01 00 01 91 c6 ff ff ff ff"),
    ("infer-input-cut", "a tensor of 2 bytes, one of which came", "95 05 01 00 01 91 c4 02 ff"),
]

SERVER_INVALID: Final = [
    ("clients-tag", "an Infer is no server's message", "95 05 01 00 01 90"),
    ("code-zero", "0 is no code", "94 07 01 00 a0"),
    ("code-17", "a code that does not exist", "94 07 01 11 a0"),
    ("code-negative", "codes are unsigned", "94 07 01 ff a0"),
    ("feed-opened-pads-number", "1 is not true", "9a 0f 01 01 01 00 00 01 a0 90 90"),
    ("feed-snapshot-nil", "a snapshot is never left out", "94 11 01 01 c0"),
    ("feed-closed-id-zero", "ids begin at 1", "92 12 00"),
    ("failure-id-negative", "ids are unsigned", "94 07 ff 10 a0"),
    ("result-id-zero", "only a Failure has id 0", "95 06 00 a0 90 96 00 00 00 00 00 00"),
    ("result-stamps-5", "six stamps, no fewer", "95 06 01 a0 90 95 00 00 00 00 00"),
    ("result-stamps-7", "six stamps, no more", "95 06 01 a0 90 97 00 00 00 00 00 00 00"),
    ("result-stamp-negative", "stamps are unsigned", "95 06 01 a0 90 96 00 00 00 00 00 ff"),
    ("result-flags-negative", "flags are unsigned", "96 06 01 a0 90 96 00 00 00 00 00 00 ff"),
    ("result-age-float", "5.0 is not 5", "97 06 01 a0 90 96 00 00 00 00 00 00 08 cb 40 14 00 00 00 00 00 00"),
    ("result-output-nil", "an output is never left out", "95 06 01 a0 91 c0 96 00 00 00 00 00 00"),
    (
        "result-outputs-1025",
        "one output over the most there may be",
        "95 06 01 a0 dc 04 01" + "c4 00" * 1025 + "96 00 00 00 00 00 00",
    ),
    ("welcome-limits-3", "a required limit left out", "95 02 01 a0 93 10 01 01 90"),
    (
        "model-list-shape-negative",
        "sizes are unsigned",
        "93 04 01 91 97 a1 6d a1 31 00 91 93 a1 78 a4 62 6f 6f 6c 91 ff 90 91 01 90",
    ),
    (
        "model-list-axis-minus-2",
        "-1 is no batch axis; there is no -2",
        "93 04 01 91 97 a1 6d a1 31 00 91 94 a1 78 a4 62 6f 6f 6c 91 01 fe 90 91 01 90",
    ),
    ("pong-clock-missing", "a required element left out", "92 0d 01"),
]

PING: Final = "92 0c 05"
STREAMS: Final = [
    Stream("nothing", "no bytes, no frames", 1024, "", []),
    Stream("one", "one frame", 1024, "03 00 00 00 92 0c 05", [PING]),
    Stream("two", "two frames in one piece", 1024, "03 00 00 00 92 0c 05 02 00 00 00 91 0e", [PING, "91 0e"]),
    Stream("shortest", "the shortest frame", 2, "02 00 00 00 91 0e", ["91 0e"]),
    Stream("longest", "a frame of just frame_bytes_max", 3, "03 00 00 00 92 0c 05", [PING]),
    Stream("prefix-cut", "two bytes of a prefix", 1024, "03 00", [], bytes_waiting=2),
    Stream("prefix-alone", "a prefix and nothing after it", 1024, "00 04 00 00", [], bytes_waiting=4),
    Stream(
        "body-cut",
        "a frame, then one that lacks a byte",
        1024,
        "02 00 00 00 91 0e 03 00 00 00 92 0c",
        ["91 0e"],
        bytes_waiting=6,
    ),
    Stream("length-0", "a frame of nothing", 1024, "00 00 00 00", [], code="BAD_FRAME"),
    Stream("length-1", "no message has one byte", 1024, "01 00 00 00 90", [], code="BAD_FRAME"),
    Stream("length-max-1", "one byte over", 1024, "01 04 00 00", [], code="BAD_FRAME"),
    Stream("length-2-31", "2,147,483,648", 1024, "00 00 00 80", [], code="BAD_FRAME"),
    Stream("length-2-32-1", "4,294,967,295: lengths are unsigned", 1024, "ff ff ff ff", [], code="BAD_FRAME"),
    Stream(
        "big-endian",
        "a prefix of the other byte order: 3 read as 50,331,648",
        1024,
        "00 00 00 03 92 0c 05",
        [],
        code="BAD_FRAME",
    ),
    Stream("text", "a web browser: GET is read as 542,393,671", 1024, "47 45 54 20 2f 20 48 54", [], code="BAD_FRAME"),
    Stream(
        "good-then-bad",
        "frames before the bad length stand",
        1024,
        "03 00 00 00 92 0c 05 00 00 00 00",
        [PING],
        code="BAD_FRAME",
    ),
]
