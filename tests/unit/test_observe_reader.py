"""The reader of the shared memory: nothing twice, nothing torn, nothing missing without being counted."""

import os
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tickpath.observe import records as layout
from tickpath.observe.reader import LayoutError, RecordReader, Records
from tickpath.observe.records import (
    CoreDescription,
    Event,
    EventKind,
    GlobalCell,
    RecordWriter,
    VersionCell,
    VersionDescription,
)
from tickpath.wire import Code

RING = layout.RING_RECORDS
MLP = VersionDescription("mlp", "1", "onnxruntime", "float32", "ab" * 32, "inline", (1, 2, 4))
GRU = VersionDescription("gru", "3", "onnxruntime", "float32", "cd" * 32, "thread", (1,))


@pytest.fixture
def writer() -> Iterator[RecordWriter]:
    writer = RecordWriter()
    yield writer
    writer.close()


def write(writer: RecordWriter, ids: range) -> None:
    for number in ids:
        writer.answered(0, 2, 4, 3, number, (number, 2, 3, 4, 5, 6), 7, 8, 1, 9, 10)


class Interrupted(RecordReader):
    """A reader whose copy is followed by something before it looks at `head` again."""

    meanwhile: Callable[[], None]

    def _copy(self, start: int, stop: int) -> Records:
        records = super()._copy(start, stop)
        self.meanwhile()
        return records


def test_records_come_once_in_order_with_every_field(writer: RecordWriter) -> None:
    reader = RecordReader(writer.fd)
    write(writer, range(5))
    records = reader.take()
    assert records["id"].tolist() == [0, 1, 2, 3, 4]
    assert dict(zip(layout.RECORD_FIELDS, records[4].tolist(), strict=True)) == {
        "id": 4,
        "version": 0,
        "bucket": 4,
        "rows": 3,
        "first_byte_ns": 4,
        "received_ns": 2,
        "started_ns": 3,
        "filled_ns": 4,
        "computed_ns": 5,
        "read_ns": 6,
        "sent_ns": 7,
        "event_time_ns": 8,
        "session": 9,
        "queued": 10,
    }
    assert len(reader.take()) == 0
    write(writer, range(5, 7))
    assert reader.take()["id"].tolist() == [5, 6]
    assert reader.lost == 0


