"""What the observer has counted outlives it, at whatever moment it is killed."""

import os
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from tickpath.observe.kept import MAGIC, Word
from tickpath.observe.reader import RecordReader
from tickpath.observe.records import RING_RECORDS, CoreDescription, RecordWriter, VersionDescription
from tickpath.observe.tally import REQUEST, Tally

FIRST = VersionDescription("fast", "1", "onnxruntime", "float32", "ab" * 32, "inline", (1, 2))
SECOND = VersionDescription("slow", "2", "onnxruntime", "float32", "cd" * 32, "thread", (1,))
NOW_NS = 10**12


@pytest.fixture
def writer() -> Iterator[RecordWriter]:
    writer = RecordWriter()
    writer.describe(CoreDescription(os.getpid(), (FIRST, SECOND)))
    yield writer
    writer.close()


@pytest.fixture
def fd() -> Iterator[int]:
    fd = os.memfd_create("tally")
    yield fd
    os.close(fd)


def write(writer: RecordWriter, place: int, latency_ns: int, request_id: int = 1) -> None:
    stamps = (NOW_NS, NOW_NS, NOW_NS, NOW_NS, NOW_NS, NOW_NS)
    writer.answered(place, 0, 1, 1, request_id, stamps, NOW_NS + latency_ns, 0, session=3)


def counted(tally: Tally) -> list[int]:
    """Requests in the histograms, by version; the same of every span, and as many microseconds."""
    snapshot = tally.snapshot()
    by_span = snapshot.buckets.sum(axis=2)
    assert (by_span == by_span[:, :1]).all()
    assert snapshot.sums_ns[:, REQUEST].tolist() == [int(count) * 1_000 for count in by_span[:, 0]]
    counts: list[int] = by_span[:, REQUEST].tolist()
    return counts


def test_the_next_one_goes_on_where_the_last_one_stopped(writer: RecordWriter, fd: int) -> None:
    total = 0
    for life in range(1, 5):
        tally = Tally(RecordReader(writer.fd), fd)
        assert counted(tally) == [total, 0]
        for _ in range(3):
            for _ in range(life):
                write(writer, 0, 1_000)
            tally.read(NOW_NS)
            total += life
            assert counted(tally) == [total, 0]
        write(writer, 0, 1_000)  # while nobody looks
        total += 1
        tally = Tally(RecordReader(writer.fd), fd)
        assert not tally.kept.problem
        tally.read(NOW_NS)
    assert counted(tally) == [total, 0]
    assert tally.snapshot().lost == 0


def test_what_was_overwritten_between_two_observers_is_lost_and_counted(writer: RecordWriter, fd: int) -> None:
    write(writer, 1, 1_000)
    Tally(RecordReader(writer.fd), fd).read(NOW_NS)
    for _ in range(3 * RING_RECORDS):
        write(writer, 0, 1_000)
    tally = Tally(RecordReader(writer.fd), fd)
    tally.read(NOW_NS)
    assert counted(tally) == [RING_RECORDS - 1, 1]
    assert tally.snapshot().lost == 2 * RING_RECORDS + 1


