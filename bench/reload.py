"""`python -m bench.reload`: what a reload costs those who are served meanwhile.

A model is asked 2,000 times a second, open loop, and reloaded 200 times, of which every other one fails in a way of its
own. After the window of each reload comes one of the same length without, in the same run: so what the machine does to
both is in both. Latency counts from the intended send time.
"""

import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.request import urlopen

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import track
from rich.table import Table
from tests.failing import FAILING, FAILING_VERSION, SETTINGS, add_failing
from tests.operators import Operator, add_whole_version, remove_version
from tests.repositories import add_version, scale
from tests.serving import RunningServer, serve
from tests.traffic import Answered, Floats, Traffic

from bench.report import machine
from tickpath.loadtest.latency import summarise

# After the answer to a reload: the version before the one before is retired, which is part of it.
RETIRE_S: Final = 0.05
# Before a window: what the bench itself does to the disk is over.
SETTLE_S: Final = 0.02
HEADINGS: Final = ("window", "windows", "ms", "n", "p50", "p99", "p99.9", "longest: median", "of ten", "ever", "no CPU")
RSS_AT: Final = (10, 20, 50, 100, 150, 200)


@dataclass
class Windows:
    """Spans of one kind: when each began and ended, and how long the server's loop stood ready meanwhile and had no
    processor, in ns."""

    kind: str
    spans: list[tuple[int, int]] = field(default_factory=list)
    waited_ns: list[int] = field(default_factory=list)

    @contextmanager
    def span(self, server: RunningServer) -> Iterator[None]:
        start_ns, waited_ns = time.monotonic_ns(), _waited_ns(server)
        yield
        self.spans.append((start_ns, time.monotonic_ns()))
        self.waited_ns.append(_waited_ns(server) - waited_ns)

    @property
    def last_s(self) -> float:
        """How long the last one was."""
        start_ns, end_ns = self.spans[-1]
        return (end_ns - start_ns) / 1e9

    @property
    def waited_share(self) -> float:
        return sum(self.waited_ns) / sum(end - start for start, end in self.spans)

    def latencies(self, answers: list[Answered]) -> list[npt.NDArray[np.int64]]:
        """Of what was meant to be asked in each, in ns."""
        intended = np.array([answer.intended_ns for answer in answers])
        taken = np.array([answer.done_ns for answer in answers]) - intended
        order = np.argsort(intended, kind="stable")
        intended, taken = intended[order], taken[order]
        edges = [np.searchsorted(intended, span) for span in self.spans]
        return [taken[start:end] for start, end in edges]


@dataclass
class Run:
    """All that was seen."""

    good: Windows = field(default_factory=lambda: Windows("reload"))
    bad: Windows = field(default_factory=lambda: Windows("refused reload"))
    steady: Windows = field(default_factory=lambda: Windows("no reload"))
    rss_bytes: list[int] = field(default_factory=list)
    gaps_ns: list[float] = field(default_factory=list)
    traffic: Traffic | None = None


