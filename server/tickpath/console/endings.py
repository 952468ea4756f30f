"""How a command ends that can't do what was asked: one line, and an exit code of its own."""

from collections.abc import Iterator
from contextlib import contextmanager

import click


class Failed(click.ClickException):
    """Ends a command with one line."""

    exit_code = 1


class Misconfigured(Failed):
    """What was asked for can't be."""

    exit_code = 2


class ModelRefused(Failed):
    """A model can't be served."""

    exit_code = 3


class AddressRefused(Failed):
    """An address can't be listened on."""

    exit_code = 4


class DeviceLost(Failed):
    """A device can't be used any more by this process; the next one may be able to."""

    exit_code = 6  # 5 is `loadtest`'s


@contextmanager
def ending(end: type[Failed], *kinds: type[Exception]) -> Iterator[None]:
    """Let exceptions of `kinds` end the command."""
    try:
        yield
    except kinds as error:
        raise end(str(error)) from None
