"""The core's process, seen from outside through /proc: it is asked nothing."""

import os
import select
from pathlib import Path
from typing import Final

KINDS: Final = ("voluntary", "nonvoluntary")
"""A thread that waits gives its CPU up; one that is pushed off it was still at work, and some request paid for that."""


class CoreProcess:
    """A running process by its id. Raises ProcessLookupError where there is none."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self._totals = [0, 0]
        self._seen: dict[str, tuple[int, int]] = {}

    def alive(self) -> bool:
        """Whether it has not ended; a zombie has."""
        return not select.select([self.pidfd], [], [], 0)[0]

    def context_switches(self) -> tuple[int, int]:
        """Switches of all its threads, by KINDS: a count that keeps what ended threads had. One thread calls this."""
        seen = _task_switches(self.pid)
        for task, now in seen.items():
            before = self._seen.get(task, (0, 0))
            # Never downwards: a new thread may have the id of one that ended.
            self._totals = [
                total + max(new - old, 0) for total, new, old in zip(self._totals, now, before, strict=True)
            ]
        self._seen = seen
        return self._totals[0], self._totals[1]


def _task_switches(pid: int) -> dict[str, tuple[int, int]]:
    """(voluntary, nonvoluntary) by thread id; a thread that ends meanwhile is left out."""
    switches = {}
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            lines = (task / "status").read_text().splitlines()
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in lines)
        switches[task.name] = (int(fields["voluntary_ctxt_switches"]), int(fields["nonvoluntary_ctxt_switches"]))
    return switches
