"""Options that several commands have."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

ADDRESS: Final = "127.0.0.1:7070"
AT: Final = click.option("--at", "address", metavar="ADDRESS", help=f"HOST:PORT or unix:PATH.  [default: {ADDRESS}]")


@contextmanager
def bad_parameter() -> Iterator[None]:
    """A ValueError is what click then says of the option."""
    try:
        yield
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _shapes(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> dict[str, object] | None:
    from tickpath.console.settings import parse_shape

    with bad_parameter():
        return dict(map(parse_shape, texts)) or None


SHAPES: Final = click.option(
    "--shape",
    "shapes",
    multiple=True,
    callback=_shapes,
    metavar="INPUT=N,120,3",
    help="Sizes that the file leaves open, N for the batch axis; again for each input.",
)
