"""The targets there are, by name."""

import importlib
from collections.abc import Callable, Mapping
from typing import Final

from tickpath.loadtest.echo import EchoTarget
from tickpath.loadtest.errors import LoadTestError
from tickpath.loadtest.target import Options, Target
from tickpath.loadtest.tickpath_target import TickpathTarget

BUILT_IN: Final[Mapping[str, Callable[[Options], Target]]] = {"tickpath": TickpathTarget, "echo": EchoTarget}


def check_kind(kind: str) -> None:
    """Whether it is one by its form; nothing is imported. Raises LoadTestError."""
    module, _, name = kind.partition(":")
    if kind not in BUILT_IN and not (module and name):
        raise LoadTestError(f"a target is tickpath, echo or module:Class, {kind!r} came")


def make_target(kind: str, options: Options) -> Target:
    """`kind` is "tickpath", "echo" or "module:Class". Raises LoadTestError."""
    return (BUILT_IN.get(kind) or _plugged_in(kind))(options)


def _plugged_in(kind: str) -> Callable[[Options], Target]:
    check_kind(kind)
    module, _, name = kind.partition(":")
    try:
        found: Callable[[Options], Target] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise LoadTestError(f"target {kind!r} can't be imported: {error}; is it on PYTHONPATH?") from None
    return found