@click.command()
@click.option("--reloads", default=200, show_default=True, help="How many; every other one is refused.")
@click.option("--rate", default=2000.0, show_default=True, help="Requests a second.")
def main(reloads: int, rate: float) -> None:
    """Reload a model that is asked all the while, and compare with windows in which nothing is reloaded."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        run = _run(Path(folder), reloads, rate)
    _print(run, f"load average before {load:.1f}, after {os.getloadavg()[0]:.1f}")


def _run(folder: Path, reloads: int, rate: float) -> Run:
    run, models, admin = Run(), folder / "models", folder / "admin"
    add_version(models, "scale", "1", scale(1))
    (models / "scale" / "model.toml").write_text(SETTINGS)
    with (
        serve(folder, [], repository=str(models), admin=str(admin), observer_port=0) as server,
        Operator(admin) as operator,
        Traffic(server, "scale", _answering, rate) as run.traffic,
    ):
        run.traffic.wait_for(int(rate))
        for number in track(range(reloads), description="reloads", disable=not sys.stderr.isatty()):
            if number % 2:
                add_failing(models, "scale", list(FAILING)[number // 2 % len(FAILING)])
                _reload(run.bad, server, operator, expected=False)
                remove_version(models, "scale", FAILING_VERSION)
            else:
                add_whole_version(models, "scale", str(number // 2 + 2), scale(number // 2 + 2))
                _reload(run.good, server, operator, expected=True)
                run.gaps_ns.append(_gap_ns(server))
            time.sleep(SETTLE_S)
            with run.steady.span(server):
                time.sleep((run.bad if number % 2 else run.good).last_s)
            run.rss_bytes.append(server.rss_bytes())
    return run


def _answering(version: str, inputs: Floats) -> Floats:
    return inputs * np.float32(int(version))


def _reload(windows: Windows, server: RunningServer, operator: Operator, expected: bool) -> None:
    time.sleep(SETTLE_S)
    with windows.span(server):
        answer = operator.ask(do="reload", model="scale")
        time.sleep(RETIRE_S)
    assert answer["done"] is expected, answer["text"]


def _waited_ns(server: RunningServer) -> int:
    """How long the thread of the loop has stood in line for a processor so far."""
    pid = server.ready.pid
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1])


def _gap_ns(server: RunningServer) -> float:
    """What the server itself noted of the last reload."""
    page = urlopen(f"{server.ready.observer}/metrics", timeout=30).read().decode()
    found = re.search(r'^tickpath_reload_gap_seconds\{model="scale"\} (\S+)$', page, re.MULTILINE)
    assert found is not None
    return float(found[1]) * 1e9


def _print(run: Run, note: str) -> None:
    assert run.traffic is not None
    answers = run.traffic.answers
    steady_ns = summarise(np.concatenate(run.steady.latencies(answers))).p999_ns
    table = Table(title="Answers at a steady rate, from the intended send time (µs)")
    for heading in (
        "window",
        "windows",
        "ms",
        "n",
        "p50",
        "p99",
        "p99.9",
        "longest: median",
        "of ten",
        "ever",
        "no CPU",
    ):
        table.add_column(heading, justify="left" if heading == "window" else "right")
    for windows in (run.steady, run.good, run.bad):
        table.add_row(windows.kind, *_cells(windows, answers))
    console = Console(width=150)
    console.print(machine())
    console.print(table)
    console.print(
        f"{len(run.traffic.wrong)} wrong, refused or lost of {len(answers) + len(run.traffic.wrong):,}; {note}"
    )
    longest_ns = np.median([window.max() for window in run.good.latencies(answers)])
    console.print(f"median longest of a reload / steady p99.9: {longest_ns / steady_ns:.2f}")
    console.print(f"longest of a reload / longest of the window after it: {_paired(run, answers)}")
    gaps_us = np.array(run.gaps_ns) / 1e3
    console.print(
        f"tickpath_reload_gap_seconds: median {np.median(gaps_us):.0f} µs, of ten {np.quantile(gaps_us, 0.9):.0f}, "
        f"ever {gaps_us.max():.0f}"
    )
    rss = {at: run.rss_bytes[at - 1] / 1e6 for at in RSS_AT if at <= len(run.rss_bytes)}
    console.print("resident: " + ", ".join(f"{mb:.1f} MB after {at}" for at, mb in rss.items()))


def _paired(run: Run, answers: list[Answered]) -> str:
    reloads, after = (windows.latencies(answers) for windows in (run.good, run.steady))
    ratios = [one.max() / other.max() for one, other in zip(reloads, after[::2], strict=False)]
    return (
        f"median {np.median(ratios):.2f}, quartiles {np.quantile(ratios, 0.25):.2f} to {np.quantile(ratios, 0.75):.2f}"
    )


def _cells(windows: Windows, answers: list[Answered]) -> list[str]:
    found = windows.latencies(answers)
    summary = summarise(np.concatenate(found))
    longest = np.array([window.max() for window in found])
    length_ms = np.median([(end - start) / 1e6 for start, end in windows.spans])
    times_ns = (
        summary.p50_ns,
        summary.p99_ns,
        summary.p999_ns,
        np.median(longest),
        np.quantile(longest, 0.9),
        longest.max(),
    )
    counts = (f"{len(found)}", f"{length_ms:.0f}", f"{summary.count:,}")
    return [*counts, *(f"{each / 1e3:.0f}" for each in times_ns), f"{windows.waited_share:.1%}"]


if __name__ == "__main__":
    main()
