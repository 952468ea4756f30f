"""The core's process, seen from outside through /proc: it is asked nothing."""

import os
import select
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tickpath.observe.histograms import Ints
from tickpath.observe.kept import Word
from tickpath.observe.records import EventKind

KINDS: Final = ("voluntary", "nonvoluntary")
"""A thread that waits gives its CPU up; one that is pushed off it was still at work, and some request paid for that."""

# A status has 1.5 KiB. /proc/stat has 100 bytes a processor before what nobody here needs.
READ_BYTES: Final = 64 * 1024
TICK_NS: Final = 10**9 // os.sysconf("SC_CLK_TCK")

_PROC: Final = Path("/proc")
# Fields of /proc/PID/stat, from behind the name: it may hold spaces.
_MINOR_FAULTS: Final = 10 - 3
_MAJOR_FAULTS: Final = 12 - 3
_PROCESSOR: Final = 39 - 3
# user, nice, system, idle, iowait, irq, softirq, steal
_STEAL: Final = 8

Switches = tuple[int, int]
"""By KINDS."""

_COUNTED: Final = (Word.VOLUNTARY_SWITCHES, Word.PREEMPTED, Word.OTHERS_PREEMPTED)


class KernelFile:
    """A file of the kernel's, held open and read anew each time: half of the cost is finding it."""

    def __init__(self, path: Path) -> None:
        """Raises OSError where it can't be had."""
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> bytes:
        """All of it, as it is now. Raises OSError when what it tells of is gone."""
        return os.pread(self._fd, READ_BYTES, 0)

    def close(self) -> None:
        os.close(self._fd)


class CoreProcess:
    """A running process by its id. Raises ProcessLookupError where there is none. `cpu`: where its loop's thread ran
    when that was last looked at."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        try:
            self._stat = KernelFile(_PROC / str(pid) / "stat")
        except FileNotFoundError:
            raise ProcessLookupError(pid) from None
        self._faults = (0, 0)
        self.cpu = 0

    def alive(self) -> bool:
        """Whether it has not ended; a zombie has."""
        return not select.select([self.pidfd], [], [], 0)[0]

    def totals(self) -> dict[EventKind, int]:
        """Page faults of all its threads, ended ones too."""
        try:
            fields = self._stat.read().rpartition(b")")[2].split()
        except OSError:  # it has ended
            fields = []
        if fields:
            self._faults = (int(fields[_MINOR_FAULTS]), int(fields[_MAJOR_FAULTS]))
            self.cpu = int(fields[_PROCESSOR])
        return dict(zip((EventKind.MINOR_FAULTS, EventKind.MAJOR_FAULTS), self._faults, strict=True))


class Threads:
    """The context switches of the core's threads, counted in `counters` (kept.Word), which keep what ended threads
    had, and what an observer before this one saw. One thread."""

    def __init__(self, core: CoreProcess, counters: Ints) -> None:
        self._core = core
        self._counters = counters
        self._status: dict[str, KernelFile] = {}
        self._seen = self._look()
        # What an observer before this one saw is in there already, but for what came since.
        first = dict.fromkeys(self._seen, (0, 0))
        for word, count in zip(_COUNTED, self._added(first, self._seen), strict=True):
            counters[word] = max(counters[word], count)

    @property
    def switches(self) -> Switches:
        """Of all of them, by KINDS, as of the last look."""
        return int(self._counters[Word.VOLUNTARY_SWITCHES]), int(self._counters[Word.PREEMPTED])

    def totals(self) -> dict[EventKind, int]:
        """How often other threads than the loop's were pushed off their CPU."""
        before, self._seen = self._seen, self._look()
        for word, count in zip(_COUNTED, self._added(before, self._seen), strict=True):
            self._counters[word] += count
        return {EventKind.OTHERS_PREEMPTED: int(self._counters[Word.OTHERS_PREEMPTED])}

    def _added(self, before: dict[str, Switches], now: dict[str, Switches]) -> tuple[int, int, int]:
        """What has come, by _COUNTED."""
        voluntary = pushed = others = 0
        for task, switches in now.items():
            # Never downwards: a new thread may have the id of one that ended.
            came = [max(new - old, 0) for new, old in zip(switches, before.get(task, (0, 0)), strict=True)]
            voluntary += came[0]
            pushed += came[1]
            others += came[1] if task != str(self._core.pid) else 0
        return voluntary, pushed, others

    def _look(self) -> dict[str, Switches]:
        tasks = _PROC / str(self._core.pid) / "task"
        try:
            names = set(os.listdir(tasks))
        except OSError:
            names = set()
        for ended in self._status.keys() - names:
            self._status.pop(ended).close()
        seen = {}
        for name in names:
            try:
                if name not in self._status:
                    self._status[name] = KernelFile(tasks / name / "status")
                seen[name] = _switches(self._status[name].read())
            except OSError:  # it ends just now; the next look closes its file
                continue
        return seen


class LoopThread:
    """What kept the loop's thread from running though it could. It is the process's first thread."""

    def __init__(self, core: CoreProcess) -> None:
        task = _PROC / str(core.pid) / "task" / str(core.pid)
        self._preempted = _counting(task / "status", lambda text: _switches(text)[1])
        # Missing where the kernel was built without schedstats.
        self._waited_ns = _counting(task / "schedstat", lambda text: int(text.split()[1]))

    def totals(self) -> dict[EventKind, int]:
        seen = {EventKind.LOOP_PREEMPTED: self._preempted(), EventKind.RUN_QUEUE: self._waited_ns()}
        return {kind: total for kind, total in seen.items() if total is not None}


class Stolen:
    """Time that the hypervisor took from the CPU on which the loop's thread runs: counted for each CPU, added up as it
    goes from one to another, in `counters` (kept.Word)."""

    def __init__(self, core: CoreProcess, counters: Ints) -> None:
        self._core = core
        self._counters = counters
        self._of_cpu = _counting(_PROC / "stat", lambda text: _steal_ticks(text, core.cpu))
        self._cpu, self._ticks = core.cpu, self._of_cpu() or 0

    def totals(self) -> dict[EventKind, int]:
        cpu, ticks = self._core.cpu, self._of_cpu() or 0
        if cpu == self._cpu:
            self._counters[Word.STOLEN_NS] += max(0, ticks - self._ticks) * TICK_NS
        self._cpu, self._ticks = cpu, ticks
        return {EventKind.STOLEN: int(self._counters[Word.STOLEN_NS])}


def frequency_hz(cpu: int, devices: Path = Path("/sys/devices/system/cpu")) -> int:
    """How fast a CPU runs now; 0 where the machine does not tell, as virtual ones don't."""
    try:
        return int((devices / f"cpu{cpu}" / "cpufreq" / "scaling_cur_freq").read_text()) * 1000
    except (OSError, ValueError):
        return 0


def _counting(path: Path, parse: Callable[[bytes], int]) -> Callable[[], int | None]:
    """Reads a count from a file; None: there is none, or no more."""
    try:
        file = KernelFile(path)
    except OSError:
        return lambda: None

    def count() -> int | None:
        try:
            return parse(file.read())
        except (OSError, ValueError, IndexError):
            return None

    return count


def _switches(status: bytes) -> Switches:
    """From the two last lines of a thread's status."""
    lines = status.split()
    return int(lines[-3]), int(lines[-1])


def _steal_ticks(stat: bytes, cpu: int) -> int:
    start = stat.index(b"\ncpu%d " % cpu)
    return int(stat[start : stat.index(b"\n", start + 1)].split()[_STEAL])
