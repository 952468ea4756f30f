"""The host as its files in /proc and /sys tell it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Host:
    """`root`: what stands in for /. `cpus`: the processors a server is to run on: the one that it is pinned to, or all
    that it may use."""

    cpus: frozenset[int]
    root: Path = Path("/")

    @property
    def pinned(self) -> int | None:
        """The one processor it is to stay on; None: it is not pinned."""
        return next(iter(self.cpus)) if len(self.cpus) == 1 and len(os.sched_getaffinity(0)) > 1 else None

    def text(self, path: str) -> str | None:
        """What a file holds, without the space around it; None: there is none, or it can't be read."""
        try:
            return (self.root / path).read_text(errors="replace").strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """As `text`, where it is a whole number."""
        text = self.text(path)
        try:
            return None if text is None else int(text)
        except ValueError:
            return None

    def tells(self, path: str) -> bool:
        """Whether a file or folder is there, so that what is not in it is not on this machine either."""
        try:
            return (self.root / path).exists()
        except OSError:
            return False

    def glob(self, pattern: str) -> list[str]:
        """Paths that exist, in order, as the other methods take them."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.glob(pattern))

    def of_each_cpu(self, path: str) -> Iterator[tuple[int, str]]:
        """The text of /sys/devices/system/cpu/cpuN/`path`, for each processor that has it."""
        for cpu in sorted(self.cpus):
            if (text := self.text(f"sys/devices/system/cpu/cpu{cpu}/{path}")) is not None:
                yield cpu, text


def cpu_list(text: str) -> frozenset[int]:
    """`0-3,8` -> {0, 1, 2, 3, 8}. Empty where it is not such a list."""
    cpus: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            return frozenset()
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def told(cpus: frozenset[int]) -> str:
    """{0, 1, 2, 8} -> `0-2,8`."""
    parts: list[str] = []
    for cpu in sorted(cpus):
        if cpu - 1 in cpus:
            parts[-1] = f"{parts[-1].partition('-')[0]}-{cpu}"
        else:
            parts.append(str(cpu))
    return ",".join(parts)
