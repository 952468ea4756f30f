"""Asking an observer over HTTP."""

import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final, TypeVar

import msgspec

from tickpath.console.errors import ConsoleError
from tickpath.observe.schema import SCHEMA, SlowReport, Status

# It answers in milliseconds, and in a second where 64 models and a busy machine come together.
PATIENCE_S: Final = 5.0

Report = TypeVar("Report", Status, SlowReport)


class NoObserverError(ConsoleError):
    """Nothing answers there, or something else does."""


def ask_status(observer: str) -> Status:
    """What it knows now. Raises ConsoleError."""
    return _ask(f"{observer}/status.json", Status)


def ask_slow(observer: str, count: int, model: str | None) -> SlowReport:
    """The slowest requests of the last minutes. Raises ConsoleError."""
    asked: dict[str, Any] = {"count": count} | ({} if model is None else {"model": model})
    return _ask(f"{observer}/slow?{urllib.parse.urlencode(asked)}", SlowReport)


def _ask(url: str, kind: type[Report]) -> Report:
    report = _decode(url, _fetch(url), kind)
    if report.schema != SCHEMA:
        raise ConsoleError(
            f"{url}: schema {SCHEMA} expected, {report.schema} came: use the `tickpath` of the server's own release"
        )
    return report


def _fetch(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            return bytes(response.read())
    except urllib.error.HTTPError as error:
        with error:
            said = error.read(1000).decode(errors="replace").strip()
        raise ConsoleError(f"{url}: {error.code} {error.reason}: {said or 'is this an observer?'}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise NoObserverError(
            f"no observer answers at {url} ({reason}): is `tickpath serve` running there, and without --no-observer? "
            'Its log says "metrics at ..."; name that address with --observer'
        ) from None


def _decode(url: str, body: bytes, kind: type[Report]) -> Report:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NoObserverError(f"{url}: what answers there is no observer of this release: {error}") from None
