"""What is scored already of a table that takes long: parts on disk, each whole or not there.

    OUT.parts/job.json                          what is scored with what
    OUT.parts/000002-40000-SHA256.arrow         the third part, of 40,000 rows, and the checksum of its bytes

A part is written under another name, flushed, and renamed: a process that is killed leaves no half part. One process
at a time holds the folder's lock.
"""

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyarrow import ipc

from tickpath.score.errors import ScoreError

Job = dict[str, str]

_PART: Final = re.compile(r"([0-9]{6})-([0-9]+)-([0-9a-f]{64})\.arrow")


class Parts:
    """The parts of one job, in order. `rows`: how many rows are scored."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = 0
        self._files: list[Path] = []

    def take_up(self, job: Job, say: Callable[[str], object]) -> None:
        """Find what is there of this job, and drop what is of another or is damaged. Says what is taken up, and why
        what is not."""
        if why := self._difference(job):
            if any(self.folder.glob("*.arrow")):
                say(f"{self.folder} is of another job: {why}: starting anew")
            self._clear()
            self._write("job.json", msgspec.json.encode(job))
            return
        found = sorted(path for path in self.folder.iterdir() if _PART.fullmatch(path.name))
        for place, path in enumerate(found):
            if not _is_whole(path, place):
                say(f"{path} is damaged: going on from the part before it")
                break
            self._files.append(path)
            self.rows += _rows_of(path)
        for path in set(self.folder.iterdir()) - set(self._files) - {self.folder / "job.json"}:
            path.unlink()
        if self.rows:
            say(f"going on behind row {self.rows - 1}, where {self.folder} ends")

    def add(self, batch: Any) -> None:
        """Keep one more part. Raises OSError."""
        sink = pa.BufferOutputStream()
        with ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        data = sink.getvalue()
        name = f"{len(self._files):06}-{batch.num_rows}-{hashlib.sha256(data).hexdigest()}.arrow"
        self._files.append(self._write(name, data))
        self.rows += batch.num_rows

    def read(self) -> Iterator[Any]:
        """Each part as a pyarrow.Table."""
        for path in self._files:
            with pa.memory_map(str(path)) as source:
                yield ipc.open_file(source).read_all()

    def remove(self) -> None:
        """They are not needed any more."""
        shutil.rmtree(self.folder)

    def _difference(self, job: Job) -> str:
        """How the job whose parts these are differs; empty: not at all."""
        try:
            was = msgspec.json.decode((self.folder / "job.json").read_bytes(), type=Job)
        except (OSError, msgspec.MsgspecError):
            return "what it is of can't be read"
        keys = [key for key in job if was.get(key) != job[key]]
        return f"{keys[0]} was {was.get(keys[0])}, and is {job[keys[0]]}" if keys else ""

    def _clear(self) -> None:
        for path in self.folder.iterdir():
            path.unlink()

    def _write(self, name: str, data: Any) -> Path:
        path = self.folder / name
        with (self.folder / ".tmp").open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(file.name, path)
        return path


@contextmanager
def parts_beside(out: Path) -> Iterator[Parts]:
    """The folder of parts beside a file that is to be written, for this process alone. Raises ScoreError, OSError."""
    folder = out.with_name(f"{out.name}.parts")
    folder.mkdir(exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ScoreError(f"{folder}: another process is scoring to {out}: wait, or name another file") from None
        parts = Parts(folder)
        try:
            yield parts
        finally:
            if parts.rows == 0 and folder.exists():
                parts.remove()
    finally:
        os.close(lock)


def _rows_of(path: Path) -> int:
    return int(path.name.split("-")[1])


def _is_whole(path: Path, place: int) -> bool:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    found = _PART.fullmatch(path.name)
    return found is not None and int(found[1]) == place and found[3] == digest
