"""Options that several commands have, and what reads them: what is wrong, click says of the option."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

from tickpath.loadtest.command import CREDENTIALS

LOG_FORMAT: Final = click.Choice(["human", "json"])
Command = TypeVar("Command", bound=Callable[..., Any])


def credentials(command: Command) -> Command:
    """Options of whatever connects to a server: what it shows of itself, and whom it trusts."""
    for option in reversed(CREDENTIALS):
        command = option(command)
    return command


OBSERVER: Final = "http://127.0.0.1:9090"


def read_observer(_context: click.Context, _option: click.Parameter, text: str) -> str:
    """Those of `--observer host:9090` or the whole URL."""
    url = text if "://" in text else f"http://{text}"
    with bad_parameter():
        return check_observer(url)


def check_observer(url: str) -> str:
    """The URL without a slash at its end. Raises ValueError where it can't be one."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.netloc.endswith(":") or parts.query:
        raise ValueError(f'HOST:PORT or http://HOST:PORT expected, as `tickpath serve` says after "metrics at": {url}')
    return url.rstrip("/")


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


def read_model(_context: click.Context, _argument: click.Parameter, typed: tuple[str, ...]) -> str | None:
    """The one file or folder that is served, or none."""
    if len(typed) > 1:
        raise click.UsageError(
            f"one model or folder expected, {len(typed)} came: for several, put them under [[models]] of a FILE.toml "
            "(--config), or serve a folder of models, which docs/CONFIG.md describes"
        )
    return typed[0] if typed else None


def read_name(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    """A model's name."""
    from tickpath.console.settings import parse_name

    with bad_parameter():
        return None if text is None else parse_name(text)


def read_slow(_context: click.Context, _option: click.Parameter, text: str | None) -> float | str | None:
    """From how many ms on a request is slow, or in a word."""
    from tickpath.console.settings import parse_slow

    with bad_parameter():
        return None if text is None else parse_slow(text)


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


OBSERVER_OPTION: Final = click.option(
    "--observer",
    default=OBSERVER,
    callback=read_observer,
    envvar="TICKPATH_OBSERVER",
    metavar="URL",
    help=f"The server's observer, HOST:PORT or a URL; or TICKPATH_OBSERVER.  [default: {OBSERVER}]",
)
