"""Where the files of a run lie: in memory, so that the sender waits for no disk; on a disk where they don't fit."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tickpath.loadtest.errors import LoadTestError
from tickpath.loadtest.rows import GAPS_MAX, Rows, create_gaps, create_rows
from tickpath.loadtest.run import GAP, ROW

MEMORY: Final = Path("/dev/shm")
# What a run may take of a machine's memory: 6.7 million requests, over a minute of the fastest closed loop.
MEMORY_BYTES_MAX: Final = 512 << 20
# Beside the rows: the gaps, the plan and what the sender says when it fails.
BESIDE_BYTES: Final = GAPS_MAX * GAP.itemsize + (1 << 20)


@dataclass(frozen=True, slots=True)
class Room:
    """A folder for one run, and the files in it that the sender shares with us."""

    folder: Path
    rows: Rows
    gaps: Rows


@contextmanager
def make_room(count: int, places: Sequence[Path] = ()) -> Iterator[Room]:
    """For `count` rows, in the first of `places` that has it; nothing is left there. Raises LoadTestError."""
    bytes_needed = count * ROW.itemsize + BESIDE_BYTES
    tried = places or _places(bytes_needed)
    for place in tried:
        if reserved := _reserve(place, count, bytes_needed):
            folder, room = reserved
            with folder:
                yield room
            return
    there = ", ".join(f"{_free_bytes(place) >> 20:,} MiB in {place}" for place in tried)
    raise LoadTestError(
        f"{count:,} requests need {bytes_needed >> 20:,} MiB for their rows, and there are {there}: make room, set "
        "TMPDIR to a folder that has it, or ask for less with a shorter --duration"
    )


def _places(bytes_needed: int) -> Sequence[Path]:
    disk = Path(tempfile.gettempdir())
    return (MEMORY, disk) if bytes_needed <= MEMORY_BYTES_MAX and MEMORY.is_dir() else (disk,)


def _reserve(place: Path, count: int, bytes_needed: int) -> tuple[tempfile.TemporaryDirectory[str], Room] | None:
    """None where there is too little room."""
    if _free_bytes(place) < bytes_needed:
        return None
    try:
        folder = tempfile.TemporaryDirectory(prefix="tickpath-loadtest-", dir=place)
    except OSError:
        return None
    try:
        path = Path(folder.name)
        return folder, Room(path, create_rows(path / "rows", count), create_gaps(path / "gaps"))
    except OSError:
        folder.cleanup()
        return None


def _free_bytes(place: Path) -> int:
    """0 where nothing can be put."""
    try:
        found = os.statvfs(place)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize
