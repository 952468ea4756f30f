"""Writes segments: entries go to the end of one that is open, which is closed when it is long or old.

Rules
- What `append` has taken without an error is in a file, whole, and stays so if this process dies: the system has it. A
  machine that dies loses at most what came since the last `sync`.
- What can't be written is taken back out of the file (a full disk leaves half an entry behind), and may be tried again.
- All segments together stay within `bytes_max`: the oldest goes, or nothing more is written.
- Names sort in the order in which segments were written, also where the clock was set back meanwhile.
- A folder belongs to one recorder, by a lock, which is looked at before each segment. What an earlier one left open is
  closed at its last whole entry.
"""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import msgspec

from tickpath.recorder.entries import DamagedError, End, Kind, make_entry, read_entries
from tickpath.recorder.folder_lock import FolderLock
from tickpath.recorder.segments import (
    CLOSED,
    OPEN,
    RecordingError,
    SegmentHeader,
    decode_header,
    encode_header,
    find_segments,
    mapped,
    named_us,
    segment_name,
)

log = logging.getLogger(__name__)

FILE_MODE: Final = 0o600
# Room for a segment's last entry, which says how many there were.
END_BYTES: Final = 128
# A clock is set back by hours, or by days after a failed battery; a name further ahead was never this machine's time.
AHEAD_US_MAX: Final = 366 * 24 * 3600 * 1_000_000


class FullError(Exception):
    """The segments hold as much as they may, and the oldest is to stay."""


class Limits(msgspec.Struct, frozen=True):
    """How long a segment may be and how old its first entry, and what all of them may hold."""

    segment_bytes: int
    segment_s: float
    bytes_max: int
    when_full: Literal["drop_oldest", "stop"]


