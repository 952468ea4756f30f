"""Reads segments back: every whole entry, and in words what is not whole."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from tickpath.recorder.entries import DamagedError, Description, End, Entry, Kind, read_entries
from tickpath.recorder.segments import (
    CLOSED,
    OPEN,
    RecordingError,
    SegmentHeader,
    decode_header,
    find_segments,
    mapped,
)

NO_HEADER: Final = SegmentHeader("", "", 0, 0, 0)


class Segment:
    """One file. Iterate it once, to the end: then it knows what there was, `torn` and `missing` too.

    Damage never raises: what lies behind it is not read, and `torn` says where it begins, why, and how many bytes that
    is. What is no segment raises RecordingError; OSError where it can't be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header = NO_HEADER
        self.bytes = 0
        self.entries = 0
        self.first_ns = 0
        self.last_ns = 0
        self.torn = ""
        self.missing = 0
        """Entries between its first and its last that the core had no room for."""
        self.first_sequence = 0
        self.last_sequence = 0
        self.recovered = False
        self._ended = False

    @property
    def open(self) -> bool:
        """It is written, or was when its writer died."""
        return self.path.suffix == OPEN

    def unix_ns(self, at_ns: int) -> int:
        """A moment of the core's monotonic clock as Unix time."""
        return at_ns - self.header.monotonic_ns + self.header.unix_ns

    def __iter__(self) -> Iterator[tuple[int, Entry]]:
        """(offset, entry), in order."""
        data = mapped(self.path)
        self.bytes = len(data)
        try:
            self.header, at = decode_header(data)
            for offset, entry in read_entries(data, at):
                self._note(entry)
                yield offset, entry
        except DamagedError as error:
            self.torn = f"{self.bytes - error.offset:,} bytes from {error.offset:,} on are torn: {error}"
        except RecordingError as error:
            raise RecordingError(f"{self.path}: {error}") from None
        if self.path.suffix == CLOSED and not self._ended and not self.torn:
            self.torn = "its end is missing: it was cut off between two entries"

    def _note(self, entry: Entry) -> None:
        self.entries += 1
        if entry.kind is Kind.END:
            self._ended = True
            self.recovered = _decode(entry, End, End(0)).recovered
        if not entry.sequence:
            return
        if self.last_sequence:
            self.missing += max(0, entry.sequence - self.last_sequence - 1)
        self.first_sequence = self.first_sequence or entry.sequence
        self.last_sequence = max(self.last_sequence, entry.sequence)
        self.first_ns = self.first_ns or entry.at_ns
        self.last_ns = max(self.last_ns, entry.at_ns)


def description(entry: Entry) -> Description:
    """What an entry of that kind says; nothing where it makes no sense."""
    return _decode(entry, Description, Description((), ()))


Text = TypeVar("Text", Description, End)


def _decode(entry: Entry, kind: type[Text], otherwise: Text) -> Text:
    try:
        return msgspec.json.decode(entry.body, type=kind)
    except (msgspec.DecodeError, RecursionError):
        return otherwise


def open_segments(places: Iterable[Path]) -> list[Segment]:
    """Those of folders and files, by time. Raises RecordingError."""
    paths: list[Path] = []
    for place in places:
        try:
            found = find_segments(place) if place.is_dir() else [place]
        except OSError as error:
            raise RecordingError(f"{place}: {error.strerror}") from None
        if not found:
            raise RecordingError(f"{place}: no segment is there: name a folder that `tickpath serve --record` wrote to")
        paths += found
    for path in paths:
        if not path.is_file():
            raise RecordingError(f"{path}: no such file: name a recording's folder, or its segments")
    return [Segment(path) for path in sorted(set(paths), key=lambda path: path.name)]
