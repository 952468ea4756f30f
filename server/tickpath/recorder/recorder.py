"""The recorder's loop: take what the core has put into the ring, and have it written.

A disk that takes nothing (it is full, it is gone), or a recording that holds all that it may, is tried again each
second, and said once a minute. Meanwhile entries wait in the ring, and when that is full, the core drops and counts
them; no reply waits for any of it.
"""

import logging
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from tickpath.logs import LogFormat
from tickpath.recorder.entries import seal
from tickpath.recorder.folder_lock import FolderLock
from tickpath.recorder.ring import RingReader
from tickpath.recorder.writing import FullError, Limits, SegmentWriter

log = logging.getLogger(__name__)

# The ring holds far more than comes in so short a time, and an idle recorder wakes up no more often than the observer.
PERIOD_S: Final = 0.02
# What one write takes: few calls for many entries, and little that has to be written again if it fails.
BATCH_BYTES: Final = 1 << 20
# What a machine that dies may lose. An fdatasync can take a disk 100 ms: more often, and it does nothing else.
SYNC_S: Final = 1.0
RETRY_S: Final = 1.0
WARN_S: Final = 60.0


class Settings(msgspec.Struct, frozen=True):
    """What the core tells its recorder."""

    ring_fd: int
    lock_fd: int
    folder: str
    server: str
    run: str
    core_pid: int
    limits: Limits
    log_format: LogFormat = "human"


class Recorder:
    """Moves entries from the ring to the files. One thread; times come in."""

    def __init__(self, ring: RingReader, writer: SegmentWriter, recovered: int | None) -> None:
        """`recovered`: the last sequence that is in a file already; None where the folder could not be had yet."""
        self._ring = ring
        self._writer = writer
        self._last = recovered
        self._retry_s = 0.0
        self._warn_s = 0.0
        self._failing = False
        self._sync_s = 0.0

    def move(self, now_s: float) -> bool:
        """Write what there is, up to a batch. Returns whether there may be more to do at once."""
        if now_s < self._retry_s:
            return False
        try:
            moved = self._move_batch()
            if now_s >= self._sync_s:
                self._sync_s = now_s + SYNC_S
                self._writer.sync()
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            self._fail(f"{error.strerror or error}{where}", now_s)
            return False
        except FullError as error:
            self._fail(str(error), now_s)
            return False
        if moved and self._failing:
            self._failing, self._warn_s = False, 0.0
            log.warning("recording goes on")
        return moved

    def finish(self) -> None:
        """The core puts nothing more: write the rest, and say what could not be."""
        self._retry_s = self._sync_s = 0.0
        while self.move(time.monotonic()):
            pass
        try:
            self._writer.close()
        except OSError as error:
            log.warning("the last segment could not be closed: %s", error.strerror)
        lost = self._give_up()
        if lost:
            log.warning("%d entries could not be written any more", lost)

    def _move_batch(self) -> bool:
        chunk, taken = self._ring.peek(BATCH_BYTES)
        if not chunk:
            return False
        if self._last is None:
            self._last = self._writer.recover()
        batch = seal(chunk, self._last)
        self._writer.description = batch.description or self._writer.description
        if batch.fresh:
            self._writer.append(batch.entries, batch.fresh)
        self._last = batch.last
        # Those that a killed recorder had written and not told of are told now.
        self._ring.done(taken, written=batch.total)
        return True

    def _fail(self, why: str, now_s: float) -> None:
        self._failing = True
        self._retry_s = now_s + RETRY_S
        if now_s >= self._warn_s:
            self._warn_s = now_s + WARN_S
            log.warning(
                "nothing can be recorded: %s; what does not fit in memory is dropped and counted, and it is tried "
                "again each second",
                why,
            )

    def _give_up(self) -> int:
        lost = 0
        while True:
            chunk, taken = self._ring.peek(BATCH_BYTES)
            if not chunk:
                return lost
            count = seal(chunk).total
            self._ring.done(taken, lost=count)
            lost += count


def run(settings: Settings) -> int:
    """Record until the core ends or says that it will, or SIGTERM comes; then write the rest. Returns 0, or 1 where the
    folder can't be read, which is said."""
    stopping: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _frame: stopping.append(got))
    try:
        core = os.pidfd_open(settings.core_pid)
    except ProcessLookupError:
        return 0  # it ended before we began
    poll = select.poll()
    poll.register(core, select.POLLIN)
    folder = Path(settings.folder)
    lock = FolderLock(folder, settings.lock_fd)
    writer = SegmentWriter(folder, settings.server, settings.run, settings.limits, lock)
    try:
        ring = RingReader(settings.ring_fd)
        recorder = Recorder(ring, writer, writer.recover() if _is_had(lock) else None)
    except OSError as error:
        log.error("%s: %s", settings.folder, error.strerror)
        return 1
    try:
        os.write(sys.stdout.fileno(), msgspec.json.encode({"recorder": settings.folder}) + b"\n")
    except BrokenPipeError:  # the core has ended in the middle of its start
        return 0
    while not stopping and not ring.ended:
        if not recorder.move(time.monotonic()) and poll.poll(PERIOD_S * 1e3):
            break
    recorder.finish()
    return 0


def _is_had(lock: FolderLock) -> bool:
    """A folder that can't be had is said, and tried again, as soon as there is something to write."""
    try:
        lock.keep()
    except OSError:
        return False
    return True
