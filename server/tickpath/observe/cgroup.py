"""The CPU quota of the core's control group, and how often it held the core up. Version 1 and 2."""

from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

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


class _Mount(NamedTuple):
    """A hierarchy as it is mounted: `root`, the group that is seen at `point`."""

    root: PurePosixPath
    point: Path


def cpu_groups(pid: int, proc: Path = Path("/proc")) -> list[Path]:
    """The folders of the groups whose CPU quota counts for a process, from its own upwards, that have a cpu.stat."""
    try:
        group, is_v1 = _own_group((proc / str(pid) / "cgroup").read_text())
        mount = _mount((proc / "self" / "mountinfo").read_text(), is_v1)
    except OSError:
        return []
    if group is None or mount is None or not group.is_relative_to(mount.root):
        return []
    own = mount.point / group.relative_to(mount.root)
    above = [folder for folder in own.parents if folder.is_relative_to(mount.point)]
    return [folder for folder in (own, *above) if (folder / "cpu.stat").is_file()]


def _own_group(text: str) -> tuple[PurePosixPath | None, bool]:
    """Of /proc/PID/cgroup: the group, and whether it is of version 1. A machine that has both has its CPU controller in
    one of them, and names it where that is version 1."""
    unified = None
    for line in text.splitlines():
        number, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return PurePosixPath(path), True
        if number == "0" and not controllers:
            unified = PurePosixPath(path)
    return unified, False


def _mount(text: str, is_v1: bool) -> _Mount | None:
    """Of /proc/self/mountinfo: where that hierarchy is."""
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if (kind == "cgroup" and is_v1 and "cpu" in options.split(",")) or (kind == "cgroup2" and not is_v1):
            _, _, _, root, point, *_ = before.split(" ")
            return _Mount(PurePosixPath(root), Path(point))
    return None
