"""A shadow: a version that computes again what another has answered, on a thread of its own, and answers nobody.

The thread's work is Python and so takes the GIL now and then; that is its price, and why it is asked for by name. Of
the records' cells, the loop's thread counts what was dropped, this one what was compared: each has one writer.
"""

import logging
import os
import threading
from collections.abc import Set
from queue import Empty, Queue
from typing import Final

from tickpath.observe.records import RecordWriter, VersionCell
from tickpath.server.comparison import compare_answers
from tickpath.server.model import capture_lane
from tickpath.server.recent import with_own_inputs
from tickpath.server.verification import tolerance_of
from tickpath.server.version import Version
from tickpath.wire import Infer

log = logging.getLogger(__name__)

# What waits is memory, and what can't be kept up with is dropped and counted: a sample is enough to compare on.
WAITING_MAX: Final = 16


class ShadowRun:
    """Runs `version` on what it is offered, until `close`, on a lane of its own: clients may have a handle of that
    version too."""

    def __init__(self, version: Version, records: RecordWriter, cpus: Set[int] | None) -> None:
        self.version = version
        self._lane = capture_lane(version.config, version.engine, version.info.buckets)
        self._tolerance = tolerance_of(version.config, version.engine.spec)
        self._records = records
        self._cpus = cpus
        self._waiting: Queue[tuple[Infer, bytes] | None] = Queue(WAITING_MAX)
        self._thread = threading.Thread(target=self._work, name=f"tickpath-shadow-{version.name}", daemon=True)
        self._thread.start()

    def offer(self, infer: Infer, frame: bytes) -> None:
        """Compare later with `frame`, which answered `infer`; or not at all, where too many wait."""
        if self._waiting.full():
            self._count(VersionCell.SHADOW_DROPPED)
        else:  # nobody else puts, so there is still room
            self._waiting.put_nowait((with_own_inputs(infer), frame))

    def close(self) -> None:
        """End the thread after what it is at; what waits is dropped."""
        try:
            while True:
                self._waiting.get_nowait()
        except Empty:
            self._waiting.put(None)

    def join(self) -> None:
        """After `close`: wait for the thread, and give back its lane."""
        self._thread.join()
        self._lane.close()

    def _work(self) -> None:
        if self._cpus:
            os.sched_setaffinity(0, self._cpus)  # 0: this thread
        outputs = self.version.engine.spec.outputs
        while (answered := self._waiting.get()) is not None:
            change = compare_answers(self._lane, outputs, [answered], self._tolerance)
            self._count(VersionCell.SHADOW_COMPARED)
            if change.refused or not all(output.within for output in change.outputs):
                self._count(VersionCell.SHADOW_DIFFERED)

    def _count(self, cell: VersionCell) -> None:
        self._records.add_version(self.version.place, cell)
