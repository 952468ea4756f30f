"""Tables in which no name and no number is ever shortened."""

from typing import Final

from rich.console import Console
from rich.table import Table

# No table is as wide as this.
WIDE: Final = 100_000


def keep_whole(table: Table) -> Table:
    """A finished table that becomes wider than the terminal rather than shorten a cell. Print it with `crop=False`."""
    for column in table.columns:
        column.no_wrap = True
    table.width = Console(width=WIDE).measure(table).maximum
    return table
