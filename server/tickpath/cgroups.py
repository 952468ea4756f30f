"""Which control groups a process's CPU quota and memory limit come from. Version 1 and 2."""

from pathlib import Path, PurePosixPath
from typing import NamedTuple


class _Mount(NamedTuple):
    """A hierarchy as it is mounted: `root`, the group that is seen at `point`."""

    root: PurePosixPath
    point: PurePosixPath


def cpu_groups(pid: int | str, proc: Path = Path("/proc"), root: Path = Path("/")) -> list[Path]:
    """The folders of the groups whose CPU quota counts for a process, from its own upwards, that have a cpu.stat. Empty
    where they can't be seen. `root`: what stands in for / where they are mounted."""
    return [folder for folder in _groups("cpu", pid, proc, root) if (folder / "cpu.stat").is_file()]


def memory_groups(pid: int | str, proc: Path = Path("/proc"), root: Path = Path("/")) -> list[Path]:
    """Likewise those whose memory limit counts for it, whether they have one or not."""
    return _groups("memory", pid, proc, root)


def _groups(controller: str, pid: int | str, proc: Path, root: Path) -> list[Path]:
    try:
        group, is_v1 = _own_group((proc / str(pid) / "cgroup").read_text(errors="replace"), controller)
        mount = _mount((proc / "self" / "mountinfo").read_text(errors="replace"), controller if is_v1 else None)
    except (OSError, ValueError):  # ValueError: not as Linux writes it
        return []
    if group is None or mount is None or not group.is_relative_to(mount.root):
        return []
    point = root / mount.point.relative_to("/")
    own = point / group.relative_to(mount.root)
    return [own, *(folder for folder in own.parents if folder.is_relative_to(point))]


def _own_group(text: str, controller: str) -> tuple[PurePosixPath | None, bool]:
    """Of /proc/PID/cgroup: the group, and whether it is of version 1. A machine that has both has the controller in one
    of them, and names it where that is version 1."""
    unified = None
    for line in text.splitlines():
        number, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return PurePosixPath(path), True
        if number == "0" and not controllers:
            unified = PurePosixPath(path)
    return unified, False


def _mount(text: str, controller: str | None) -> _Mount | None:
    """Of /proc/self/mountinfo: where that controller's hierarchy is; None: version 2's."""
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if (kind == "cgroup" and controller in options.split(",")) or (kind == "cgroup2" and controller is None):
            _, _, _, root, point, *_ = before.split(" ")
            return _Mount(PurePosixPath(root), PurePosixPath(point))
    return None
