"""Segments on a disk: written, rotated, bounded, cut off, recovered and read back."""

import os
import resource
import shutil
import stat
import time
from pathlib import Path

import pytest

from tickpath.recorder.entries import End, Kind, make_entry, seal
from tickpath.recorder.folder_lock import FolderLock, open_lock, take
from tickpath.recorder.reading import Segment, open_segments
from tickpath.recorder.recorder import Recorder
from tickpath.recorder.ring import RingReader, RingWriter
from tickpath.recorder.segments import RecordingError, find_segments
from tickpath.recorder.writing import FullError, Limits, SegmentWriter

BODY = 100
ENTRY = 136  # its header of 32 bytes, the body, and 4 up to a multiple of 8
LIMITS = Limits(4096, 900.0, 1 << 20, "drop_oldest")
DESCRIPTION = b'{"models":[],"versions":[]}'


class Clock:
    """One that stands still."""

    now_ns = 1_000_000_000

    def __call__(self) -> int:
        return self.now_ns


class Source:
    """A core that has things to say."""

    def __init__(self) -> None:
        self.ring = RingWriter(1 << 20)
        self.reader = RingReader(self.ring.fd)

    def entries(self, count: int) -> bytearray:
        for number in range(count):
            self.ring.put(Kind.REQUEST, 1, number, bytes(BODY))
        chunk, taken = self.reader.peek(1 << 20)
        self.reader.done(taken)
        return seal(chunk).entries


def make_writer(folder: Path, limits: Limits = LIMITS, clock: Clock | None = None, run: str = "run") -> SegmentWriter:
    writer = SegmentWriter(folder, "tickpath 1", run, limits, lock_of(folder), clock or Clock())
    writer.recover()
    return writer


def lock_of(folder: Path) -> FolderLock:
    """By a core that lives on while its recorders come and go."""
    return FolderLock(folder, open_lock(folder))


def requests(place: Path) -> list[int]:
    """The sequences of all requests, over all segments."""
    return [e.sequence for segment in open_segments([place]) for _, e in segment if e.kind is Kind.REQUEST]


def test_a_closed_segment_says_so_and_is_for_its_user_alone(tmp_path: Path) -> None:
    writer, source = make_writer(tmp_path), Source()
    writer.description = DESCRIPTION
    writer.append(source.entries(3), 3)
    (path,) = find_segments(tmp_path)
    assert path.suffix == ".open"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    writer.close()
    (segment,) = open_segments([tmp_path])
    kinds = [entry.kind for _, entry in segment]
    assert kinds == [Kind.DESCRIPTION, *[Kind.REQUEST] * 3, Kind.END]
    assert (segment.open, segment.torn, segment.missing, segment.recovered) == (False, "", 0, False)
    assert segment.header.server == "tickpath 1"


def test_it_is_rotated_by_size_and_each_segment_is_described(tmp_path: Path) -> None:
    writer, source = make_writer(tmp_path), Source()
    writer.description = DESCRIPTION
    for _ in range(100):
        writer.append(source.entries(1), 1)
    writer.close()
    segments = open_segments([tmp_path])
    assert len(segments) > 3
    for segment in segments:
        kinds = [entry.kind for _, entry in segment]
        assert (kinds[0], kinds[-1], segment.torn) == (Kind.DESCRIPTION, Kind.END, "")
        assert segment.bytes <= LIMITS.segment_bytes
    assert requests(tmp_path) == list(range(1, 101))


def test_it_is_rotated_by_age_also_where_nothing_comes(tmp_path: Path) -> None:
    clock = Clock()
    writer, source = make_writer(tmp_path, clock=clock), Source()
    writer.append(source.entries(1), 1)
    clock.now_ns += 901 * 10**9
    writer.sync()
    assert [path.suffix for path in find_segments(tmp_path)] == [".segment"]


def test_the_oldest_goes_where_there_is_no_more_room(tmp_path: Path) -> None:
    limits = Limits(4096, 900.0, 16384, "drop_oldest")
    writer, source = make_writer(tmp_path, limits), Source()
    for _ in range(400):
        writer.append(source.entries(1), 1)
        assert sum(path.stat().st_size for path in find_segments(tmp_path)) <= limits.bytes_max
    writer.close()
    kept = requests(tmp_path)
    assert kept == list(range(kept[0], 401))
    assert len(kept) * ENTRY > limits.bytes_max / 2


