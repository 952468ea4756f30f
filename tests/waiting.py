"""Waiting for what tells nobody when it comes, such as another process's doing: it is asked for again and again."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

PATIENCE_S: Final = 60.0

Value = TypeVar("Value")


def wait_until(happens: Callable[[], Value], what: str | Callable[[], str]) -> Value:
    """Ask until it is so; its value then. Fails after a minute, and says what never came, or how things stand then."""
    end_s = time.monotonic() + PATIENCE_S
    while not (value := happens()):
        assert time.monotonic() < end_s, f"never: {what if isinstance(what, str) else what()}"
        time.sleep(0.05)
    return value
