"""Options that several commands have, and what reads them: what is wrong, click says of the option."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

ADDRESS: Final = "127.0.0.1:7070"
LOG_FORMAT: Final = click.Choice(["human", "json"])
AT: Final = click.option("--at", "address", metavar="ADDRESS", help=f"HOST:PORT or unix:PATH.  [default: {ADDRESS}]")


def read_shapes(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> dict[str, object] | None:
    """Those of `--shape x=N,120,3`, again for each input."""
    from tickpath.console.settings import parse_shape

    with bad_parameter():
        return dict(map(parse_shape, texts)) or None


def read_buckets(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    """Those of `--buckets 1,2,8`."""
    from tickpath.console.settings import parse_buckets

    with bad_parameter():
        return None if text is None else parse_buckets(text)


def read_name(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    """A model's name."""
    from tickpath.console.settings import parse_name

    with bad_parameter():
        return None if text is None else parse_name(text)


def read_targets(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    """Those of `--gpu sm89,sm120`."""
    from tickpath.engines.compile import parse_targets

    with bad_parameter():
        return None if text is None else parse_targets(text)


@contextmanager
def bad_parameter() -> Iterator[None]:
    """A ValueError is what click then says of the option."""
    try:
        yield
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


SHAPES: Final = click.option(
    "--shape",
    "shapes",
    multiple=True,
    callback=read_shapes,
    metavar="INPUT=N,120,3",
    help="Sizes that the file leaves open, N for the batch axis; again for each input.",
)
