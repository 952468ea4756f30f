"""How much memory this process can still take: of the machine's, and of what its control groups allow."""

from pathlib import Path
from typing import Final

from tickpath.cgroups import memory_groups

# Version 2, then version 1, where "no limit" is a number that no machine has.
_LIMIT_FILES: Final = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
_FILE_PAGES: Final = ("inactive_file", "active_file")


def available_bytes(proc: Path = Path("/proc"), root: Path = Path("/")) -> int | None:
    """Without swapping, and without being ended for it. None where nothing tells. `root`: what stands in for / where
    control groups are mounted."""
    told = [_machine_bytes(proc), *(_group_bytes(folder) for folder in memory_groups("self", proc, root))]
    return min((each for each in told if each is not None), default=None)


def _machine_bytes(proc: Path) -> int | None:
    kib = _numbers(proc / "meminfo").get("MemAvailable")
    return None if kib is None else kib * 1024


def _group_bytes(folder: Path) -> int | None:
    """What is left below the limit, and what it would give back: pages of files. None where there is no limit."""
    for names in _LIMIT_FILES:
        try:
            limit, used = (int((folder / name).read_text()) for name in names)
        except (OSError, ValueError):  # ValueError: "max"
            continue
        stat = _numbers(folder / "memory.stat")
        # Version 1 counts what is below a group under names of its own.
        given_back = sum(stat.get(f"total_{name}", stat.get(name, 0)) for name in _FILE_PAGES)
        return max(0, limit - used + given_back)
    return None


def _numbers(path: Path) -> dict[str, int]:
    """Of a file with a name and a number in each line; empty where there is none, or another."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
        return {words[0].rstrip(":"): int(words[1]) for words in lines}
    except (OSError, ValueError, IndexError):
        return {}
