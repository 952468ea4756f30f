"""The observer's side of the shared memory: takes what the core has written since, and never makes the core wait.

Everything is mapped to read alone.
"""

import mmap
import os
import time
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from tickpath.observe import records as layout
from tickpath.observe.records import CoreDescription, Event, EventKind

RECORD_DTYPE: Final = np.dtype([(name, "<u8") for name in layout.RECORD_FIELDS])
"""One record: layout.RECORD_FIELDS, each a u64."""

Records = npt.NDArray[np.void]
Totals = npt.NDArray[np.uint64]

# A description is written in microseconds; one unfinished after 10 ms belongs to a core that died or is stopped.
_DESCRIPTION_TRIES: Final = 10


class LayoutError(Exception):
    """What came is not the memory this reader knows. The text says what was expected, what came and what to do."""


class RecordReader:
    """Reads a core's shared memory from its inherited descriptor, which the caller keeps and may close. One thread.

    `taken`: how many records were taken or given up, by this reader and those before it whose place it is given.
    `lost`: records this reader could not give, because the core was a whole ring ahead.
    """

    def __init__(self, fd: int) -> None:
        """Raises LayoutError where `fd` is not open, or holds something else or another version's layout."""
        self._memory = _map(fd)
        _check_header(self._memory)
        self._head = memoryview(self._memory)[layout.HEAD_OFFSET : layout.HEAD_OFFSET + 8].cast("Q")
        self._event_head = memoryview(self._memory)[layout.EVENT_HEAD_OFFSET : layout.EVENT_HEAD_OFFSET + 8].cast("Q")
        totals_count = (layout.HEAD_OFFSET - layout.TOTALS_OFFSET) // 8
        self._totals: Totals = np.frombuffer(self._memory, np.uint64, totals_count, layout.TOTALS_OFFSET)
        self._ring: Records = np.frombuffer(self._memory, RECORD_DTYPE, layout.RING_RECORDS, layout.RING_OFFSET)
        self._generation = 0
        self._description = CoreDescription(0, ())
        self.taken = 0
        self.lost = 0
        if not self.description().pid:
            raise LayoutError("records: the core never finished describing itself; start it again")

    @property
    def written(self) -> int:
        """How many records the core has ever written."""
        return int(self._head[0])

    def take(self) -> Records:
        """Records written since the last call, in order, as a copy of dtype RECORD_DTYPE. What the core may have been
        writing over while it was copied is left out and counted as lost.

        Right where stores become visible in the order they were made, as on x86-64.
        """
        head = self._head[0]
        taken = self.taken
        if head == taken:
            return self._ring[:0]
        start = max(taken, head - layout.RING_RECORDS)
        records = self._copy(start, head)
        # While the core writes record `head`, the one a ring before it is half gone.
        intact = min(max(start, self._head[0] - layout.RING_RECORDS + 1), head)
        self.lost += intact - taken
        self.taken = head
        return records[intact - start :]

    def events(self, newest: int = layout.EVENTS - 1) -> list[Event]:
        """The newest events of the core, oldest first, as many as there are up to `newest`. One that the core writes
        over meanwhile is left out: it is a whole ring older than the newest. Takes nothing away: whoever asks gets
        them."""
        head = self._event_head[0]
        start = max(0, head - min(newest, layout.EVENTS - 1))
        copied = [self._event(index) for index in range(start, head)]
        intact = max(start, self._event_head[0] - layout.EVENTS + 1)
        return [Event(EventKind(kind), *rest) for kind, *rest in copied[intact - start :]]

    def _event(self, index: int) -> tuple[int, ...]:
        return layout.EVENT.unpack_from(self._memory, layout.EVENTS_OFFSET + index % layout.EVENTS * layout.EVENT.size)

    def totals(self) -> Totals:
        """A copy of every total: GLOBAL_CELLS, then VERSION_CELLS for each place (see `layout.version_base`). Each is
        exact; two may be a request apart."""
        return self._totals.copy()

    def description(self) -> CoreDescription:
        """The core as it describes itself now. Call it after `take`: it is no older than the records taken before."""
        for _ in range(_DESCRIPTION_TRIES):
            header = layout.HEADER.unpack_from(self._memory)
            _, _, generation, length = header
            if generation == self._generation:
                break
            text = self._memory[layout.DESCRIPTION_OFFSET : layout.DESCRIPTION_OFFSET + length]
            unfinished = generation % 2 or not length
            if not unfinished and header == layout.HEADER.unpack_from(self._memory):
                self._description = msgspec.json.decode(text, type=CoreDescription)
                self._generation = generation
                break
            time.sleep(0.001)
        return self._description

    def _copy(self, start: int, stop: int) -> Records:
        return self._ring.take(np.arange(start, stop), mode="wrap")


def _map(fd: int) -> mmap.mmap:
    try:
        size = os.fstat(fd).st_size
        if size == layout.SHARED_BYTES:
            return mmap.mmap(fd, size, prot=mmap.PROT_READ)
    except OSError as error:
        raise LayoutError(
            f"records: descriptor {fd}: {error.strerror}; the core passes it to the observer it starts"
        ) from None
    raise LayoutError(
        f"records: {layout.SHARED_BYTES} bytes expected, descriptor {fd} has {size}; "
        "run core and observer from one release"
    )


def _check_header(memory: mmap.mmap) -> None:
    magic, version, _, _ = layout.HEADER.unpack_from(memory)
    if magic != layout.MAGIC:
        raise LayoutError(
            f"records: the magic number {layout.MAGIC:#x} expected, {magic:#x} came; this is no core's memory"
        )
    if version != layout.LAYOUT_VERSION:
        raise LayoutError(
            f"records: layout {layout.LAYOUT_VERSION} expected, {version} came; run core and observer from one release"
        )
