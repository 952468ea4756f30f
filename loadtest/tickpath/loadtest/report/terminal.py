"""Runs for people, as rich draws them."""

from collections.abc import Sequence
from typing import Final

from rich import box
from rich.console import RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tickpath.loadtest.report.figures import Figures
from tickpath.loadtest.report.text import (
    READING,
    THIN,
    cells,
    connections_line,
    ending_line,
    failed,
    gaps_line,
    interval_line,
    microseconds,
    outcome_line,
    skipped_line,
    subject,
)
from tickpath.loadtest.report.whole import keep_whole
from tickpath.loadtest.series import NotRun

ROWS: Final = ("p50", "p90", "p99", "p99.9", "p99.99", "max", "mean", "samples")
OVERVIEW: Final = ("p50", "p99", "p99.9", "max")


def report_parts(all_figures: Sequence[Figures], not_run: NotRun | None = None) -> list[RenderableType]:
    """One run in full; several in a line each; and what was not run."""
    rest = [Panel(Text(not_run.describe()), border_style="bold red")] if not_run else []
    if len(all_figures) == 1:
        return [*run_parts(all_figures[0]), *rest]
    notes = [Text(line) for figures in all_figures for line in _notes(figures)]
    banners = [banner for figures in all_figures for banner in _banners(figures, f"{figures.run.schedule}: ")]
    return [Text(subject(all_figures[0])), overview_table(all_figures), *notes, *banners, *rest]


def run_parts(figures: Figures) -> list[RenderableType]:
    """What was asked, what came of it, whether it can be trusted, the percentiles, and where the time went."""
    lines = [
        subject(figures),
        f"{figures.run.schedule}, {connections_line(figures)}",
        outcome_line(figures),
        skipped_line(figures),
        ending_line(figures),
    ]
    parts: list[RenderableType] = [Text(line) for line in lines if line]
    parts += _banners(figures)
    if figures.distributions:
        parts.append(latency_table(figures))
    if figures.stage_means_ns:
        parts.append(stages_table(figures))
    return parts


def latency_table(figures: Figures) -> Table:
    """Corrected and uncorrected side by side, and what the sender added."""
    table = _numbers("µs", *figures.distributions)
    told = [cells(summary) for summary in figures.distributions.values()]
    for row in ROWS:
        table.add_row(row, *(column[row] for column in told))
    captions = [READING, gaps_line(figures)]
    if figures.latency:
        captions.append(interval_line(figures.latency))
    if any("~" in cell for column in told for cell in column.values()):
        captions.append(THIN)
    table.caption = "\n".join(captions)
    return keep_whole(table)


def stages_table(figures: Figures) -> Table:
    """Percentiles do not add up, means do: the last line is the mean latency, measured apart from the others."""
    assert figures.latency is not None
    total_ns = figures.latency.mean_ns
    table = _numbers("where it went", "mean, µs", "share")
    for name, mean_ns in figures.stage_means_ns.items():
        table.add_row(name, microseconds(mean_ns), f"{mean_ns / total_ns:.1%}")
    table.add_section()
    table.add_row("latency", microseconds(total_ns), "")
    return keep_whole(table)


def overview_table(all_figures: Sequence[Figures]) -> Table:
    """A line for each run."""
    table = _numbers("µs", *OVERVIEW, "done/s", "failed")
    for figures in all_figures:
        told = cells(figures.latency) if figures.latency else dict.fromkeys(OVERVIEW, "-")
        name = Text(figures.run.schedule)
        if figures.run.ending != "complete":
            name.append(f" ({figures.run.ending})")
        if figures.invalid:
            name.append(" INVALID", "bold red")
        table.add_row(
            name, *(told[column] for column in OVERVIEW), f"{figures.completed_hz:,.0f}", f"{failed(figures):,}"
        )
    table.caption = THIN
    return keep_whole(table)


def _notes(figures: Figures) -> list[str]:
    return [f"{figures.run.schedule}: {line}" for line in (skipped_line(figures), ending_line(figures)) if line]


def _banners(figures: Figures, where: str = "") -> list[RenderableType]:
    return [Panel(Text(f"INVALID: {where}{line}"), border_style="bold red") for line in figures.invalid]


def _numbers(first: str, *columns: str) -> Table:
    table = Table(first, *columns, box=box.SIMPLE_HEAD, caption_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    return table
