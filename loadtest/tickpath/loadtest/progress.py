"""The line that is shown while a run lasts.

It is drawn by the process that waits for the sender, from the rows that both share: a few times a second the newest
rows are copied, and what they say is worked out from the copy. The sender does nothing for it.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from tickpath.loadtest.latency import P50, P99, nearest_rank
from tickpath.loadtest.report.text import microseconds
from tickpath.loadtest.rows import Rows
from tickpath.loadtest.run import NANOSECONDS, OK
from tickpath.loadtest.runner import ClosedLoop, Load
from tickpath.loadtest.words import rate_text

# So many of the newest rows: enough for a p99 that is not thin, and 320 KB to copy.
WINDOW: Final = 4096

BEFORE: Final = "connecting and warming up"


@dataclass(frozen=True, slots=True)
class Glance:
    """What the newest rows of a run say. `latency_ns` in order, of those that are answered."""

    elapsed_s: float
    answered_hz: float
    latency_ns: NANOSECONDS

    def describe(self, total_s: float) -> str:
        parts = [f"{min(self.elapsed_s, total_s):.1f}/{total_s:.1f} s"]
        if len(self.latency_ns):
            p50, p99 = (microseconds(nearest_rank(self.latency_ns, quantile)) for quantile in (P50, P99))
            parts += [f"{rate_text(self.answered_hz)}/s", f"p50 {p50} p99 {p99} µs"]
        return "  ".join(parts)


def glance(rows: Rows, now_ns: int) -> Glance:
    """At `rows` that the sender has come to, at least one, while it goes on to write."""
    newest = np.array(rows[-WINDOW:])
    answered = newest[(newest["code"] == OK) & (newest["done_ns"] > 0)]
    span_ns = int(answered["done_ns"].max() - newest["intended_ns"].min()) if len(answered) else 0
    return Glance(
        elapsed_s=max(0, now_ns - int(rows["intended_ns"][0])) / 1e9,
        answered_hz=len(answered) * 1e9 / span_ns if span_ns > 0 else 0.0,
        latency_ns=np.sort(answered["done_ns"] - answered["intended_ns"]),
    )


@contextmanager
def watched(load: Load, title: str, console: Console) -> Iterator[Load]:
    """The same load, whose progress is shown while it is measured; not shown where `console` is no terminal."""
    total_s = _seconds(load)
    columns = (TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.fields[told]}"))
    hidden = not console.is_terminal
    with Progress(*columns, console=console, auto_refresh=False, transient=True, disable=hidden) as progress:
        task = progress.add_task(title, total=total_s, told=BEFORE)
        progress.refresh()

        def show(rows: Rows) -> None:
            if len(rows) and not hidden:
                seen = glance(rows, time.monotonic_ns())
                progress.update(task, completed=seen.elapsed_s, told=seen.describe(total_s), refresh=True)

        yield replace(load, told=show)


def _seconds(load: Load) -> float:
    return load.loop.seconds if isinstance(load.loop, ClosedLoop) else int(load.loop.offsets_ns()[-1]) / 1e9


def leave_core(cpu: int | None) -> None:
    """Keep this process, which shows and waits, off the core that is the sender's, where there is another."""
    others = os.sched_getaffinity(0) - {cpu}
    if cpu is not None and others:
        os.sched_setaffinity(0, others)
