"""The core's account of itself, in memory it shares with the observer.

One writer (the core's loop thread), one reader at a time (the observer). Nothing here locks: the core must never wait
for who watches it.

    header   magic, layout version, generation of the description, its length
    describe JSON of CoreDescription; written at load, then `generation` rises
    totals   u64 cells, exact for ever: GLOBAL_CELLS, then VERSION_CELLS for each of VERSIONS_MAX places
    head     how many records were ever written
    ring     RING_RECORDS records; record i lies at i % RING_RECORDS
    events   EVENTS events, as the ring: what held the core up beside requests; their own head lies behind `head`

A record is written first, then `head` rises past it. The reader takes `head`, copies, takes `head` again: what the
writer may have overtaken meanwhile counts as lost. Totals do not depend on records, so a slow or dead reader loses
detail and never a count. How far the reader has come it keeps itself (kept.py): it can write nothing here.
"""

import enum
import mmap
import os
import struct
from typing import Final, Literal, NamedTuple

import msgspec

from tickpath.wire import Code, Flag

MAGIC: Final = 0x7469636B70617468
LAYOUT_VERSION: Final = 10

# Versions that one core can load in its life, since each keeps its place: 64 models, each reloaded every half an hour
# of a trading day. 368 bytes each.
VERSIONS_MAX: Final = 1024
# 12 buckets: the powers of two up to 2048.
BUCKETS_MAX: Final = 12
# 8192 records hold 100 ms at 80,000 requests a second, five of the observer's reading intervals; 1 MiB.
RING_RECORDS: Final = 8192
# A loop that is late ten times a second, which it may be for days, still shows the last hundred seconds. 32 KiB.
EVENTS: Final = 1024
# 512 bytes for each version.
DESCRIPTION_BYTES_MAX: Final = 512 * 1024

OK: Final = 0
"""The code under which an answered request is counted; the others are those of `tickpath.wire.Code`."""
CODE_COUNT: Final = 1 + max(Code)
FLAG_COUNT: Final = len(Flag)


class State(enum.IntEnum):
    """Where the core is in its life."""

    STARTING = 0
    READY = 1
    DRAINING = 2


class GlobalCell(enum.IntEnum):
    """Cells that belong to no model."""

    STATE = 0
    SESSIONS = enum.auto()
    SESSIONS_OPENED = enum.auto()
    SESSIONS_REFUSED = enum.auto()
    SLOW_READERS_DROPPED = enum.auto()
    PROTOCOL_ERRORS = enum.auto()
    HEARTBEAT_NS = enum.auto()  # the core's monotonic clock when its loop last came round; 0: not serving yet
    LOOP_LAG_NS = enum.auto()  # the most that a heartbeat was late in the last one to two minutes
    GC_PAUSE_NS = enum.auto()  # spent in the garbage collector since the core was ready
    GC_PAUSES = enum.auto()
    LOADS_FAILED = enum.auto()  # changes that were asked for and not made, since a model was refused
    QUIET = enum.auto()  # 1 while nothing may be loaded or unloaded
    FEEDS = enum.auto()  # open now
    FEED_GAPS = enum.auto()  # ticks that were not taken since another, or a state, was missing
    FEEDS_EXPIRED = enum.auto()  # feeds forgotten since nobody sent a tick
    HANDSHAKES_FAILED = enum.auto()  # connections to the TLS port that never became sessions
    REFUSED_STRANGERS = enum.auto()  # sessions refused since the client did not show who it is
    REFUSED_SESSIONS = enum.auto()  # and since it has as many as it may
    REFUSED_RIGHTS = enum.auto()  # requests for what the client may not ask
    REFUSED_RATE = enum.auto()  # and over its rate
    REFUSED_IN_FLIGHT = enum.auto()  # and over what it may have in flight
    RECORDED = enum.auto()  # entries of the recording that are in a file
    RECORD_DROPPED = enum.auto()  # entries that are in none, since there was no room
    CODES = enum.auto()  # CODE_COUNT cells: requests refused before a model was found, by code


class VersionCell(enum.IntEnum):
    """Cells of one version, from its base."""

    IN_FLIGHT = 0
    QUEUE_DEPTH = 1
    PADDED_ROWS = 2
    LATE_AT_ADMISSION = 3  # budgets that could not be kept from the start
    LATE_IN_QUEUE = 4  # budgets that were over, or as good as over, before the model ran
    LATE_ANSWERS = 5  # budgets that were over when the answer had left
    RELOADS = 6  # times that this version was made live, the first time aside
    RELOAD_GAP_NS = 7  # the most that the loop was away while this version was loaded and made live
    SHADOW_COMPARED = 8  # the cells of a shadow are written by its own thread
    SHADOW_DIFFERED = 9
    SHADOW_DROPPED = 10
    WARM_UP = 11  # ticks that were taken and answered NOT_READY, since their feed's window was not full
    FLAGS = 12  # FLAG_COUNT cells: requests by what was seen of them, one for each bit of `Flag`
    CODES = 12 + FLAG_COUNT  # CODE_COUNT cells: requests by how they ended
    REPLAYS = 12 + FLAG_COUNT + CODE_COUNT  # BUCKETS_MAX cells: replays by bucket


