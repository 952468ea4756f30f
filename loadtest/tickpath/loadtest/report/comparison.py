"""A comparison for people."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from rich import box
from rich.table import Table

from tickpath.loadtest.compare import Comparison, Difference, Side
from tickpath.loadtest.latency import P50, P99, nearest_rank
from tickpath.loadtest.report.text import microseconds
from tickpath.loadtest.report.whole import keep_whole
from tickpath.loadtest.run import Run

# On a machine that is too busy nearly every run has one: a few say what is wrong.
PROBLEMS_MAX: Final = 5


def comparison_parts(a: str, b: str, comparison: Comparison) -> list[object]:
    """Each percentile's ratios, what can be said of them, and why it can't be trusted where it can't."""
    problems = [f"INVALID: {problem}" for problem in comparison.problems[:PROBLEMS_MAX]]
    if more := len(comparison.problems[PROBLEMS_MAX:]):
        problems.append(f"INVALID: {more:,} more like these")
    words = [difference.describe() for difference in comparison.differences]
    if comparison.stopped:
        words.append(f"The comparison ended early: {comparison.stopped}")
    table = _table(comparison) if comparison.differences else _runs_table(comparison.runs)
    return [*problems, f"A is {a}", f"B is {b}", table, *words]


def _table(comparison: Comparison) -> Table:
    table = Table(box=box.SIMPLE_HEAD, caption_justify="left")
    for heading in ("", "A / A", "claimable from", "B / A", f"{comparison.confidence:.0%} interval"):
        table.add_column(heading, justify="right" if heading else "left")
    for difference in comparison.differences:
        table.add_row(*_cells(difference))
    table.caption = f"of {comparison.blocks} blocks of four runs, A B B A, and as many of A alone"
    return keep_whole(table)


def _runs_table(runs: Sequence[tuple[Side, Run]]) -> Table:
    """What the runs were like, where they are too few to be compared."""
    table = Table(box=box.SIMPLE_HEAD, caption_justify="left")
    for heading in ("", "runs", "p50, µs", "p99, µs"):
        table.add_column(heading, justify="right" if heading else "left")
    for side in ("A", "B"):
        latencies_ns = [np.sort(run.latency_ns()) for whose, run in runs if whose == side and len(run.answered)]
        if latencies_ns:
            p50, p99 = (
                microseconds(float(np.median([nearest_rank(each_ns, quantile) for each_ns in latencies_ns])))
                for quantile in (P50, P99)
            )
            table.add_row(side, f"{len(latencies_ns):,}", p50, p99)
    table.caption = "medians of the runs that were made: no comparison"
    return keep_whole(table)


def _cells(difference: Difference) -> tuple[str, ...]:
    control, ratio = difference.control, difference.ratio
    return (
        difference.percentile,
        f"{control.mean:.3f} ({control.low:.3f} to {control.high:.3f})",
        f"{difference.claimable:.1%}",
        f"{ratio.mean:.3f}",
        f"{ratio.low:.3f} to {ratio.high:.3f}",
    )
