"""Asking an observer over HTTP, with a token where it wants one."""

import http.client
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec

from tickpath.client.errors import CredentialsError
from tickpath.client.token import TOKEN_VARIABLE, token_from, token_now
from tickpath.console.errors import ConsoleError
from tickpath.observe.schema import SCHEMA, SlowReport, Status
from tickpath.wire.tokens import TokenError, read_token

# It answers in milliseconds, and in a second where 64 models and a busy machine come together.
PATIENCE_S: Final = 5.0

Report = TypeVar("Report", Status, SlowReport)


class NoObserverError(ConsoleError):
    """Nothing answers there, or something else does."""


@dataclass(frozen=True)
class ObserverAt:
    """Which observer is asked, and with whose token: that of a file, or (None) of TICKPATH_TOKEN, if there is one."""

    url: str
    token_file: str | None = None

    def token(self) -> str:
        """As it is now; empty without one. Raises ConsoleError, which names no token."""
        try:
            found = token_now(token_from(self.token_file))
            return read_token(found) if found else ""
        except CredentialsError as error:
            raise ConsoleError(str(error)) from None
        except TokenError as error:
            raise ConsoleError(f"{TOKEN_VARIABLE}: {error}") from None

    def refused(self, url: str, token: str) -> ConsoleError:
        """What to do after a 401."""
        where = self.token_file or TOKEN_VARIABLE
        told = f"it does not know the token of {where}" if token else "it asks for a token, and none was given"
        return ConsoleError(
            f"{url}: {told}: name a file with one of its server's observer_token_file (--token-file), or set "
            f"{TOKEN_VARIABLE}"
        )


def ask_status(observer: ObserverAt) -> Status:
    """What it knows now. Raises ConsoleError."""
    return _ask(observer, "/status.json", Status)


def ask_slow(observer: ObserverAt, count: int, model: str | None) -> SlowReport:
    """The slowest requests of the last minutes. Raises ConsoleError."""
    asked: dict[str, Any] = {"count": count} | ({} if model is None else {"model": model})
    return _ask(observer, f"/slow?{urllib.parse.urlencode(asked)}", SlowReport)


def _ask(observer: ObserverAt, path: str, kind: type[Report]) -> Report:
    url = observer.url + path
    report = _decode(url, _fetch(observer, url), kind)
    if report.schema != SCHEMA:
        raise ConsoleError(
            f"{url}: schema {SCHEMA} expected, {report.schema} came: use the `tickpath` of the server's own release"
        )
    return report


def _fetch(observer: ObserverAt, url: str) -> bytes:
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    if token := observer.token():
        # Told to this address alone, wherever an answer may point to.
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            return bytes(response.read())
    except urllib.error.HTTPError as error:
        with error:
            if error.code == HTTPStatus.UNAUTHORIZED:
                raise observer.refused(url, token) from None
            said = error.read(1000).decode(errors="replace").strip()
        raise ConsoleError(f"{url}: {error.code} {error.reason}: {said or 'is this an observer?'}") from None
    except (OSError, ValueError) as error:
        raise _nobody(url, getattr(error, "reason", None) or error) from None
    except http.client.HTTPException:  # it quotes whatever came
        raise _nobody(url, "what came is no HTTP") from None


def _nobody(url: str, reason: object) -> NoObserverError:
    return NoObserverError(
        f"no observer answers at {url} ({reason}): is `tickpath serve` running there, and without --no-observer? "
        'Its log says "metrics at ..."; name that address with --observer'
    )


def _decode(url: str, body: bytes, kind: type[Report]) -> Report:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NoObserverError(f"{url}: what answers there is no observer of this release: {error}") from None