def flag_cell(flag: Flag) -> int:
    """The cell that counts what this flag tells of."""
    return VersionCell.FLAGS + flag.bit_length() - 1


GLOBAL_CELLS: Final = GlobalCell.CODES + CODE_COUNT
VERSION_CELLS: Final = VersionCell.REPLAYS + BUCKETS_MAX

RECORD_FIELDS: Final = (
    "id",
    "version",
    "bucket",
    "rows",
    "first_byte_ns",
    "received_ns",
    "started_ns",
    "filled_ns",
    "computed_ns",
    "read_ns",
    "sent_ns",
    "event_time_ns",
    "session",
    "queued",
)
"""An answered request, each field a u64: its version's place, the bucket's size, stamps of the monotonic clock, its
session's number (from 1, in the order in which they came), and how many requests of its version had not begun when it
came (inline: none ever waits)."""


class EventKind(enum.IntEnum):
    """What may hold a request up. The core writes the first ones itself; the others the observer sees from outside,
    each as what there was of it between two looks."""

    GC = 1
    """The garbage collector ran on the loop's thread. Amount: objects it freed."""
    LOOP_LAG = 2
    """The loop came round late, from when it was due. Amount: by how many ns."""
    RELOAD = 3
    """A version was loaded and made what it was to be, from its files being read on. Amount: the place of the version
    that its model then had live; VERSIONS_MAX: none."""
    LOAD_FAILED = 4
    """As RELOAD, but it was refused."""
    LOOP_PREEMPTED = 16
    """The loop's thread was pushed off its CPU. Amount: times."""
    OTHERS_PREEMPTED = 17
    """Other threads of the core were. Amount: times."""
    RUN_QUEUE = 18
    """The loop's thread could have run, and waited for a CPU. Amount: ns."""
    MINOR_FAULTS = 19
    """The core touched pages that were not mapped yet. Amount: pages."""
    MAJOR_FAULTS = 20
    """The core touched pages that had to be read from a disk. Amount: pages."""
    THROTTLED = 21
    """The core's control group had used its CPU quota up. Amount: ns, of all its CPUs together."""
    STOLEN = 22
    """The hypervisor gave the CPU of the loop's thread to somebody else. Amount: ns, in steps of 10 ms."""


class Event(NamedTuple):
    """Something that happened between two moments of the monotonic clock; `amount` as its kind says."""

    kind: EventKind
    start_ns: int
    end_ns: int
    amount: int


# Plain ints: an enum member costs a lookup each time, and these are added once a request.
_ANSWERED: Final = int(VersionCell.CODES) + OK
_REPLAYS: Final = int(VersionCell.REPLAYS)
_PADDED_ROWS: Final = int(VersionCell.PADDED_ROWS)

HEADER: Final = struct.Struct("<QQQQ")
_RECORD: Final = struct.Struct(f"<{len(RECORD_FIELDS)}Q")
_pack_record: Final = _RECORD.pack_into
RECORD_BYTES: Final = _RECORD.size
EVENT: Final = struct.Struct("<4Q")
"""An event as it lies in the ring: the fields of `Event`."""

