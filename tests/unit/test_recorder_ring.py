"""The ring between core and recorder: whole entries in order, or dropped and counted."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickpath.recorder.entries import HEADER_BYTES, Kind, padded, read_entries, seal
from tickpath.recorder.folder_lock import open_lock, take
from tickpath.recorder.ring import RingReader, RingWriter
from tickpath.server import recording
from tickpath.server.config import ConfigError
from tickpath.server.record_config import RecordConfig
from tickpath.server.recording import Recording

RING_BYTES = 1024


@pytest.fixture
def ring() -> Iterator[tuple[RingWriter, RingReader]]:
    writer = RingWriter(RING_BYTES)
    reader = RingReader(writer.fd)
    yield writer, reader
    writer.close()


def bodies(reader: RingReader, bytes_max: int = 1 << 20) -> list[bytes]:
    """All that is in the ring, taken."""
    found: list[bytes] = []
    while True:
        chunk, taken = reader.peek(bytes_max)
        if not chunk:
            return found
        batch = seal(chunk)
        entries = [bytes(entry.body) for _, entry in read_entries(memoryview(batch.entries), 0)]
        assert len(entries) == batch.fresh == batch.total
        reader.done(taken, written=batch.total)
        found += entries


def test_a_ring_that_memory_does_not_hold_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its pages are taken at once, so the system would end processes until they are there."""
    monkeypatch.setattr(recording, "available_bytes", lambda: 2**20)
    with pytest.raises(ConfigError, match="ring_bytes is 1048584, and this machine, or the control group, has 1048576"):
        Recording(RecordConfig(str(tmp_path), ring_bytes=2**20 + 8))
    take(open_lock(tmp_path))  # nobody has it any more


def test_memory_that_nobody_tells_of_refuses_no_ring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(recording, "available_bytes", lambda: None)
    made = Recording(RecordConfig(str(tmp_path), ring_bytes=2**20))
    made.ring.close()
    os.close(made.lock_fd)


def test_memory_is_looked_at_once_the_server_before_has_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It was killed, and its recorder keeps its ring and its lock until all is written."""
    before = [open_lock(tmp_path)]
    take(before[0])
    monkeypatch.setattr(recording, "sleep", lambda _: os.close(before.pop()))
    monkeypatch.setattr(recording, "available_bytes", lambda: 0 if before else 2**30)
    made = Recording(RecordConfig(str(tmp_path), ring_bytes=2**20))
    made.ring.close()
    os.close(made.lock_fd)


def test_entries_come_out_as_they_went_in(ring: tuple[RingWriter, RingReader]) -> None:
    writer, reader = ring
    assert writer.put(Kind.REQUEST, 7, 123, b"question")
    assert writer.put(Kind.REPLY, 7, 124, memoryview(b"xanswer")[1:])
    chunk, _ = reader.peek(1 << 20)
    found = [entry for _, entry in read_entries(memoryview(seal(chunk).entries), 0)]
    assert [(e.sequence, e.at_ns, e.session, e.kind, bytes(e.body)) for e in found] == [
        (1, 123, 7, Kind.REQUEST, b"question"),
        (2, 124, 7, Kind.REPLY, b"answer"),
    ]


def test_what_has_no_room_is_dropped_and_counted(ring: tuple[RingWriter, RingReader]) -> None:
    writer, reader = ring
    put = [writer.put(Kind.REQUEST, 1, 0, bytes(100)) for _ in range(20)]
    kept = put.count(True)
    assert kept == RING_BYTES // padded(HEADER_BYTES - 8 + 100)
    assert put == [True] * kept + [False] * (20 - kept)
    assert writer.dropped == 20 - kept
    assert len(bodies(reader)) == kept
    assert writer.written() == kept
    assert writer.put(Kind.REQUEST, 1, 0, b"again")
    chunk, _ = reader.peek(1 << 20)
    ((_, entry),) = read_entries(memoryview(seal(chunk).entries), 0)
    assert entry.sequence == 21, "the hole says how many were dropped"


def test_what_is_larger_than_the_ring_is_dropped(ring: tuple[RingWriter, RingReader]) -> None:
    writer, reader = ring
    assert not writer.put(Kind.REQUEST, 1, 0, bytes(RING_BYTES))
    assert writer.put(Kind.REQUEST, 1, 0, b"small")
    assert bodies(reader) == [b"small"]


def test_a_reader_that_was_killed_is_followed_by_one_that_goes_on(ring: tuple[RingWriter, RingReader]) -> None:
    writer, reader = ring
    for number in range(4):
        writer.put(Kind.REQUEST, 1, 0, bytes([number]))
    _, taken = reader.peek(1)
    reader.done(taken, written=1)
    reader.peek(1)  # and killed before it was dealt with
    assert bodies(RingReader(writer.fd)) == [b"\1", b"\2", b"\3"]


@given(st.lists(st.tuples(st.integers(0, 600), st.booleans()), max_size=60), st.integers(1, 400))
def test_any_sizes_in_any_rhythm(steps: list[tuple[int, bool]], bytes_max: int) -> None:
    writer = RingWriter(RING_BYTES)
    reader = RingReader(writer.fd)
    put: list[bytes] = []
    came: list[bytes] = []
    for number, (size, read) in enumerate(steps):
        body = bytes([number]) * size
        if writer.put(Kind.REPLY, 1, number, body):
            put.append(body)
        if read:
            came += bodies(reader, bytes_max)
    came += bodies(reader, bytes_max)
    assert came == put
    assert writer.dropped == len(steps) - len(put)
    writer.close()


@pytest.mark.parametrize("before", range(0, RING_BYTES, 8))
def test_an_empty_ring_takes_whatever_is_no_larger_than_it_wherever_it_stands(
    ring: tuple[RingWriter, RingReader], before: int
) -> None:
    """At the place that `before` bytes lead to: also where a header does not end before the ring does."""
    writer, reader = ring
    head = HEADER_BYTES
    if before >= head:
        assert writer.put(Kind.REQUEST, 1, 0, bytes(before - head))
        assert bodies(reader) == [bytes(before - head)]
    for size in (RING_BYTES - head, RING_BYTES // 2 + 8, RING_BYTES // 2 - head, 1):
        body = bytes(number % 251 for number in range(size))
        assert writer.put(Kind.REQUEST, 1, 0, body), size
        assert bodies(reader) == [body]
    assert writer.dropped == 0
    assert not writer.put(Kind.REQUEST, 1, 0, bytes(RING_BYTES - head + 8))