def dies_at(line: int, work: Callable[[], object]) -> bool:
    """Run `work` in a child that is gone, without a word, before that line of the package; False: it had fewer."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status) == 9
    left = line

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal left
        if "/tickpath/observe/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            left -= 1
            if left < 0:
                os._exit(9)
        return trace

    sys.settrace(trace)
    work()
    os._exit(0)


def test_killed_at_any_line_of_a_batch_it_leaves_the_state_before_or_after(writer: RecordWriter, fd: int) -> None:
    """Batches of both versions, one after the other, so that the copies have something to catch up with."""
    total, line = 0, 0
    while True:
        for _ in range(2):
            tally = Tally(RecordReader(writer.fd), fd)
            assert not tally.kept.problem
            tally.read(NOW_NS)
            total += 1
            write(writer, total % 2, 1_000, total)
        if not dies_at(line, lambda: tally.read(NOW_NS)):  # noqa: B023  # it is run at once
            break
        line += 1
        after = Tally(RecordReader(writer.fd), fd)
        assert not after.kept.problem
        after.read(NOW_NS)
        assert counted(after) == [total // 2, total - total // 2]
        assert after.snapshot().lost == 0
    assert line > 20


def test_killed_at_any_line_of_taking_over_it_leaves_all_there_was(writer: RecordWriter, fd: int) -> None:
    for _ in range(3):
        write(writer, 0, 1_000)
        Tally(RecordReader(writer.fd), fd).read(NOW_NS)
    line = 0
    while dies_at(line, lambda: Tally(RecordReader(writer.fd), fd)):
        line += 1
        assert counted(Tally(RecordReader(writer.fd), fd)) == [3, 0]
    assert line > 20


def test_killed_at_any_line_of_making_it_it_leaves_nothing_to_trip_over(writer: RecordWriter) -> None:
    write(writer, 0, 1_000)
    line, died = 0, True
    while died:
        fd = os.memfd_create("tally")
        died = dies_at(line, lambda: Tally(RecordReader(writer.fd), fd))  # noqa: B023  # it is run at once
        tally = Tally(RecordReader(writer.fd), fd)
        assert not tally.kept.problem
        tally.read(NOW_NS)
        assert counted(tally) == [1, 0]
        os.close(fd)
        line += 1
    assert line > 20


def test_what_does_not_add_up_is_begun_anew(writer: RecordWriter, fd: int) -> None:
    """Whatever lies there, what is counted from then on is right."""

    def another_layout(tally: Tally) -> None:
        tally.kept.counters[Word.LAYOUT] += 1

    def another_magic(tally: Tally) -> None:
        tally.kept.counters[Word.MAGIC] = MAGIC + 1

    def a_third_copy(tally: Tally) -> None:
        tally.kept.counters[Word.ACTIVE] = 2

    def a_count_too_many(tally: Tally) -> None:
        tally.kept.state.buckets[1, 0, 5] += 1

    def a_count_below_0(tally: Tally) -> None:
        tally.kept.state.buckets[0, :, 5] -= 5
        tally.kept.state.buckets[0, :, 6] += 5

    def from_the_future(tally: Tally) -> None:
        tally.kept.state.ends(2**40, 2**40 - 1)

    spoilers = (another_layout, another_magic, a_third_copy, a_count_too_many, a_count_below_0, from_the_future)
    for number, spoil in enumerate(spoilers, 1):
        write(writer, 0, 1_000)
        tally = Tally(RecordReader(writer.fd), fd)
        tally.read(NOW_NS)
        spoil(tally)
        fresh = Tally(RecordReader(writer.fd), fd)
        assert fresh.kept.problem, spoil.__name__
        assert fresh.kept.counters[Word.ACTIVE] == 0
        fresh.read(NOW_NS)
        assert counted(fresh) == [number, 0]
        assert not Tally(RecordReader(writer.fd), fd).kept.problem
    os.ftruncate(fd, 100)
    assert "bytes expected, 100 came" in Tally(RecordReader(writer.fd), fd).kept.problem


def test_versions_that_come_while_nobody_looks_are_counted(writer: RecordWriter, fd: int) -> None:
    writer.describe(CoreDescription(os.getpid(), (FIRST,)))
    write(writer, 0, 1_000)
    Tally(RecordReader(writer.fd), fd).read(NOW_NS)
    writer.describe(CoreDescription(os.getpid(), (FIRST, SECOND)))
    write(writer, 1, 1_000)
    tally = Tally(RecordReader(writer.fd), fd)
    tally.read(NOW_NS)
    assert counted(tally) == [1, 1]


def test_each_bucket_has_its_newest_request(writer: RecordWriter, fd: int) -> None:
    tally = Tally(RecordReader(writer.fd), fd)
    for request_id, latency_ns in ((1, 40_000), (2, 41_000), (3, 900_000), (4, 39_000), (5, 20_000_000)):
        write(writer, 0, latency_ns, request_id)
        if request_id % 2:
            tally.read(NOW_NS)
    tally.read(NOW_NS)
    (of_first, of_second) = Tally(RecordReader(writer.fd), fd).snapshot().exemplars
    held = of_first[of_first["at_ns"] != 0]
    assert held["id"].tolist() == [4, 3, 5]
    assert held["session"].tolist() == [3, 3, 3]
    assert held["value_ns"].tolist() == [39_000, 900_000, 20_000_000]
    assert not of_second["at_ns"].any()


def test_counters_outlive_it_too(writer: RecordWriter, fd: int) -> None:
    Tally(RecordReader(writer.fd), fd).kept.counters[Word.STOLEN_NS] = 17
    assert Tally(RecordReader(writer.fd), fd).kept.counters[Word.STOLEN_NS] == 17
