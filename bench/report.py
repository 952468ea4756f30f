"""From samples to a table: medians over rounds, ratios within a round, the spread beside each."""

import platform
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from tickpath.loadtest.latency import Summary, summarise


@dataclass
class Row:
    """All rounds of one target: ns of each round trip, and the same round's yardstick (floor p50, engine p50) in ns."""

    kind: str
    model: str
    rounds: list[npt.NDArray[np.int64]] = field(default_factory=list)
    floor_ns: list[float] = field(default_factory=list)
    engine_ns: list[float] = field(default_factory=list)

    def summary(self) -> Summary:
        """Of all rounds together."""
        return summarise(np.concatenate(self.rounds))

    def p50s_ns(self) -> npt.NDArray[np.float64]:
        """Of each round."""
        return np.array([float(summarise(samples).p50_ns) for samples in self.rounds])

    def ratios(self, with_engine: bool) -> npt.NDArray[np.float64]:
        """p50 over the yardstick, round by round."""
        yardstick = np.array(self.floor_ns) + (np.array(self.engine_ns) if with_engine else 0.0)
        return self.p50s_ns() / yardstick


def table(rows: list[Row]) -> Table:
    """One line per target. Ratios are the median over rounds, with the lowest and the highest round beside it."""
    result = Table(title="Round trips, one at a time, from a blocking C client where the row names no other (µs)")
    for heading in ("model", "server", "p50", "p99", "p99.9", "max", "n", "p50 / floor", "p50 / (floor + engine)"):
        result.add_column(heading, justify="left" if heading in ("model", "server") else "right")
    for row in rows:
        summary = row.summary()
        result.add_row(
            row.model,
            row.kind,
            f"{np.median(row.p50s_ns()) / 1e3:.1f}",
            f"{summary.p99_ns / 1e3:.1f}",
            f"{summary.p999_ns / 1e3:.1f}{' (thin)' * summary.thin}",
            f"{summary.max_ns / 1e3:.0f}",
            f"{summary.count:,}",
            _ratio(row.ratios(with_engine=False)),
            _ratio(row.ratios(with_engine=True)),
        )
    return result


def _ratio(ratios: npt.NDArray[np.float64]) -> str:
    return f"{np.median(ratios):.2f} ({ratios.min():.2f}-{ratios.max():.2f})"


def machine() -> str:
    """Where and on what this was measured, in three lines."""
    cpu = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        "?",
    )
    cores = sum(line.startswith("processor") for line in Path("/proc/cpuinfo").read_text().splitlines())
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    ).stdout.strip()
    python = f"Python {platform.python_version()}, {_versions()}"
    return f"{cpu}, {cores} cores, Linux {platform.release()}\n{python}\ncommit {commit}"


def _versions() -> str:
    from importlib.metadata import version

    return ", ".join(f"{name} {version(name)}" for name in ("uvloop", "msgspec", "onnxruntime", "numpy"))


def print_report(rows: list[Row], notes: list[str]) -> None:
    console = Console(width=150)
    console.print(machine())
    console.print(table(rows))
    for note in notes:
        console.print(note)
