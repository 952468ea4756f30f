"""The memory by which entries get from the core to the recorder. One writer (the core's loop thread), one reader (the
recorder); nothing here locks or waits, since the core must never wait for a disk.

    head     bytes ever put; then 1 once nothing more will be put: written by the core
    taken    bytes ever taken; then what became of entries, each a u64 that only counts up: written by the recorder
    ring     the entries (see entries.py), one behind the other. One that does not end before the ring does goes on at
             its start, so that whatever is as large as the ring has room in an empty one

An entry is written first, then `head` rises past it: whatever dies in between, what lies before `head` is whole. What
has no room is dropped and counted. Right where stores become visible in the order they were made, as on x86-64.
"""

import enum
import mmap
import os
import struct
from typing import Final

from tickpath.recorder.entries import HEADER, HEADER_BYTES, REST_BYTES, Kind, padded

# Each side writes to pages of its own. 64 KiB: a multiple of every page size in use.
TAKEN_OFFSET: Final = 65536
RING_OFFSET: Final = 2 * 65536
_LENGTH: Final = struct.Struct("<I")
_pack: Final = HEADER.pack_into


class ReaderCell(enum.IntEnum):
    """What the recorder says, from TAKEN_OFFSET on."""

    TAKEN = 0
    WRITTEN = 1  # entries that are in a file
    LOST = 2  # entries that were taken from the core and never got into one


class RingWriter:
    """The core's side. `fd` is what the recorder inherits; `ring_bytes` is a multiple of 8."""

    def __init__(self, ring_bytes: int) -> None:
        self.fd = os.memfd_create("tickpath-recording")
        os.ftruncate(self.fd, RING_OFFSET + ring_bytes)
        # All of it is there from the start: a page that is first touched on a request's way costs it a microsecond.
        self._memory = mmap.mmap(self.fd, RING_OFFSET + ring_bytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        view = memoryview(self._memory)
        self._head_cell = view[:16].cast("Q")
        self._cells = view[TAKEN_OFFSET : TAKEN_OFFSET + 8 * len(ReaderCell)].cast("Q")
        self._ring = view[RING_OFFSET:]
        self._size = ring_bytes
        self._head = 0
        self._taken = 0  # when it was last looked at: the cell's cache line belongs to the reader
        self.sequence = 0
        """What there was to say, dropped or not."""
        self.dropped = 0

    def put(self, kind: Kind, session: int, at_ns: int, body: bytes | memoryview) -> bool:
        """Whether there was room; what is dropped is counted."""
        self.sequence += 1
        body_bytes = len(body)
        length = REST_BYTES + body_bytes
        needed = padded(length)
        head, size = self._head, self._size
        end = head + needed
        if end - self._taken > size:
            self._taken = self._cells[0]
            if end - self._taken > size:
                self.dropped += 1
                return False
        at = head % size
        if at + needed <= size:
            _pack(self._ring, at, length, 0, self.sequence, at_ns, session, kind)
            at += HEADER_BYTES
            self._ring[at : at + body_bytes] = body
        else:
            self._put_around(at, HEADER.pack(length, 0, self.sequence, at_ns, session, kind))
            self._put_around((at + HEADER_BYTES) % size, body)
        self._head = self._head_cell[0] = end
        return True

    def _put_around(self, at: int, part: bytes | memoryview) -> None:
        """Write from `at` on, and from the ring's start where it ends."""
        before = min(len(part), self._size - at)
        self._ring[at : at + before] = part[:before]
        self._ring[: len(part) - before] = part[before:]

    def end(self) -> None:
        """Nothing more will be put: the recorder writes what there is, and ends."""
        self._head_cell[1] = 1

    def written(self) -> int:
        """Entries that the recorder has put into files."""
        return self._cells[ReaderCell.WRITTEN]

    def lost(self) -> int:
        """Entries that it took and could not write."""
        return self._cells[ReaderCell.LOST]

    def close(self) -> None:
        for view in (self._head_cell, self._cells, self._ring):
            view.release()
        self._memory.close()
        os.close(self.fd)


class RingReader:
    """The recorder's side, on the descriptor it inherited. A reader that was killed is followed by one that goes on
    where it had said it was."""

    def __init__(self, fd: int) -> None:
        total = os.fstat(fd).st_size
        self._memory = mmap.mmap(fd, total, prot=mmap.PROT_READ)
        # mmap's offsets count in pages, and 64 KiB is a multiple of them.
        self._page = mmap.mmap(fd, RING_OFFSET - TAKEN_OFFSET, offset=TAKEN_OFFSET)
        view = memoryview(self._memory)
        self._head_cell = view[:16].cast("Q")
        self._ring = view[RING_OFFSET:]
        self._size = total - RING_OFFSET
        self._cells = memoryview(self._page)[: 8 * len(ReaderCell)].cast("Q")

    def peek(self, bytes_max: int) -> tuple[bytearray, int]:
        """A copy of the next whole entries, at least one where there is one, of about `bytes_max` bytes; and what
        `done` is told once they are dealt with."""
        head, taken = self._head_cell[0], self._cells[ReaderCell.TAKEN]
        if taken == head:
            return bytearray(), taken
        end = taken
        while end < head and end - taken < bytes_max:
            (length,) = _LENGTH.unpack_from(self._ring, end % self._size)
            end += padded(length)
        at = taken % self._size
        found = bytearray(self._ring[at : at + end - taken])
        found += self._ring[: end - taken - len(found)]
        return found, end

    @property
    def ended(self) -> bool:
        """Whether nothing more will be put."""
        return self._head_cell[1] != 0

    def done(self, taken: int, written: int = 0, lost: int = 0) -> None:
        """What was peeked at is dealt with: so many entries are in a file, so many are not."""
        self._cells[ReaderCell.WRITTEN] += written
        self._cells[ReaderCell.LOST] += lost
        self._cells[ReaderCell.TAKEN] = taken
