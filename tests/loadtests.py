"""The load test as a command of its own, watched through what anyone may read: its sender's rows."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from tickpath.loadtest.plan import Plan
from tickpath.loadtest.rows import open_rows

LOADTEST: Final = (sys.executable, "-m", "tickpath.cli", "loadtest")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """To its end."""
    return subprocess.run([*LOADTEST, *arguments], capture_output=True, text=True, timeout=100, check=False)


def start(*arguments: str) -> subprocess.Popen[str]:
    """Begin; what it says is read with `communicate`."""
    return subprocess.Popen([*LOADTEST, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_sender(command: subprocess.Popen[str], *others: Path) -> Path:
    """The plan of its sender, once there is one that has none of the `others`, nor just tries out whether there is an
    answer."""
    children = Path(f"/proc/{command.pid}/task/{command.pid}/children")
    while True:
        assert command.poll() is None
        for child in children.read_text().split():
            try:
                *_, last = Path(f"/proc/{child}/cmdline").read_text().rstrip("\0").split("\0")
                if last.endswith("plan.json") and Path(last) not in others and _measures(Path(last)):
                    return Path(last)
            except OSError:  # it has ended
                continue


def _measures(plan: Path) -> bool:
    return msgspec.json.decode(plan.read_bytes(), type=Plan).warmup > 1


def wait_for_answers(command: subprocess.Popen[str], count: int, *others: Path) -> Path:
    """Until the sender of `wait_for_sender` has that many; returns its plan."""
    plan = wait_for_sender(command, *others)
    rows = open_rows(plan.with_name("rows"))
    while np.count_nonzero(rows["done_ns"]) < count:
        assert command.poll() is None
    return plan
