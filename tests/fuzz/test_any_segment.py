"""A segment may hold any bytes: they are whole entries, or what is wrong with them is named; nothing else is raised and
nothing much is taken. Everything that reads a recording, up to the index that a playback stands on."""

from pathlib import Path

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.segments import STAMPS, body, exchanges_of, sealed
from tests.wire.vectors import FOLDER, MessageVectors

from tickpath.recorder.entries import Entry, Kind, make_entry
from tickpath.recorder.reading import Segment
from tickpath.recorder.segments import RecordingError, SegmentHeader, encode_header
from tickpath.wire import (
    PREFIX_BYTES,
    ClientMessage,
    Code,
    Failure,
    FeedOpened,
    Infer,
    OpenFeed,
    Result,
    ServerMessage,
    Tick,
)

ANY = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
HEADER = encode_header(SegmentHeader("tickpath 1", "run", 1, 0, 0))
ASKED: list[ClientMessage] = [
    OpenFeed(1, 0, "k"),
    Infer(2, 0, 1, [memoryview(bytes(8))]),
    Tick(3, 1, 1, [memoryview(bytes(4))]),
    Infer(2, 9, 1, []),
]
SAID: list[ServerMessage] = [
    FeedOpened(1, 1, 1, 2, 0, False, "1", (), ()),
    Result(2, "1", [memoryview(bytes(4))], STAMPS),
    Failure(3, Code.NOT_READY, "not yet", 2),
    Failure(2, Code.UNKNOWN_MODEL, "none"),
]
DESCRIPTION = b'{"models":[{"handle":0,"name":"m","version":"","inputs":[],"outputs":[]}],"versions":[]}'


def whole() -> bytes:
    """A segment with every kind of entry."""
    entries = [(Kind.DESCRIPTION, 0, 1, DESCRIPTION), (Kind.OPENED, 1, 2, b"desk-7")]
    for asked, said in zip(ASKED, SAID, strict=True):
        entries += [(Kind.REQUEST, 1, 3, body(asked)), (Kind.REPLY, 1, 4, body(said))]
    entries.append((Kind.CLOSED, 1, 5, b""))
    return HEADER + bytes(sealed(entries).entries) + make_entry(Kind.END, b'{"entries":11}', 6)


WHOLE = whole()


def read(folder: Path, data: bytes) -> tuple[list[Entry], str]:
    """The entries of a file with these bytes, and what is torn of it."""
    path = folder / "20251103T093000.000000Z-1-000001.segment"
    path.write_bytes(data)
    segment = Segment(path)
    try:
        exchanges = exchanges_of([segment])
        entries = [entry for _, entry in Segment(path)]
    except RecordingError as error:
        return [], str(error)
    assert len(exchanges) <= len(entries)
    assert sum(len(entry.body) for entry in entries) <= len(data)
    return entries, segment.torn


def test_a_whole_segment_is_whole(tmp_path: Path) -> None:
    entries, torn = read(tmp_path, WHOLE)
    assert len(entries) == 12
    assert not torn


@ANY
@given(data=st.binary(max_size=4096))
def test_any_bytes(tmp_path: Path, data: bytes) -> None:
    assert read(tmp_path, data)[1], "and no bytes are a segment by chance"


@ANY
@given(data=st.binary(max_size=512))
def test_any_bytes_behind_a_header(tmp_path: Path, data: bytes) -> None:
    entries, torn = read(tmp_path, HEADER + data)
    assert torn
    assert entries == []


def test_every_truncation_gives_every_whole_entry(tmp_path: Path) -> None:
    all_entries, _ = read(tmp_path, WHOLE)
    for length in range(len(WHOLE)):
        entries, torn = read(tmp_path, WHOLE[:length])
        assert torn
        assert entries == all_entries[: len(entries)]


@ANY
@given(at=st.integers(0, len(WHOLE) * 8 - 1))
def test_a_flipped_bit_is_told_or_was_padding(tmp_path: Path, at: int) -> None:
    all_entries, _ = read(tmp_path, WHOLE)
    flipped = bytearray(WHOLE)
    flipped[at // 8] ^= 1 << at % 8
    entries, torn = read(tmp_path, bytes(flipped))
    assert entries == all_entries[: len(entries)]
    assert torn or len(entries) == len(all_entries)


@ANY
@given(
    kind=st.integers(0, 255),
    session=st.integers(0, 2**32 - 1),
    at_ns=st.integers(0, 2**64 - 1),
    data=st.binary(max_size=200),
)
def test_any_entry_with_a_right_checksum(tmp_path: Path, kind: int, session: int, at_ns: int, data: bytes) -> None:
    batch = sealed([(kind, session, at_ns, data)], 1 << 12)  # type: ignore[list-item]
    entries, torn = read(tmp_path, HEADER + bytes(batch.entries))
    assert bool(torn) == (kind != Kind.END)  # which says that nothing follows
    assert len(entries) == (kind in set(Kind))


def test_any_vector_of_the_protocol_is_taken(tmp_path: Path) -> None:
    bodies = []
    for name, kind in (("client", Kind.REQUEST), ("server", Kind.REPLY)):
        vectors = msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=MessageVectors)
        for frame in [each.frame for each in vectors.valid] + [each.frame for each in vectors.invalid]:
            bodies.append((kind, 1, 1, bytes.fromhex(frame)[PREFIX_BYTES:]))
    batch = sealed(bodies, 1 << 24)
    entries, _ = read(tmp_path, HEADER + bytes(batch.entries))
    assert len(entries) == batch.total > 100