def test_or_nothing_more_is_written_until_segments_are_moved_away(tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    folder.mkdir()
    writer, source = make_writer(folder, Limits(4096, 900.0, 8192, "stop")), Source()
    for _ in range(40):
        writer.append(source.entries(1), 1)
    with pytest.raises(FullError, match="bytes_max"):
        writer.append(source.entries(40), 40)
    assert requests(folder) == list(range(1, 41))
    find_segments(folder)[0].unlink()
    writer.append(source.entries(1), 1)


@pytest.mark.parametrize("cut", range(1, ENTRY + 1, 9))
def test_a_tail_that_is_torn_is_told_and_recovered(tmp_path: Path, cut: int) -> None:
    writer, source = make_writer(tmp_path), Source()
    writer.append(source.entries(5), 5)
    (path,) = find_segments(tmp_path)
    os.truncate(path, path.stat().st_size - cut)
    segment = Segment(path)
    assert [entry.sequence for _, entry in segment] == [1, 2, 3, 4]
    torn = ENTRY - cut
    assert segment.torn.startswith(f"{torn} bytes from ") if torn else not segment.torn
    again = SegmentWriter(tmp_path, "tickpath 1", "run", LIMITS, lock_of(tmp_path), Clock())
    assert again.recover() == 4
    (segment,) = open_segments([tmp_path])
    assert [entry.sequence for _, entry in segment] == [1, 2, 3, 4, 0]
    assert (segment.open, segment.recovered, segment.torn) == (False, True, "")


def test_a_header_that_was_cut_off_leaves_nothing_behind(tmp_path: Path) -> None:
    writer, source = make_writer(tmp_path), Source()
    writer.append(source.entries(1), 1)
    (path,) = find_segments(tmp_path)
    os.truncate(path, 30)
    make_writer(tmp_path)
    assert find_segments(tmp_path) == []


def test_what_is_no_segment_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "20251103T093000.000000Z-1-000001.open"
    path.write_bytes(b"something else that is longer than a header")
    make_writer(tmp_path)
    assert path.read_bytes().startswith(b"something else")
    with pytest.raises(RecordingError, match="this is none"):
        list(Segment(path))


def test_a_closed_segment_without_its_end_was_cut(tmp_path: Path) -> None:
    writer, source = make_writer(tmp_path), Source()
    writer.append(source.entries(3), 3)
    writer.close()
    (path,) = find_segments(tmp_path)
    end = make_entry(Kind.END, b'{"entries":3,"recovered":false}', 0)
    os.truncate(path, path.stat().st_size - len(end))
    segment = Segment(path)
    list(segment)
    assert "its end is missing" in segment.torn
    assert End(3).entries == segment.entries


def test_a_file_that_takes_no_more_holds_whole_entries_only(tmp_path: Path) -> None:
    writer, source = make_writer(tmp_path, Limits(1 << 20, 900.0, 1 << 30, "drop_oldest")), Source()
    writer.append(source.entries(5), 5)
    (path,) = find_segments(tmp_path)
    size = path.stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    refused = source.entries(2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + ENTRY + 7, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            writer.append(refused, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.stat().st_size == size
    writer.append(refused, 2)
    writer.close()
    assert requests(tmp_path) == list(range(1, 8))


def test_tries_on_a_full_disk_leave_one_segment_and_not_one_each(tmp_path: Path) -> None:
    """Also where a batch is as long as a segment."""
    writer, source = make_writer(tmp_path), Source()
    writer.description = DESCRIPTION
    refused = source.entries(LIMITS.segment_bytes // ENTRY)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMITS.segment_bytes // 2, hard))  # room for a header
    try:
        for _ in range(5):
            with pytest.raises(OSError, match="too large"):
                writer.append(refused, 1)
            writer.sync()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(find_segments(tmp_path)) == 1
    writer.append(refused, 1)
    writer.close()
    assert len(requests(tmp_path)) == LIMITS.segment_bytes // ENTRY


def test_a_segment_that_somebody_removed_is_followed_by_another(tmp_path: Path) -> None:
    writer, source = make_writer(tmp_path), Source()
    writer.append(source.entries(1), 1)
    find_segments(tmp_path)[0].unlink()
    writer.sync()
    writer.append(source.entries(1), 1)
    assert requests(tmp_path) == [2]


def test_places_that_hold_no_recording_are_named(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="no segment is there"):
        open_segments([tmp_path])
    with pytest.raises(RecordingError, match="no such file"):
        open_segments([tmp_path / "gone"])


def test_names_keep_their_order_when_the_clock_is_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is what goes, and not the newest, whose time would be the earliest; another recorder knows it too."""
    limits = Limits(4096, 900.0, 16384, "drop_oldest")
    writer, source = make_writer(tmp_path, limits), Source()
    for hours in (0, -6, 3, -12):
        if hours == 3:
            writer = make_writer(tmp_path, limits)
        now_ns = 1_700_000_000 * 10**9 + hours * 3600 * 10**9
        monkeypatch.setattr(time, "time_ns", lambda now_ns=now_ns: now_ns)
        for _ in range(100):
            writer.append(source.entries(1), 1)
    writer.close()
    kept = requests(tmp_path)
    assert kept == list(range(kept[0], 401))


def test_a_name_of_the_far_future_or_of_no_time_moves_no_clock(tmp_path: Path) -> None:
    for name in ("99991231T235959.999999Z-1-000001.segment", "20261399T000000.000000Z-1-000001.segment"):
        (tmp_path / name).write_bytes(b"no segment")
    writer = make_writer(tmp_path)
    writer.append(Source().entries(1), 1)
    (mine,) = (path for path in find_segments(tmp_path) if path.suffix == ".open")
    assert mine.name < "9"


def test_what_is_no_file_is_no_segment(tmp_path: Path) -> None:
    """A pipe would keep whoever reads it for ever; none of them ends a recorder."""
    os.mkfifo(tmp_path / "20261201T000000.000000Z-1-000001.open")
    (tmp_path / "20261201T000000.000000Z-1-000002.open").mkdir()
    (tmp_path / "20261201T000000.000000Z-1-000003.segment").symlink_to("nowhere")
    writer = make_writer(tmp_path, Limits(4096, 900.0, 8192, "drop_oldest"))
    source = Source()
    for _ in range(100):
        writer.append(source.entries(1), 1)
    assert len(list(tmp_path.iterdir())) >= 4
    assert len(find_segments(tmp_path)) >= 1


def test_a_file_that_takes_the_place_of_the_one_that_is_written_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer, source = make_writer(tmp_path), Source()
    writer.append(source.entries(3), 3)
    (path,) = find_segments(tmp_path)
    other = tmp_path / "other"
    other.write_bytes(b"somebody else's")
    other.rename(path)
    writer.sync()
    writer.append(source.entries(2), 2)
    writer.close()
    assert path.read_bytes() == b"somebody else's"
    assert "replaced" in caplog.text
    (mine,) = (path for path in find_segments(tmp_path) if path.suffix == ".segment")
    assert [entry.sequence for _, entry in Segment(mine) if entry.kind is Kind.REQUEST] == [4, 5]


def test_a_folder_that_is_removed_and_made_again_is_written_to(tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    folder.mkdir()
    writer, source = make_writer(folder), Source()
    writer.append(source.entries(1), 1)
    shutil.rmtree(folder)
    writer.sync()
    with pytest.raises(FileNotFoundError):
        writer.append(source.entries(1), 1)
    folder.mkdir()
    writer.append(source.entries(1), 1)
    writer.close()
    assert requests(folder) == [3]


def test_a_folder_that_another_server_has_by_now_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It was removed, or its lock was: neither writes among the other's segments, nor closes them."""
    folder = tmp_path / "recording"
    folder.mkdir()
    lock = lock_of(folder)
    writer, source = SegmentWriter(folder, "tickpath 1", "run", LIMITS, lock, Clock()), Source()
    writer.append(source.entries(1), 1)
    shutil.rmtree(folder)
    folder.mkdir()
    theirs = open_lock(folder)
    take(theirs)
    others = make_writer(folder, run="other")
    others.append(Source().entries(1), 1)
    (path,) = find_segments(folder)
    writer.sync()
    for _ in range(2):
        with pytest.raises(OSError, match="another server records there, since the folder or its lock was removed"):
            writer.append(source.entries(1), 1)
    again = SegmentWriter(folder, "tickpath 1", "run", LIMITS, lock, Clock())
    with pytest.raises(OSError, match="another server records there"):
        again.recover()
    assert find_segments(folder) == [path]
    others.close()
    os.close(theirs)
    writer.append(source.entries(1), 1)
    with pytest.raises(BlockingIOError):  # it is this server's now
        take(open_lock(folder))
    assert "the folder that is there now is locked" in caplog.text


def test_a_folder_that_was_away_at_the_start_is_gone_on_in_behind_what_is_there(tmp_path: Path) -> None:
    """A recorder was killed before it could say what it had written, and the next one finds no folder at first."""
    folder, away = tmp_path / "recording", tmp_path / "away"
    folder.mkdir()
    lock, source = lock_of(folder), Source()
    for number in range(5):
        source.ring.put(Kind.REQUEST, 1, number, bytes(BODY))
    killed = SegmentWriter(folder, "tickpath 1", "run", LIMITS, lock, Clock())
    killed.recover()
    chunk, _ = source.reader.peek(3 * ENTRY)
    killed.append(seal(chunk).entries, 3)
    folder.rename(away)
    recorder = Recorder(source.reader, SegmentWriter(folder, "tickpath 1", "run", LIMITS, lock, Clock()), None)
    assert not recorder.move(0.0)
    away.rename(folder)
    recorder.finish()
    segments = open_segments([folder])
    assert [e.sequence for segment in segments for _, e in segment if e.kind is Kind.REQUEST] == [1, 2, 3, 4, 5]
    assert [(segment.header.number, segment.open, segment.recovered) for segment in segments] == [
        (1, False, True),
        (2, False, False),
    ]
    assert (source.ring.written(), source.ring.lost()) == (5, 0)
