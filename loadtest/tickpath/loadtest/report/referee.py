"""LoadGen's rulings for people."""

from collections.abc import Sequence

from rich import box
from rich.table import Table

from tickpath.loadtest.loadgen import Ruling
from tickpath.loadtest.report.text import microseconds


def referee_table(rulings: Sequence[Ruling]) -> Table:
    """A line for each; what the null row takes is within the other of its scenario."""
    table = Table("LoadGen, µs", box=box.SIMPLE_HEAD, caption_justify="left")
    for heading in ("p50", "p99", "p99.9", "queries", "failed", "ruling"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in rulings:
        spans = map(microseconds, (each.p50_ns, each.p99_ns, each.p999_ns))
        counts = (f"{each.count:,}", f"{each.failed:,}")
        table.add_row(f"{each.scenario} of {each.subject}", *spans, *counts, "VALID" if each.valid else "INVALID")
    table.caption = "null answers at once: so much of each figure is LoadGen's and Python's own"
    return table
