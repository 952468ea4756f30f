"""All that the observer looks at of the core's process from outside, and what it has seen."""

from collections.abc import Mapping
from dataclasses import dataclass

from tickpath.observe.cgroup import Throttling
from tickpath.observe.histograms import Ints
from tickpath.observe.jitter import Jitter
from tickpath.observe.process import CoreProcess, LoopThread, Stolen, Switches, Threads, frequency_hz
from tickpath.observe.records import EventKind


@dataclass(frozen=True)
class Seen:
    """What was seen until one moment: `totals` of each kind of event, `switches` by process.KINDS, `throttled_periods`
    of the CPU quota, and how fast the CPU of the loop's thread runs (0: the machine does not tell)."""

    totals: Mapping[EventKind, int]
    switches: Switches
    throttled_periods: int
    cpu_hz: int


class Watched:
    """A core's process under observation; what the kernel does not keep is counted in `counters` (kept.Word). One
    thread."""

    def __init__(self, core: CoreProcess, counters: Ints) -> None:
        self._core = core
        self._threads = Threads(core, counters)
        self._throttling = Throttling(core.pid)
        self.jitter = Jitter((core, LoopThread(core), self._throttling), (self._threads, Stolen(core, counters)))

    def seen(self) -> Seen:
        """As of the last sample."""
        cpu_hz = frequency_hz(self._core.cpu)
        return Seen(self.jitter.totals, self._threads.switches, self._throttling.periods, cpu_hz)
