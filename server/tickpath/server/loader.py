"""Loads and retires versions while others serve, so that no reply waits for it.

Rules
- A file is proven in a process of its own first (proof.py): what kills a runtime kills that, and what takes time takes
  another processor's, at the lowest priority.
- What is proven is loaded here on one thread, off the serving processor. The runtime leaves the GIL to the loop for
  nearly all of that. The thread keeps its priority: one of low priority that holds the GIL would hold up who serves.
"""

import asyncio
import fcntl
import logging
import os
from collections.abc import Callable, Iterator, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

from tickpath.engines import Engine, ModelRefusedError
from tickpath.server.config import ModelConfig
from tickpath.server.lane import Lane
from tickpath.server.model import PreparedModel, prepare_model
from tickpath.server.proof import Proven, Prover, Refused, Task
from tickpath.server.version import Version

log = logging.getLogger(__name__)

T = TypeVar("T")

MEMORY_FOLDER: Final = "/dev/shm"
FOLDER_PREFIX: Final = "tickpath-load-"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that was proven and is prepared; `proven` says what was seen."""

    prepared: PreparedModel
    proven: Proven


class Loader:
    """One load at a time, on a thread of its own, on `cpus` (None: anywhere)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, cpus: Set[int] | None, frame_bytes_max: int) -> None:
        self._loop = loop
        self._cpus = cpus
        self._frame_bytes_max = frame_bytes_max
        self._prover = Prover(cpus=cpus)
        remove_abandoned()
        self._thread = ThreadPoolExecutor(1, "tickpath-loader", initializer=_pin, initargs=(cpus,))

    async def run(self, work: Callable[[], T]) -> T:
        """Do something that takes time on the loader's thread."""
        return await self._loop.run_in_executor(self._thread, work)

    async def load(self, config: ModelConfig) -> Loaded:
        """Prove, read, capture and warm. Raises ModelRefusedError."""
        return await self.run(lambda: self._load(config))

    async def retire(self, version: Version) -> None:
        """Give back what a version holds, which nothing runs any more."""
        version.executor.close()
        await self.run(lambda: _free(version))

    async def discard(self, prepared: PreparedModel) -> None:
        """Give back a model that is not to be served after all."""
        await self.run(lambda: _drop(prepared.lane, prepared.engine))

    def close(self) -> None:
        """Begin nothing more, and wait for nothing."""
        self._prover.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _load(self, config: ModelConfig) -> Loaded:
        with memory_folder() as folder:
            try:
                verdict = self._prover.prove(Task(config, self._frame_bytes_max, folder))
            except OSError as error:
                raise ModelRefusedError(f"{config.path}: no process to prove it in: {error.strerror}") from None
            if isinstance(verdict, Refused):
                raise ModelRefusedError(verdict.text)
            prepared = prepare_model(config, self._cpus, self._frame_bytes_max, verdict.known)
            return Loaded(prepared, verdict)


@contextmanager
def memory_folder() -> Iterator[str | None]:
    """For a model that is taken apart. In memory, since the runtime may go on reading the weights from there when the
    file has no name any more; None where there is no such place. It is locked for as long as this process is at it."""
    if not os.access(MEMORY_FOLDER, os.W_OK):
        yield None
        return
    with TemporaryDirectory(prefix=FOLDER_PREFIX, dir=MEMORY_FOLDER) as folder, _locked(folder):
        yield folder


def remove_abandoned() -> None:
    """Give back the memory of what a server left there that was killed during a load: its successor may need it."""
    for folder in Path(MEMORY_FOLDER).glob(f"{FOLDER_PREFIX}*"):
        with suppress(OSError), _locked(folder):  # one that somebody is at, or another user's
            rmtree(folder)


@contextmanager
def _locked(folder: str | Path) -> Iterator[None]:
    """A lock that ends with this process, however that ends. Raises OSError."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(opened)


def _free(version: Version) -> None:
    version.executor.join()
    _drop(version.lane, version.engine)


def _drop(lane: Lane, engine: Engine) -> None:
    """On the loader's thread, where it holds up nobody: the runtime frees a large model in milliseconds."""
    try:
        lane.close()
    finally:
        engine.close()


def _pin(cpus: Set[int] | None) -> None:
    if cpus:
        os.sched_setaffinity(0, cpus)  # 0: this thread
