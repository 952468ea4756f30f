"""What the observer has counted, in memory that outlives it: the next observer goes on where a killed one stopped, and
no histogram ever goes down.

The core makes the memory and passes it on; only the observer of the moment writes it, and nobody but observers reads
it. It holds everything twice. A batch of records goes into the copy that does not count, then one word makes that the
one that does: an observer may be killed between any two instructions, and what it leaves is the state before the batch
or after it. How far the records were taken is part of that state, so none is counted twice, and none is left out but
those that the core has overwritten meanwhile, which count as lost.

    header     magic, layout, which copy counts
    counters   words that belong to no record, each written by itself
    two copies of State
"""

import mmap
import os
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from tickpath.observe.histograms import BUCKET_BOUNDS_NS, Counts, Ints
from tickpath.observe.records import VERSIONS_MAX

MAGIC: Final = 0x7469636B74616C79
LAYOUT_VERSION: Final = 1
BUCKETS: Final = len(BUCKET_BOUNDS_NS) + 1
EXEMPLAR_DTYPE: Final = np.dtype([("id", "<u8"), ("session", "<u8"), ("value_ns", "<i8"), ("at_ns", "<i8")])
"""A request that fell into a bucket: its number, its session's, how long it took, and when (Unix time); at_ns 0: none
has."""

Exemplars = npt.NDArray[np.void]

# A page: the word that decides which copy counts shares its cache line with nothing else that is written.
_HEADER_BYTES: Final = 4096


class Word(IntEnum):
    """The header, and the counters behind it; each an i64."""

    MAGIC = 0
    LAYOUT = 1
    ACTIVE = 8
    VOLUNTARY_SWITCHES = 16
    PREEMPTED = 17
    OTHERS_PREEMPTED = 18
    STOLEN_NS = 19
    TRACES_EXPORTED = 20
    TRACES_DROPPED = 21


class State:
    """One copy: `taken`, how many records were taken from the ring or given up; `lost`, how many of them no histogram
    has; `buckets`, (VERSIONS_MAX, spans, BUCKETS) counts, not cumulative; `sums_ns`, (VERSIONS_MAX, spans);
    `exemplars`, (VERSIONS_MAX, BUCKETS) of EXEMPLAR_DTYPE, of whole requests."""

    def __init__(self, memory: mmap.mmap, offset: int, spans: int) -> None:
        self._ends = np.frombuffer(memory, np.int64, 2, offset)
        offset += self._ends.nbytes
        size = VERSIONS_MAX * spans * BUCKETS
        self.buckets: Counts = np.frombuffer(memory, np.int64, size, offset).reshape(VERSIONS_MAX, spans, BUCKETS)
        offset += self.buckets.nbytes
        self.sums_ns: Ints = np.frombuffer(memory, np.int64, VERSIONS_MAX * spans, offset).reshape(VERSIONS_MAX, spans)
        offset += self.sums_ns.nbytes
        size = VERSIONS_MAX * BUCKETS
        self.exemplars: Exemplars = np.frombuffer(memory, EXEMPLAR_DTYPE, size, offset).reshape(VERSIONS_MAX, BUCKETS)

    @staticmethod
    def size_bytes(spans: int) -> int:
        return 16 + VERSIONS_MAX * (8 * spans * (BUCKETS + 1) + EXEMPLAR_DTYPE.itemsize * BUCKETS)

    @property
    def taken(self) -> int:
        return int(self._ends[0])

    @property
    def lost(self) -> int:
        return int(self._ends[1])

    def ends(self, taken: int, lost: int) -> None:
        self._ends[:] = taken, lost

    def copy(self, other: "State", places: Ints) -> None:
        """Become as another was, which differs at these places."""
        self._ends[:] = other._ends
        self.buckets[places] = other.buckets[places]
        self.sums_ns[places] = other.sums_ns[places]
        self.exemplars[places] = other.exemplars[places]

    def adds_up(self, places: int) -> bool:
        """Whether every record that was taken is in a histogram of each span, or lost."""
        buckets = self.buckets[:places]
        return bool((buckets.sum(axis=(0, 2)) + self.lost == self.taken).all() and (buckets >= 0).all())


class KeptTally:
    """The memory behind a descriptor, which the caller keeps. `spans`: how many are timed of a request; `places`: how
    many versions there are or have been; `written`: how many records the core has written. One thread.

    What is there and does not fit, or does not add up, is not gone on from; `problem` then says what.
    """

    def __init__(self, fd: int, spans: int, places: int, written: int) -> None:
        size = _HEADER_BYTES + 2 * State.size_bytes(spans)
        was = os.fstat(fd).st_size
        if was != size:
            os.ftruncate(fd, size)
        memory = mmap.mmap(fd, size)
        self.counters: Ints = np.frombuffer(memory, np.int64, _HEADER_BYTES // 8)
        """By `Word`."""
        self._states = tuple(
            State(memory, _HEADER_BYTES + index * State.size_bytes(spans), spans) for index in range(2)
        )
        self.problem = self._problem(places, written) if was in (0, size) else f"{size} bytes expected, {was} came"
        if self.problem:
            os.ftruncate(fd, 0)  # the mapping sees zeros when it has its size again
            os.ftruncate(fd, size)
        self.counters[Word.LAYOUT] = LAYOUT_VERSION
        self.counters[Word.MAGIC] = MAGIC
        # Where the copies may differ: anywhere now, and later where the last batch was.
        self._differ: Ints = np.arange(places)

    @property
    def state(self) -> State:
        """What counts. It is not written any more."""
        return self._states[int(self.counters[Word.ACTIVE])]

    @property
    def _other(self) -> State:
        return self._states[1 - int(self.counters[Word.ACTIVE])]

    def next(self) -> State:
        """A copy of what counts, to add a batch to; `commit` makes it count."""
        self._other.copy(self.state, self._differ)
        return self._other

    def commit(self, places: Ints) -> None:
        """What `next` gave counts from now on. `places`: where it was changed."""
        self._differ = places
        self.counters[Word.ACTIVE] = 1 - self.counters[Word.ACTIVE]

    def _problem(self, places: int, written: int) -> str:
        magic, layout, active = (int(self.counters[word]) for word in (Word.MAGIC, Word.LAYOUT, Word.ACTIVE))
        if magic == 0:  # nobody has used it yet
            return ""
        if (magic, layout) != (MAGIC, LAYOUT_VERSION):
            return f"layout {LAYOUT_VERSION} expected, {layout} came"
        if active not in (0, 1) or not self.state.adds_up(places) or self.state.taken > written:
            return "its counts don't add up to the records that were taken"
        return ""