class SegmentWriter:
    """Of one core's life. `description` is repeated at the start of each segment, so that each can be read alone."""

    def __init__(
        self,
        folder: Path,
        server: str,
        run: str,
        limits: Limits,
        lock: FolderLock,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._folder = folder
        self._lock = lock
        self._server = server
        self._run = run
        self._limits = limits
        self._clock_ns = monotonic_ns
        self._pid = os.getpid()
        self._number = 0
        self._named_us = 0  # the time in the last name
        self._file = -1
        self._path = folder
        self._size = 0
        self._start_bytes = 0  # of what each segment begins with
        self._entries = 0
        self._begun_ns = 0
        self._unsynced = False
        self._closed: dict[Path, int] = {}  # the bytes of those that are closed, the oldest first
        self.description = b""

    def append(self, entries: bytearray, count: int) -> None:
        """Put whole entries at the end. Raises OSError, FullError; then none of them is in a file."""
        if self._file >= 0 and self._is_over(len(entries)):
            self.close()
        if self._file < 0:
            self._open(len(entries))
        else:
            self._make_room(len(entries))
        self._write(entries)
        self._entries += count

    def sync(self) -> None:
        """Have the disk hold what was written, and close a segment that is old, or that somebody has removed. Raises
        OSError."""
        if self._unsynced:
            os.fdatasync(self._file)
            self._unsynced = False
        if self._file >= 0 and (self._is_over(0) or not self._is_in_place()):
            self.close()

    def close(self) -> None:
        """Close the segment, if one is open. Raises OSError where not all of that could be done; it is closed all the
        same."""
        if self._file < 0:
            return
        if not self._is_in_place():
            log.warning("%s was removed, or replaced, while it was written", self._path)
            os.close(self._file)
            self._file, self._unsynced = -1, False
            return
        try:
            self._write(make_entry(Kind.END, msgspec.json.encode(End(self._entries)), self._clock_ns()))
            os.fdatasync(self._file)
        finally:
            os.close(self._file)
            self._file, self._unsynced = -1, False
        self._closed[self._path.rename(self._path.with_suffix(CLOSED))] = self._size
        _sync_folder(self._folder)

    def recover(self) -> int:
        """Close what earlier recorders left open, and go on behind this core's own last segment. Returns the last
        sequence that is in a file of this core's. Comes before the first `append`. Raises OSError; then it may be tried
        again."""
        self._lock.keep()
        last = 0
        for path in find_segments(self._folder):
            self._named_us = max(self._named_us, named_us(path))
            closed = _recover(path) if path.suffix == OPEN else path
            if closed is not None:
                number, sequence = _where(closed, self._run)
                self._number, last = max(self._number, number), max(last, sequence)
        self._find_closed()
        return last

    def _is_in_place(self) -> bool:
        """Whether the name still leads to the file that is written."""
        try:
            return os.path.samestat(os.fstat(self._file), self._path.lstat())
        except OSError:
            return False

    def _is_over(self, more_bytes: int) -> bool:
        limits = self._limits
        if self._size == self._start_bytes:
            return False  # it holds nothing, as on a full disk: the next one would hold no more
        if self._size + more_bytes + END_BYTES > limits.segment_bytes:
            return True
        return self._clock_ns() - self._begun_ns > limits.segment_s * 1e9

    def _open(self, more_bytes: int) -> None:
        self._number += 1
        header = SegmentHeader(self._server, self._run, self._number, self._clock_ns(), time.time_ns())
        start = encode_header(header)
        if self.description:
            start += make_entry(Kind.DESCRIPTION, self.description, header.monotonic_ns)
        self._lock.keep()
        self._make_room(len(start) + more_bytes)
        path = self._folder / self._next_name(header)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, FILE_MODE)
        self._path, self._size, self._entries, self._begun_ns = path, 0, 0, header.monotonic_ns
        try:
            self._write(start)
            self._entries, self._start_bytes = int(bool(self.description)), self._size
            _sync_folder(self._folder)
        except OSError:
            os.close(self._file)
            self._file = -1
            path.unlink(missing_ok=True)
            raise

    def _next_name(self, header: SegmentHeader) -> str:
        now_us = header.unix_ns // 1000
        behind_us = self._named_us - now_us
        self._named_us = self._named_us + 1 if 0 <= behind_us <= AHEAD_US_MAX else now_us
        return segment_name(self._named_us, self._pid, self._number)

    def _write(self, data: bytes | bytearray) -> None:
        """All of it, or nothing. Raises OSError."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)
        self._unsynced = True

    def _make_room(self, more_bytes: int) -> None:
        """Raises FullError, OSError."""
        if self._over(more_bytes) <= 0:
            return
        self._find_closed()  # an operator may have moved some away
        if self._over(more_bytes) > 0 and self._limits.when_full == "stop":
            raise FullError(
                f"the recording holds {self._limits.bytes_max:,} bytes, all that it may (bytes_max): move segments "
                "away, or allow more"
            )
        while self._over(more_bytes) > 0 and self._closed:
            path = next(iter(self._closed))
            path.unlink(missing_ok=True)
            del self._closed[path]

    def _over(self, more_bytes: int) -> int:
        """By how much the recording would be too large."""
        written = self._size if self._file >= 0 else 0
        return sum(self._closed.values()) + written + more_bytes + END_BYTES - self._limits.bytes_max

    def _find_closed(self) -> None:
        self._closed = {
            path: _size(path) for path in find_segments(self._folder) if path != self._path or self._file < 0
        }


def _size(path: Path) -> int:
    """In bytes; 0 where it was moved away this very moment."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _recover(path: Path) -> Path | None:
    """Cut a segment behind its last whole entry and close it; one without a header goes. Returns what it is now."""
    good = entries = 0
    torn = ""
    data = mapped(path)
    try:
        _, good = decode_header(data)
        for _ in read_entries(data, good):
            entries += 1
        good = len(data)
    except RecordingError as error:
        log.warning("left alone: %s: %s", path, error)
        return None
    except DamagedError as error:
        good, torn = error.offset, str(error)
    if not good:
        log.warning("removed %s, %d bytes: %s", path, len(data), torn)
        path.unlink()
        return None
    if torn:
        log.warning(
            "recovered %s: %d entries are whole; %d bytes behind them are torn: %s",
            path,
            entries,
            len(data) - good,
            torn,
        )
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(file, good)
        end = make_entry(Kind.END, msgspec.json.encode(End(entries, recovered=True)), time.monotonic_ns())
        os.pwrite(file, end, good)
        os.fdatasync(file)
    finally:
        os.close(file)
    return path.rename(path.with_suffix(CLOSED))


def _where(path: Path, run: str) -> tuple[int, int]:
    """The number and the last sequence of a segment of this core's life; zeros where it is of another."""
    last = 0
    data = mapped(path)
    try:
        header, start = decode_header(data)
        if header.run != run:
            return 0, 0
        for _, entry in read_entries(data, start):
            last = max(last, entry.sequence)
    except RecordingError:
        return 0, 0
    except DamagedError as error:
        if not error.offset:
            return 0, 0
    return header.number, last


def _sync_folder(folder: Path) -> None:
    """A name that was made or changed is on the disk, too."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
