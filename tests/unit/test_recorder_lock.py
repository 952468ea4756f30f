"""A recorder's lock on its folder, which is replaced as often as somebody removes it."""

import errno
import os
from pathlib import Path

import pytest

from tickpath.recorder import folder_lock
from tickpath.recorder.folder_lock import LOCK_FILE, FolderLock, open_lock, take


def descriptors(folder: Path) -> int:
    """How many of the folder's files this process has open, removed ones too."""
    opened = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    return sum(path.startswith(f"{folder}/") for path in opened)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EWOULDBLOCK])
def test_tries_leave_no_descriptor_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    lock = FolderLock(tmp_path, open_lock(tmp_path))
    (tmp_path / LOCK_FILE).unlink()

    def refuse(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(folder_lock, "take", refuse)
    for _ in range(3):
        with pytest.raises(OSError, match="records there" if number == errno.EWOULDBLOCK else os.strerror(number)):
            lock.keep()
    assert descriptors(tmp_path) == 1


def test_a_lock_that_is_replaced_again_is_closed_but_for_the_cores(tmp_path: Path) -> None:
    cores = open_lock(tmp_path)
    lock = FolderLock(tmp_path, cores)
    for _ in range(3):
        (tmp_path / LOCK_FILE).unlink()
        lock.keep()
        assert descriptors(tmp_path) == 2
    with pytest.raises(BlockingIOError):
        take(open_lock(tmp_path))
    os.fstat(cores)
