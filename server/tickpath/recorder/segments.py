"""Segments: the files of a recording. Their names, their headers, and what is in one.

    segment  "tickpath", format u32, bytes of the header's text u32, its CRC-32 u32, 4 zero bytes; the text (JSON of
             SegmentHeader) and zeros up to the next multiple of 8; entries (see entries.py)

A name is the time of the first entry in UTC, the server's process and a number, so that names sort in the order in
which they were written; where the clock was set back, its time is just behind that of the one before. A segment that is
written ends in `.open`, one that is closed in `.segment`.
"""

import mmap
import os
import re
import struct
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from tickpath.recorder.entries import DamagedError

MAGIC: Final = b"tickpath"
FORMAT: Final = 1
CLOSED: Final = ".segment"
OPEN: Final = ".open"
_NAME: Final = re.compile(r"\d{8}T\d{6}\.\d{6}Z-\d+-\d{6,}\.(segment|open)")
_TIME: Final = "%Y%m%dT%H%M%S.%fZ"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_START: Final = struct.Struct("<8sIII4x")
# The server's name and some numbers; a longer one is no header of ours.
TEXT_BYTES_MAX: Final = 65536


class SegmentHeader(msgspec.Struct, frozen=True):
    """The start of a segment. `run` is the core's life that it tells of; the two clocks were read at one moment."""

    server: str
    run: str
    number: int
    monotonic_ns: int
    unix_ns: int


class RecordingError(Exception):
    """What is no recording, or can't be read as one. The text says what was expected, what came and what to do."""


def segment_name(unix_us: int, pid: int, number: int) -> str:
    """The name of a segment that is written."""
    return f"{_EPOCH + timedelta(microseconds=unix_us):{_TIME}}-{pid}-{number:06d}{OPEN}"


def named_us(path: Path) -> int:
    """The time in a segment's name, in microseconds of Unix time; 0 where it is none."""
    try:
        time = datetime.strptime(path.name.partition("-")[0], _TIME).replace(tzinfo=UTC)
    except ValueError:  # the thirteenth month, by somebody else's hand
        return 0
    return (time - _EPOCH) // timedelta(microseconds=1)


def find_segments(folder: Path) -> list[Path]:
    """The segments of a folder, in the order in which they were written. What has such a name and is no file (a pipe, a
    folder, a link to nothing) is none. Raises OSError."""
    named = (path for path in folder.iterdir() if _NAME.fullmatch(path.name))
    return sorted((path for path in named if path.is_file()), key=lambda path: path.name)


def encode_header(header: SegmentHeader) -> bytes:
    """The first bytes of a segment."""
    text = msgspec.json.encode(header)
    start = _START.pack(MAGIC, FORMAT, len(text), zlib.crc32(text))
    return start + text + bytes(-len(text) % 8)


def decode_header(data: memoryview) -> tuple[SegmentHeader, int]:
    """The header, and where the entries begin. Raises DamagedError where it is cut off, as by a writer that was killed
    before it had written anything else; RecordingError where it is none, or damaged."""
    if len(data) < _START.size:
        raise DamagedError(0, f"its header is cut off: {len(data)} bytes of {_START.size} and more")
    magic, form, text_bytes, crc = _START.unpack_from(data)
    if magic != MAGIC:
        raise RecordingError(f"a segment begins with {MAGIC!r}, {bytes(magic)!r} came: this is none")
    if form != FORMAT:
        raise RecordingError(f"format {FORMAT} is expected, {form} came: read it with the release that wrote it")
    end = _START.size + text_bytes
    if text_bytes > TEXT_BYTES_MAX:
        raise RecordingError(
            f"its header is damaged: at most {TEXT_BYTES_MAX} bytes of text are expected, not {text_bytes}"
        )
    if end > len(data):
        raise DamagedError(0, f"its header is cut off: {len(data)} bytes of {end} and more")
    text = data[_START.size : end]
    if zlib.crc32(text) != crc:
        raise RecordingError("its header is damaged: the checksum is wrong")
    try:
        return msgspec.json.decode(text, type=SegmentHeader), end + -text_bytes % 8
    except (msgspec.DecodeError, RecursionError) as error:
        raise RecordingError(f"its header is damaged: {error}") from None


def mapped(path: Path) -> memoryview:
    """A file's bytes, read as they are looked at. Raises OSError."""
    with path.open("rb") as file:
        # Nothing can't be mapped; and a segment that is written may become shorter again, which ends who has it mapped.
        if path.suffix == OPEN or not os.fstat(file.fileno()).st_size:
            return memoryview(file.read())
        return memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))  # unmapped when nobody looks at it
