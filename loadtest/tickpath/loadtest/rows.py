"""The rows of a run in a file, written by the sender and read by its parent: while it runs, and however it ended."""

import struct
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tickpath.loadtest.run import LOST, OK, PENDING, ROW, SKIPPED, UNSENT

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


def create_rows(path: Path, count: int) -> Rows:
    """Room for `count` requests of which none was meant yet. Memory is taken as rows are written."""
    return np.memmap(path, ROW, "w+", shape=(count,))


def open_rows(path: Path) -> Rows:
    """The rows of another process, to read and to write."""
    return np.memmap(path, ROW, "r+")


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


def reached(rows: Rows) -> int:
    """How many rows the sender has come to; they are the first ones."""
    return bisect_left(range(len(rows)), True, key=lambda index: _untouched(rows, index))


def collect(rows: Rows, warmup: int, keep_unsent: bool) -> Rows:
    """A copy of the rows that count. Those the sender never came to are UNSENT, or left out."""
    end = reached(rows)
    kept = np.array(rows[warmup : len(rows) if keep_unsent else max(end, warmup)])
    kept["code"][max(end - warmup, 0) :] = UNSENT
    return kept


def _untouched(rows: Rows, index: int) -> bool:
    return bool(rows["sent_ns"][index] == 0 and rows["code"][index] == OK)
