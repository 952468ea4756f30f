"""The rows of a run in a file, and the gaps of its sender in another: written by the sender and read by its parent,
while it runs, and however it ended."""

import os
import struct
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tickpath.loadtest.run import GAP, INTERRUPTED, LOST, OK, PENDING, ROW, SKIPPED, UNSENT

Rows: TypeAlias = npt.NDArray[np.void]

# One call each, since a field of a numpy row costs more than the system call it stands beside. The order is that of
# ROW; a row that is answered is whole before its code says so.
_SENT: Final = struct.Struct("=qqqii")  # intended, sent, done, code, connection
_DONE: Final = struct.Struct("=qi")
_STAMPS: Final = struct.Struct("=6Q")
_SENT_AT: Final = 0
_DONE_AT: Final = 16
_STAMPS_AT: Final = _SENT_AT + _SENT.size
assert _STAMPS_AT + _STAMPS.size == ROW.itemsize
_GAP: Final = struct.Struct("=qq")

# A megabyte. Whoever is held up more often than that, for 100 µs or more each time, measures nothing.
GAPS_MAX: Final = 1 << 16


def create_rows(path: Path, count: int) -> Rows:
    """Room for `count` requests of which none was meant yet. Raises OSError where there isn't: a file that only finds
    out when it is written to ends its writer with a signal."""
    return _create(path, ROW, count)


def open_rows(path: Path) -> Rows:
    """The rows of another process, to read and to write."""
    return np.memmap(path, ROW, "r+")


def create_gaps(path: Path) -> Rows:
    """Room for gaps, likewise."""
    return _create(path, GAP, GAPS_MAX)


def open_gaps(path: Path) -> Rows:
    """The gaps of another process, to read and to write."""
    return np.memmap(path, GAP, "r+")


def _create(path: Path, kind: np.dtype[np.void], count: int) -> Rows:
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, count * kind.itemsize)
    return np.memmap(path, kind, "r+", shape=(count,))


class RowWriter:
    """Writes what becomes of one request after another."""

    __slots__ = ("_bytes",)

    def __init__(self, rows: Rows) -> None:
        self._bytes = rows.view(np.uint8).data

    def sent(self, index: int, intended_ns: int, sent_ns: int, connection: int) -> None:
        _SENT.pack_into(self._bytes, index * ROW.itemsize, intended_ns, sent_ns, 0, PENDING, connection)

    def skipped(self, index: int, intended_ns: int, connection: int) -> None:
        _SENT.pack_into(self._bytes, index * ROW.itemsize, intended_ns, 0, 0, SKIPPED, connection)

    def done(self, index: int, done_ns: int, code: int, stamps: Sequence[int]) -> None:
        start = index * ROW.itemsize
        if stamps:
            _STAMPS.pack_into(self._bytes, start + _STAMPS_AT, *stamps)
        _DONE.pack_into(self._bytes, start + _DONE_AT, done_ns, code)

    def lost(self, index: int) -> None:
        _DONE.pack_into(self._bytes, index * ROW.itemsize + _DONE_AT, 0, LOST)


class GapWriter:
    """Writes one gap after another; what doesn't fit any more makes the last one longer."""

    __slots__ = ("_bytes", "_count", "_count_max")

    def __init__(self, gaps: Rows) -> None:
        self._bytes = gaps.view(np.uint8).data
        self._count = 0
        self._count_max = len(gaps)

    def add(self, start_ns: int, end_ns: int) -> None:
        if self._count == self._count_max:
            self._count -= 1
            start_ns, _ = _GAP.unpack_from(self._bytes, self._count * GAP.itemsize)
        _GAP.pack_into(self._bytes, self._count * GAP.itemsize, start_ns, end_ns)
        self._count += 1


def reached(rows: Rows) -> int:
    """How many rows the sender has come to; they are the first ones."""
    return bisect_left(range(len(rows)), True, key=lambda index: _untouched(rows, index))


def collect(rows: Rows, warmup: int, keep_unsent: bool, interrupted: bool = False) -> Rows:
    """A copy of the rows that count. Those the sender never came to are UNSENT, or left out; those in flight are
    INTERRUPTED where the run was, else PENDING. One that its writer was killed over is left out: it says nothing."""
    end = reached(rows)
    kept = np.array(rows[warmup : len(rows) if keep_unsent else max(end, warmup)])
    kept["code"][max(end - warmup, 0) :] = UNSENT
    if interrupted:
        kept["code"][kept["code"] == PENDING] = INTERRUPTED
    torn = (kept["code"] >= OK) & (kept["done_ns"] == 0)
    return kept[~torn] if torn.any() else kept


def collect_gaps(gaps: Rows, start_ns: int, end_ns: int) -> Rows:
    """A copy of those that reach into the measured span."""
    return np.array(gaps[(gaps["end_ns"] > start_ns) & (gaps["start_ns"] < end_ns)])


def _untouched(rows: Rows, index: int) -> bool:
    return bool(rows["sent_ns"][index] == 0 and rows["code"][index] == OK)
