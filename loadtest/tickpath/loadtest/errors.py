"""What a load test can't do."""

from collections.abc import Iterator
from contextlib import contextmanager


class LoadTestError(Exception):
    """What was asked for can't be measured. The text is one line: what was expected, what came, what to do."""


class UsageError(LoadTestError):
    """What the flags ask for can't be; found before anything was sent."""


class StoppedError(Exception):
    """Runs were made, and no other can be. The text says why."""


@contextmanager
def as_usage() -> Iterator[None]:
    """What is wrong in here is wrong with the flags."""
    try:
        yield
    except LoadTestError as error:
        raise UsageError(str(error)) from None
