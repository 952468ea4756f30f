"""How often the CPU quota of the core's control group held the core up. Version 1 and 2."""

from pathlib import Path
from typing import Final

from tickpath.cgroups import cpu_groups
from tickpath.observe.process import KernelFile
from tickpath.observe.records import EventKind

_V1_UNIT_NS: Final = 1
_V2_UNIT_NS: Final = 1000


class Throttling:
    """What the quotas of a process's group, and of those above it as far as they can be seen, have cost it. `periods`:
    how many of the quota's periods (100 ms as a rule) ended before their time. Never raises: where there is no group,
    or no quota, everything stays 0."""

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        self._files = [KernelFile(folder / "cpu.stat") for folder in cpu_groups(pid, proc)]
        self.periods = 0
        self._throttled_ns = 0

    def totals(self) -> dict[EventKind, int]:
        """Time for which it was not allowed to run, of all its CPUs together."""
        periods = throttled_ns = 0
        for file in self._files:
            try:
                fields = dict(line.split() for line in file.read().decode().splitlines())
            except (OSError, ValueError):  # the group is gone
                continue
            periods += int(fields.get("nr_throttled", 0))
            throttled_ns += int(fields.get("throttled_time", 0)) * _V1_UNIT_NS
            throttled_ns += int(fields.get("throttled_usec", 0)) * _V2_UNIT_NS
        # Never downwards: a group may go, or the process be moved.
        self.periods = max(self.periods, periods)
        self._throttled_ns = max(self._throttled_ns, throttled_ns)
        return {EventKind.THROTTLED: self._throttled_ns}