DESCRIPTION_OFFSET: Final = 4096
TOTALS_OFFSET: Final = DESCRIPTION_OFFSET + DESCRIPTION_BYTES_MAX
HEAD_OFFSET: Final = TOTALS_OFFSET + 8 * (GLOBAL_CELLS + VERSIONS_MAX * VERSION_CELLS)
EVENT_HEAD_OFFSET: Final = HEAD_OFFSET + 8
RING_OFFSET: Final = (EVENT_HEAD_OFFSET // 4096 + 1) * 4096
EVENTS_OFFSET: Final = RING_OFFSET + RING_RECORDS * RECORD_BYTES
SHARED_BYTES: Final = EVENTS_OFFSET + EVENTS * EVENT.size


class VersionDescription(msgspec.Struct, frozen=True):
    """What the observer may print of a version: label values come from here and from nowhere else. `eager_buckets`:
    those that run without a graph, since none could be captured."""

    name: str
    version: str
    engine: str
    precision: str
    sha256: str
    executor: str
    buckets: tuple[int, ...]
    role: Literal["live", "loaded", "retired"] = "live"
    eager_buckets: tuple[int, ...] = ()


class CoreDescription(msgspec.Struct, frozen=True):
    """The core as it is now. A version's place in `versions` is its index in totals and records; since totals only
    count up, no place is ever given to another version. What is retired stays, so that its totals do."""

    pid: int
    versions: tuple[VersionDescription, ...]


def version_base(place: int) -> int:
    """Index of a version's first cell among the totals."""
    return GLOBAL_CELLS + place * VERSION_CELLS


class RecordWriter:
    """The core's side, described from the start as a core that serves nothing. `fd` is what the observer inherits; the
    memory goes when both have closed it."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("tickpath-records")
        os.ftruncate(self.fd, SHARED_BYTES)
        self._memory = mmap.mmap(self.fd, SHARED_BYTES)
        view = memoryview(self._memory)
        self._totals = view[TOTALS_OFFSET:HEAD_OFFSET].cast("Q")
        self._head = view[HEAD_OFFSET : HEAD_OFFSET + 8].cast("Q")
        self._event_head = view[EVENT_HEAD_OFFSET : EVENT_HEAD_OFFSET + 8].cast("Q")
        self._written = 0
        self._generation = 0
        self.describe(CoreDescription(os.getpid(), ()))

    def describe(self, description: CoreDescription) -> None:
        """Publish what versions there are. Called when one is loaded, never on the way of a request."""
        text = msgspec.json.encode(description)
        if len(description.versions) > VERSIONS_MAX or len(text) > DESCRIPTION_BYTES_MAX:
            raise ValueError(f"{len(description.versions)} versions; one core loads at most {VERSIONS_MAX} in its life")
        # An odd generation says: being written. The reader takes the text only between two equal even ones.
        self._generation += 2
        HEADER.pack_into(self._memory, 0, MAGIC, LAYOUT_VERSION, self._generation - 1, 0)
        self._memory[DESCRIPTION_OFFSET : DESCRIPTION_OFFSET + len(text)] = text
        HEADER.pack_into(self._memory, 0, MAGIC, LAYOUT_VERSION, self._generation, len(text))

    def set_cell(self, cell: GlobalCell, value: int) -> None:
        self._totals[cell] = value

    def add(self, cell: GlobalCell, amount: int = 1) -> None:
        self._totals[cell] += amount

    def set_version(self, place: int, cell: VersionCell, value: int) -> None:
        self._totals[version_base(place) + cell] = value

    def add_version(self, place: int, cell: VersionCell, amount: int = 1) -> None:
        self._totals[version_base(place) + cell] += amount

    def refused(self, place: int | None, code: Code) -> None:
        """Count a request that has no answer."""
        base = GlobalCell.CODES if place is None else version_base(place) + VersionCell.CODES
        self._totals[base + code] += 1

    def flagged(self, place: int, flags: int) -> None:
        """Count what was seen of a request, bits of `Flag`."""
        base = version_base(place) + VersionCell.FLAGS
        for bit in range(FLAG_COUNT):
            if flags >> bit & 1:
                self._totals[base + bit] += 1

    def answered(
        self,
        place: int,
        bucket_index: int,
        bucket: int,
        rows: int,
        request_id: int,
        stamps: tuple[int, int, int, int, int, int],
        sent_ns: int,
        event_time_ns: int,
        replays: int = 1,
        session: int = 0,
        queued: int = 0,
    ) -> None:
        """Count an answered request and record its way. `replays`: 0 where it shared the run of another."""
        totals = self._totals
        base = GLOBAL_CELLS + place * VERSION_CELLS
        totals[base + _ANSWERED] += 1
        totals[base + _REPLAYS + bucket_index] += replays
        if rows != bucket:
            totals[base + _PADDED_ROWS] += bucket - rows
        written = self._written
        offset = RING_OFFSET + written % RING_RECORDS * RECORD_BYTES
        # Named one by one: `*stamps` among the arguments costs 150 ns.
        first_byte, received, started, filled, computed, read = stamps
        _pack_record(
            self._memory,
            offset,
            request_id,
            place,
            bucket,
            rows,
            first_byte,
            received,
            started,
            filled,
            computed,
            read,
            sent_ns,
            event_time_ns,
            session,
            queued,
        )
        self._written = self._head[0] = written + 1

    def event(self, kind: EventKind, start_ns: int, end_ns: int, amount: int = 0) -> None:
        """Note what held the core up, or may have. On the loop's thread, and never on the way of a request."""
        written = self._event_head[0]
        EVENT.pack_into(self._memory, EVENTS_OFFSET + written % EVENTS * EVENT.size, kind, start_ns, end_ns, amount)
        self._event_head[0] = written + 1

    def close(self) -> None:
        self._totals.release()
        self._head.release()
        self._event_head.release()
        self._memory.close()
        os.close(self.fd)