def test_a_copy_does_not_change_when_the_ring_does(writer: RecordWriter) -> None:
    reader = RecordReader(writer.fd)
    write(writer, range(3))
    records = reader.take()
    write(writer, range(1_000, 1_000 + RING))
    assert records["id"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("count", [1, RING - 1, RING, RING + 1, 3 * RING + 17])
def test_what_the_writer_is_ahead_by_more_than_a_ring_is_lost_and_counted(writer: RecordWriter, count: int) -> None:
    reader = RecordReader(writer.fd)
    write(writer, range(count))
    records = reader.take()
    # One slot of a full ring may be in the writer's hands at any time.
    assert records["id"].tolist() == list(range(max(0, count - RING + 1), count))
    assert reader.lost + len(records) == count


@pytest.mark.parametrize(
    ("before", "meanwhile"), [(100, 50), (100, RING - 50), (RING - 1, 1), (100, RING), (50, 5 * RING)]
)
def test_what_is_overtaken_during_the_copy_is_dropped_and_counted(
    writer: RecordWriter, before: int, meanwhile: int
) -> None:
    reader = Interrupted(writer.fd)
    reader.meanwhile = lambda: write(writer, range(before, before + meanwhile))
    write(writer, range(before))
    first = reader.take()
    reader.meanwhile = lambda: None
    second = reader.take()
    ids = [*first["id"].tolist(), *second["id"].tolist()]
    assert ids == sorted(set(ids))
    assert first["id"].tolist() == list(range(min(max(0, before + meanwhile - RING + 1), before), before))
    assert len(ids) + reader.lost == before + meanwhile


def test_a_torn_record_is_never_given(writer: RecordWriter) -> None:
    """The slot being written when the copy is made is the oldest of a full ring, and `head` has not risen yet."""
    write(writer, range(RING))
    os.pwrite(writer.fd, np.array([RING], np.uint64).tobytes(), layout.RING_OFFSET)
    reader = RecordReader(writer.fd)
    assert reader.take()["id"].tolist() == list(range(1, RING))
    assert reader.lost == 1


def test_the_next_reader_goes_on_where_the_last_one_stopped(writer: RecordWriter) -> None:
    write(writer, range(10))
    first = RecordReader(writer.fd)
    assert len(first.take()) == 10
    write(writer, range(10, 14))
    reader = RecordReader(writer.fd)
    reader.taken = first.taken
    assert reader.take()["id"].tolist() == [10, 11, 12, 13]
    assert reader.lost == 0


def test_totals_are_exact_whatever_the_ring_lost(writer: RecordWriter) -> None:
    reader = RecordReader(writer.fd)
    write(writer, range(2 * RING))
    writer.refused(0, Code.DEADLINE)
    writer.refused(None, Code.UNKNOWN_MODEL)
    writer.add(GlobalCell.SESSIONS_OPENED, 3)
    writer.set_version(1, VersionCell.IN_FLIGHT, 5)
    writer.add_version(1, VersionCell.LATE_ANSWERS)
    totals = reader.totals()
    model = totals[layout.version_base(0) :]
    assert model[VersionCell.CODES + layout.OK] == 2 * RING
    assert model[VersionCell.REPLAYS + 2] == 2 * RING
    assert model[VersionCell.PADDED_ROWS] == 2 * RING
    assert model[VersionCell.CODES + Code.DEADLINE] == 1
    assert totals[GlobalCell.CODES + Code.UNKNOWN_MODEL] == 1
    assert totals[GlobalCell.SESSIONS_OPENED] == 3
    assert totals[layout.version_base(1) + VersionCell.IN_FLIGHT] == 5
    assert totals[layout.version_base(1) + VersionCell.LATE_ANSWERS] == 1
    assert totals.sum() == 6 * RING + 11


def test_a_core_describes_itself_from_the_start(writer: RecordWriter) -> None:
    assert RecordReader(writer.fd).description() == CoreDescription(os.getpid(), ())


def test_a_new_description_is_seen(writer: RecordWriter) -> None:
    reader = RecordReader(writer.fd)
    for models in ((MLP,), (MLP, GRU)):
        writer.describe(CoreDescription(7, models))
        assert reader.description() == CoreDescription(7, models)
    assert reader.description() is reader.description()


def test_an_unfinished_description_leaves_the_old_one(writer: RecordWriter) -> None:
    writer.describe(CoreDescription(7, (MLP,)))
    reader = RecordReader(writer.fd)
    writer.describe(CoreDescription(7, (MLP, GRU)))
    whole = os.pread(writer.fd, layout.HEADER.size, 0)
    magic, version, generation, length = layout.HEADER.unpack(whole)
    for unfinished in ((generation - 1, 0), (generation - 1, length), (generation, 0)):
        os.pwrite(writer.fd, layout.HEADER.pack(magic, version, *unfinished), 0)
        assert reader.description().versions == (MLP,)
    os.pwrite(writer.fd, whole, 0)
    assert reader.description().versions == (MLP, GRU)


def test_a_core_that_never_finished_its_description_is_refused(writer: RecordWriter) -> None:
    os.pwrite(writer.fd, layout.HEADER.pack(layout.MAGIC, layout.LAYOUT_VERSION, 1, 0), 0)
    with pytest.raises(LayoutError, match="never finished"):
        RecordReader(writer.fd)


def test_another_layout_is_refused_naming_both(writer: RecordWriter) -> None:
    os.pwrite(writer.fd, layout.HEADER.pack(layout.MAGIC, layout.LAYOUT_VERSION + 1, 2, 2), 0)
    with pytest.raises(LayoutError, match=f"layout {layout.LAYOUT_VERSION} expected, {layout.LAYOUT_VERSION + 1} came"):
        RecordReader(writer.fd)


def test_other_memory_is_refused() -> None:
    fd = os.memfd_create("foreign")
    try:
        with pytest.raises(LayoutError, match=r"bytes expected, descriptor \d+ has 0"):
            RecordReader(fd)
        os.ftruncate(fd, layout.SHARED_BYTES)
        with pytest.raises(LayoutError, match="magic number"):
            RecordReader(fd)
    finally:
        os.close(fd)
    with pytest.raises(LayoutError, match="Bad file descriptor"):
        RecordReader(fd)


def test_the_reader_can_write_nothing(writer: RecordWriter) -> None:
    reader = RecordReader(writer.fd)
    assert not reader._totals.flags.writeable
    assert not reader._ring.flags.writeable
    assert reader._head.readonly


def test_events_come_in_order_as_often_as_they_are_asked_for(writer: RecordWriter) -> None:
    reader = RecordReader(writer.fd)
    assert reader.events() == []
    writer.event(EventKind.GC, 10, 20, 300)
    writer.event(EventKind.LOOP_LAG, 15, 40, 25)
    expected = [Event(EventKind.GC, 10, 20, 300), Event(EventKind.LOOP_LAG, 15, 40, 25)]
    assert reader.events() == reader.events() == expected
    assert reader.events(newest=1) == expected[1:]


@pytest.mark.parametrize("meanwhile", [0, 1, 2, 100, layout.EVENTS, 3 * layout.EVENTS])
@pytest.mark.parametrize("before", [1, layout.EVENTS - 1, layout.EVENTS, layout.EVENTS + 1, 2 * layout.EVENTS + 7])
def test_an_event_that_is_written_over_while_it_is_read_is_left_out(
    writer: RecordWriter, before: int, meanwhile: int
) -> None:
    """All that the ring still holds in the end comes whole; of the rest, nothing."""

    class Overtaken(RecordReader):
        """Once its first event is read, more are written."""

        meanwhile: int

        def _event(self, index: int) -> tuple[int, ...]:
            event = super()._event(index)
            while self.meanwhile:
                writer.event(EventKind.RELOAD, before + meanwhile - self.meanwhile, 0)
                self.meanwhile -= 1
            return event

    reader = Overtaken(writer.fd)
    for number in range(before):
        writer.event(EventKind.RELOAD, number, 0)
    reader.meanwhile = meanwhile
    first_kept = max(0, before - layout.EVENTS + 1, before + meanwhile - layout.EVENTS + 1)
    assert [event.start_ns for event in reader.events()] == list(range(min(first_kept, before), before))
