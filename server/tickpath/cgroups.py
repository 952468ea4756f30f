"""Which control groups a process's CPU quota comes from. Version 1 and 2."""

from pathlib import Path, PurePosixPath
from typing import NamedTuple


class _Mount(NamedTuple):
    """A hierarchy as it is mounted: `root`, the group that is seen at `point`."""

    root: PurePosixPath
    point: PurePosixPath


def cpu_groups(pid: int | str, proc: Path = Path("/proc"), root: Path = Path("/")) -> list[Path]:
    """The folders of the groups whose CPU quota counts for a process, from its own upwards, that have a cpu.stat. Empty
    where they can't be seen. `root`: what stands in for / where they are mounted."""
    try:
        group, is_v1 = _own_group((proc / str(pid) / "cgroup").read_text(errors="replace"))
        mount = _mount((proc / "self" / "mountinfo").read_text(errors="replace"), is_v1)
    except (OSError, ValueError):  # ValueError: not as Linux writes it
        return []
    if group is None or mount is None or not group.is_relative_to(mount.root):
        return []
    point = root / mount.point.relative_to("/")
    own = point / group.relative_to(mount.root)
    above = [folder for folder in own.parents if folder.is_relative_to(point)]
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
            return _Mount(PurePosixPath(root), PurePosixPath(point))
    return None
