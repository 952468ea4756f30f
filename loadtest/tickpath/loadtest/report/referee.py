"""LoadGen's rulings for people."""

from collections.abc import Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table

from tickpath.loadtest.referee import ROWS, Ruling
from tickpath.loadtest.report.text import microseconds
from tickpath.loadtest.report.whole import keep_whole


def referee_parts(rulings: Sequence[Ruling]) -> list[RenderableType]:
    """The table, why what is INVALID is so, and whether all was asked."""
    problems = [f"INVALID: {_name(each)}: {problem}" for each in rulings for problem in each.problems]
    ended = [f"interrupted after {len(rulings)} of {ROWS} rows"] if len(rulings) < ROWS else []
    return [referee_table(rulings), *problems, *ended]


def referee_table(rulings: Sequence[Ruling]) -> Table:
    """A line for each; what the null row takes is within the other of its scenario."""
    table = Table("LoadGen, µs", box=box.SIMPLE_HEAD, caption_justify="left")
    for heading in ("p50", "p99", "p99.9", "queries", "failed", "ruling"):
        table.add_column(heading, justify="right")
    for each in rulings:
        spans = map(microseconds, (each.p50_ns, each.p99_ns, each.p999_ns))
        counts = (f"{each.count:,}", f"{each.failed:,}")
        table.add_row(_name(each), *spans, *counts, "VALID" if each.valid else "INVALID")
    table.caption = "null answers at once: so much of each figure is LoadGen's and Python's own"
    return keep_whole(table)


def _name(ruling: Ruling) -> str:
    return f"{ruling.scenario} of {ruling.subject}"
