"""A comparison for people."""

from typing import Final

from rich import box
from rich.table import Table

from tickpath.loadtest.compare import Comparison, Difference

# On a machine that is too busy nearly every run has one: a few say what is wrong.
PROBLEMS_MAX: Final = 5


def comparison_parts(a: str, b: str, comparison: Comparison) -> list[object]:
    """Each percentile's ratios, what can be said of them, and why it can't be trusted where it can't."""
    problems = [f"INVALID: {problem}" for problem in comparison.problems[:PROBLEMS_MAX]]
    if more := len(comparison.problems[PROBLEMS_MAX:]):
        problems.append(f"INVALID: {more:,} more like these")
    words = [difference.describe() for difference in comparison.differences]
    return [*problems, f"A is {a}", f"B is {b}", _table(comparison), *words]


def _table(comparison: Comparison) -> Table:
    table = Table(box=box.SIMPLE_HEAD, caption_justify="left")
    for heading in ("", "A / A", "claimable from", "B / A", f"{comparison.confidence:.0%} interval"):
        table.add_column(heading, justify="right" if heading else "left")
    for difference in comparison.differences:
        table.add_row(*_cells(difference))
    table.caption = f"of {comparison.blocks} blocks of four runs, A B B A, and as many of A alone"
    return table


def _cells(difference: Difference) -> tuple[str, ...]:
    control, ratio = difference.control, difference.ratio
    return (
        difference.percentile,
        f"{control.mean:.3f} ({control.low:.3f} to {control.high:.3f})",
        f"{difference.claimable:.1%}",
        f"{ratio.mean:.3f}",
        f"{ratio.low:.3f} to {ratio.high:.3f}",
    )
