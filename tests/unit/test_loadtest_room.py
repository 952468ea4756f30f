"""Where the files of a run lie: reserved before anything is sent, and gone when it is over."""

import resource
from pathlib import Path

import pytest

from tickpath.loadtest.errors import LoadTestError
from tickpath.loadtest.room import make_room
from tickpath.loadtest.rows import GAPS_MAX, create_rows
from tickpath.loadtest.run import ROW

NOWHERE = Path("/proc/self")  # nobody can put a file there


def test_room_is_reserved_and_given_back(tmp_path: Path) -> None:
    with make_room(1000, (tmp_path,)) as room:
        held = (room.folder / "rows").stat()
        assert held.st_size == 1000 * ROW.itemsize
        assert held.st_blocks * 512 >= held.st_size
        assert (len(room.rows), len(room.gaps)) == (1000, GAPS_MAX)
        assert not room.rows["sent_ns"].any()
    assert list(tmp_path.iterdir()) == []


def test_whatever_ends_the_run_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), make_room(1000, (tmp_path,)):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_run_is_not_taken_for_want_of_room(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="of the run"), make_room(1000, (tmp_path, tmp_path)):
        raise OSError("of the run")


def test_where_there_is_no_room_the_next_place_is_taken(tmp_path: Path) -> None:
    with make_room(1000, (NOWHERE, tmp_path)) as room:
        assert room.folder.parent == tmp_path


def test_a_place_that_can_not_hold_it_after_all_is_left_clean(tmp_path: Path) -> None:
    """It has the bytes, and the file may not be as large."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, hard))
    try:
        with pytest.raises(LoadTestError), make_room(1 << 17, (tmp_path,)):
            pass
        with pytest.raises(OSError, match="File too large"):
            create_rows(tmp_path / "rows", 1 << 17)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]


def test_no_room_anywhere_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(LoadTestError) as refused, make_room(1 << 40, (NOWHERE, tmp_path)):
        pass
    said = str(refused.value)
    assert said.startswith(
        "1,099,511,627,776 requests need 83,886,082 MiB for their rows, and there are 0 MiB in /proc/self,"
    )
    assert f"MiB in {tmp_path}: make room, set TMPDIR" in said
    assert "\n" not in said
