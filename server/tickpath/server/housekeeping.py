"""What the core does beside requests: ten times a second it notes its loop's lag and its queues and feeds the service
manager's watchdog, and once in a while collects what little there is."""

import asyncio
import gc
from collections.abc import Sequence
from time import monotonic_ns
from typing import Final, Protocol

from tickpath.observe.records import EventKind, GlobalCell, RecordWriter, VersionCell
from tickpath.server.sd_notify import ServiceManager
from tickpath.server.version import Version

PERIOD_S: Final = 0.1
PERIOD_NS: Final = 100_000_000

# Cycles come from closed connections and raised errors only, and everything made before serving is frozen: 5,000
# objects in cycles took 0.2 ms to collect, 50,000 took 1.9.
YOUNG_OBJECTS_MAX: Final = 5_000
# A scrape every 15 s must see the lag between two of them, a person who looks a minute later too.
LAG_WINDOW_NS: Final = 60_000_000_000
# What is later than this is an event. The loop's timers are good to a millisecond, and a long inline turn takes a
# quarter of one.
LAG_EVENT_NS: Final = 3_000_000


class Served(Protocol):
    """What is kept house for."""

    @property
    def versions(self) -> Sequence[Version]: ...

    @property
    def is_quiet(self) -> bool:
        """Whether nothing may hold the loop up that can wait."""
        ...


class Housekeeping:
    """Runs on the loop's thread from `start` until `stop`."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, records: RecordWriter, served: Served, manager: ServiceManager
    ) -> None:
        self._loop = loop
        self._records = records
        self._served = served
        self._manager = manager
        self._due_ns = 0
        self._lag_ns_max = 0  # in this window
        self._lag_ns_max_before = 0  # in the one before
        self._window_ends_ns = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Freeze all that exists now, take the collector off, and begin."""
        gc.collect()
        gc.freeze()
        gc.disable()
        # From here on, silence means that the loop stands still.
        self._records.set_cell(GlobalCell.HEARTBEAT_NS, monotonic_ns())
        self._schedule()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        gc.enable()
        gc.unfreeze()

    def _schedule(self) -> None:
        self._due_ns = monotonic_ns() + PERIOD_NS
        self._timer = self._loop.call_later(PERIOD_S, self._turn)

    def _beat(self, now_ns: int) -> None:
        if now_ns >= self._window_ends_ns:
            self._lag_ns_max_before, self._lag_ns_max = self._lag_ns_max, 0
            self._window_ends_ns = now_ns + LAG_WINDOW_NS
        # The loop's timers are good to a millisecond; less than that is not lag.
        lag_ns = now_ns - self._due_ns
        self._lag_ns_max = max(self._lag_ns_max, lag_ns)
        if lag_ns > LAG_EVENT_NS:
            self._records.event(EventKind.LOOP_LAG, self._due_ns, now_ns, lag_ns)
        self._records.set_cell(GlobalCell.HEARTBEAT_NS, now_ns)
        self._records.set_cell(GlobalCell.LOOP_LAG_NS, max(self._lag_ns_max, self._lag_ns_max_before))

    def _collect(self) -> None:
        start_ns = monotonic_ns()
        freed = gc.collect()
        end_ns = monotonic_ns()
        self._records.add(GlobalCell.GC_PAUSES)
        self._records.add(GlobalCell.GC_PAUSE_NS, end_ns - start_ns)
        self._records.event(EventKind.GC, start_ns, end_ns, freed)

    def _turn(self) -> None:
        now_ns = monotonic_ns()
        self._beat(now_ns)
        self._manager.feed(now_ns)
        for version in self._served.versions:
            self._records.set_version(version.place, VersionCell.QUEUE_DEPTH, version.executor.waiting_count())
        quiet = self._served.is_quiet
        self._records.set_cell(GlobalCell.QUIET, quiet)
        if gc.get_count()[0] > YOUNG_OBJECTS_MAX and not quiet:
            self._collect()
        self._schedule()
