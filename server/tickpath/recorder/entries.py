"""Entries: what the core hands to the recorder, and what lies in a segment, in one form. Pure.

    entry    length u32, checksum u32, sequence u64, at_ns u64, session u32, kind u8, 3 zero bytes; the body; padding
             up to the next multiple of 8. All little-endian. `length` counts what follows the checksum, padding aside.

The checksum is CRC-32 (zlib's: in every Python, and in every language a log is read with) over the length and over what
follows the checksum. The core leaves it 0, since it has better things to do; the recorder puts it in.

`sequence` counts from 1 what the core had to say, also what it had no room for: a hole in it is what was dropped. 0 is
what the recorder itself says. `at_ns` is the core's monotonic clock.
"""

import enum
import struct
import zlib
from collections.abc import Iterator
from typing import Annotated, Final

import msgspec

from tickpath.wire import TensorInfo

PREFIX_BYTES: Final = 8
HEADER: Final = struct.Struct("<IIQQIB3x")
HEADER_BYTES: Final = HEADER.size
REST_BYTES: Final = HEADER_BYTES - PREFIX_BYTES
_LENGTH: Final = struct.Struct("<I")
_CHECKSUM_AT: Final = 4


class Kind(enum.IntEnum):
    """What an entry tells of. The body of a request and of a reply is a message of the wire protocol, without the
    length before it."""

    DESCRIPTION = 1
    OPENED = 2  # a session: the client's name, as UTF-8
    REQUEST = 3
    REPLY = 4
    CLOSED = 5  # a session; no body
    END = 6  # of a segment that was closed: `End`


class DescribedModel(msgspec.Struct, frozen=True):
    """What a handle leads to: a model, or with `version` that one alone."""

    handle: Annotated[int, msgspec.Meta(ge=0)]
    name: str
    version: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]


class DescribedVersion(msgspec.Struct, frozen=True):
    """A version, as answers name it."""

    name: str
    version: str
    sha256: str
    engine: str
    precision: str


class Description(msgspec.Struct, frozen=True):
    """All that the core has served until then. A handle and a version's name never come to mean something else, so a
    later description only adds to an earlier one."""

    models: tuple[DescribedModel, ...]
    versions: tuple[DescribedVersion, ...]


class End(msgspec.Struct, frozen=True):
    """The last entry of a segment: how many came before it. `recovered`: its writer did not get to say so itself."""

    entries: int
    recovered: bool = False


class Entry(msgspec.Struct, frozen=True):
    """One entry; its body is a view into the segment."""

    sequence: int
    at_ns: int
    session: int
    kind: Kind
    body: memoryview


class DamagedError(Exception):
    """Bytes that are no whole entry. `offset` is where they begin; the text says what is wrong with them."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(what)
        self.offset = offset


_KINDS: Final = {int(kind): kind for kind in Kind}


def padded(length: int) -> int:
    """How many bytes an entry of this length takes."""
    return (PREFIX_BYTES + length + 7) & -8


def checksum(entry: memoryview, length: int) -> int:
    """Of the entry that begins here."""
    return zlib.crc32(entry[PREFIX_BYTES : PREFIX_BYTES + length], zlib.crc32(entry[:_CHECKSUM_AT]))


class Batch(msgspec.Struct, frozen=True):
    """Entries as the ring has them, with their checksums put in."""

    entries: bytearray  # those that are not in a file yet
    fresh: int  # how many these are
    total: int  # how many there were
    last: int  # the last sequence
    description: bytes  # the newest that is among them; empty where none is


def seal(chunk: bytearray, after: int = 0) -> Batch:
    """Put the checksums into a chunk of whole entries; leave out those up to the sequence `after`, which come first."""
    view = memoryview(chunk)
    at = start = fresh = total = 0
    last, description = after, b""
    while at < len(chunk):
        length, _, sequence, _, _, kind = HEADER.unpack_from(chunk, at)
        end = at + padded(length)
        total += 1
        if kind == Kind.DESCRIPTION:
            description = bytes(view[at + HEADER_BYTES : at + PREFIX_BYTES + length])
        if sequence > after:
            _LENGTH.pack_into(chunk, at + _CHECKSUM_AT, checksum(view[at : at + PREFIX_BYTES + length], length))
            fresh, last = fresh + 1, sequence
        else:
            start = end
        at = end
    view.release()
    return Batch(chunk[start:] if start else chunk, fresh, total, last, description)


def make_entry(kind: Kind, body: bytes, at_ns: int) -> bytes:
    """One of the recorder's own, sealed."""
    length = REST_BYTES + len(body)
    entry = bytearray(padded(length))
    HEADER.pack_into(entry, 0, length, 0, 0, at_ns, 0, kind)
    entry[HEADER_BYTES : HEADER_BYTES + len(body)] = body
    _LENGTH.pack_into(entry, _CHECKSUM_AT, checksum(memoryview(entry), length))
    return bytes(entry)


def read_entries(data: memoryview, at: int) -> Iterator[tuple[int, Entry]]:
    """(offset, entry) for each whole entry from `at` to the end. Raises DamagedError where one is not."""
    end = len(data)
    while at < end:
        if end - at < HEADER_BYTES:
            raise DamagedError(at, f"an entry begins and its header is cut off: {end - at} bytes of {HEADER_BYTES}")
        length, crc, sequence, at_ns, session, kind = HEADER.unpack_from(data, at)
        if length < REST_BYTES:
            raise DamagedError(at, f"an entry's length is at least {REST_BYTES}, {length} came")
        if at + padded(length) > end:
            raise DamagedError(at, f"an entry begins and is cut off: {end - at} bytes of {padded(length)}")
        if checksum(data[at : at + PREFIX_BYTES + length], length) != crc:
            raise DamagedError(at, "an entry's checksum is wrong: its bytes are not those that were written")
        if kind not in _KINDS:
            raise DamagedError(at, f"an entry is of kind {kind}, which this release does not know")
        body = data[at + HEADER_BYTES : at + PREFIX_BYTES + length]
        yield at, Entry(sequence, at_ns, session, _KINDS[kind], body)
        at += padded(length)
