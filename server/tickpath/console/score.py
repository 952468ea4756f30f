"""`tickpath score`: a table goes in, and a table of answers comes out."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tickpath.console.endings import DeviceLost, Failed, Misconfigured, ModelRefused, ending
from tickpath.console.options import SHAPES, bad_parameter, read_buckets

if TYPE_CHECKING:
    from tickpath.score.job import Listener

EXAMPLES = """
Examples:

\b
tickpath score model.onnx rows.parquet answers.parquet
tickpath score models/btc rows.parquet answers.parquet --cast --keep time,symbol
tickpath score model.onnx rows.csv answers.parquet --input x=bid,ask,'depth_*' --on-bad-row null
tickpath score btc@7 rows.parquet answers.parquet --config tickpath.toml --rows 8

A run that was broken off goes on where it was: type the same again.

Exit code: 0 it is written, 2 the configuration is wrong, 3 the model is refused, 6 a device is lost, 130 after Ctrl-C,
1 anything else.
"""


def read_inputs(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """Those of `--input x=a,b`, again for each input."""
    try:
        from tickpath.score.mapping import parse_sources
    except ModuleNotFoundError as missing:
        raise Failed(f"{missing.name} is not there: pip install 'tickpath[score]'") from None
    with bad_parameter():
        return parse_sources(texts)


@click.command(epilog=EXAMPLES)
@click.argument("model", metavar="MODEL", type=Path)
@click.argument("source", metavar="TABLE", type=Path)
@click.argument("out", metavar="OUT.parquet", type=Path)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    callback=read_inputs,
    metavar="INPUT=COLUMN,...|PREFIX*|NUMBER",
    help="Where an input is from; again for each.  [default: the column INPUT, or INPUT_0, INPUT_1, ...]",
)
@click.option("--keep", metavar="COLUMN,...|*", help="Columns to have beside the answers.  [default: none]")
@click.option("--cast", is_flag=True, help="Round numbers to the input's dtype. Else only what is held exactly goes.")
@click.option(
    "--on-bad-row",
    type=click.Choice(["fail", "null"]),
    default="fail",
    show_default=True,
    help="A row that has no answer ends it, or has null.",
)
@click.option(
    "--rows", type=click.IntRange(1, 65536), default=1, show_default=True, help="Rows a request, as your clients ask."
)
@click.option("--config", metavar="FILE.toml", type=Path, help="A server's; MODEL is then NAME or NAME@VERSION in it.")
@SHAPES
@click.option("--buckets", callback=read_buckets, metavar="1,2,8", help="Batch sizes.  [default: the server's]")
@click.option("--non-finite", type=click.Choice(["refuse", "flag", "pass"]), help="NaN and infinity.")
@click.option("--trust", is_flag=True, default=None, help="The file's maker may run code here: for .pt2 files that do.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def score(
    *,
    model: Path,
    source: Path,
    out: Path,
    inputs: dict[str, str],
    keep: str | None,
    cast: bool,
    on_bad_row: str,
    rows: int,
    config: Path | None,
    force: bool,
    **settings: object,
) -> None:
    """Answer every row of TABLE as a server of MODEL would.

    TABLE is a .parquet, .feather or .csv file; answers are those of a server, bit for bit."""
    from tickpath.engines import DeviceLostError, ModelRefusedError
    from tickpath.score.errors import ScoreError
    from tickpath.score.job import Wishes, score_file
    from tickpath.score.scorer import open_scorer
    from tickpath.server.config import ConfigError

    if out.exists() and not force:
        raise Failed(f"{out} is there already: give another name, or --force to write over it")
    if out.suffix != ".parquet":
        raise Failed(f"{out}: answers are written as Parquet: give a name that ends in .parquet")
    wishes = Wishes(
        inputs, cast, "null" if on_bad_row == "null" else "fail", tuple((keep or "").split(",")) * bool(keep)
    )
    with (
        ending(Failed, ScoreError),
        ending(Misconfigured, ConfigError),
        ending(ModelRefused, ModelRefusedError),
        ending(DeviceLost, DeviceLostError),
        open_scorer(model, rows=rows, config=config, **settings) as scorer,
        _told_when_interrupted(out),
        _listener() as listener,
    ):
        scored = score_file(scorer, source, out, wishes, listener)
    click.echo(f"{out}: {scored.rows} rows of {scorer.spec.describe()}")
    if scored.bad:
        click.echo(f"{scored.bad} rows have no answer; the first, {scored.first_bad}", err=True)


@contextmanager
def _told_when_interrupted(out: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        # click itself ends the line.
        click.echo(f"interrupted; what is scored is in {out}.parts: type the same again to go on", err=True, nl=False)
        raise


@contextmanager
def _listener() -> "Iterator[Listener]":
    """Lines and, on a terminal, a bar on stderr."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from tickpath.score.job import Listener

    console = Console(stderr=True, highlight=False, markup=False)
    columns = (TextColumn("rows"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("rows", total=None)
        yield Listener(
            say=lambda line: click.echo(line, err=True),
            begin=lambda total, done: progress.update(bar, total=total, completed=done),
            advance=lambda rows: progress.advance(bar, rows),
        )
