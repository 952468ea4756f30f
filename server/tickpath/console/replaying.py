"""What `tickpath replay` does: reads a recording, plays it, and says what came of it."""

import gc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tickpath.client.address import parse_address
from tickpath.client.tls import tls_of
from tickpath.client.token import token_from
from tickpath.console.errors import ConsoleError
from tickpath.console.settings import parse_name
from tickpath.loadtest.room import make_room
from tickpath.loadtest.sender import ServerLostError
from tickpath.playback.dialogue import Wanted
from tickpath.playback.exchanges import Exchanges
from tickpath.playback.plan import Choice, Plan, make_plan
from tickpath.playback.player import Player, Server
from tickpath.playback.report import Ending, Report, make_report
from tickpath.recorder.reading import open_segments

# Drawing takes a millisecond, and the sender sends nothing meanwhile.
DRAW_S: Final = 0.5
UNKNOWN: Final = "(unknown)"


class Options(msgspec.Struct, frozen=True):
    """What was typed."""

    address: str
    speed: float | None
    models: Mapping[str, Wanted]
    from_ns: int | None
    until_ns: int | None
    in_flight: int
    token_file: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None


class SegmentListing(msgspec.Struct, frozen=True):
    """What one file holds."""

    file: str
    state: str
    server: str
    from_ns: int
    until_ns: int
    bytes: int
    entries: int
    missing: int
    torn: str


class Listing(msgspec.Struct, frozen=True):
    """What a recording holds; times are Unix time."""

    segments: tuple[SegmentListing, ...]
    sessions: int
    requests: Mapping[str, int]
    without_answer: int
    without_request: int
    unreadable: int


def parse_speed(text: str) -> float | None:
    """`10` -> 10.0, `max` -> None. Raises ValueError."""
    if text == "max":
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed <= 1e6:
        raise ValueError(f"expected a number above 0, times the recorded speed, or max; {text!r} came")
    return speed


def parse_model(text: str) -> tuple[str, Wanted]:
    """`btc` -> btc, asked of btc; `btc=eth@2` -> of version 2 of eth. Raises ValueError."""
    name, equals, other = text.partition("=")
    new, at, version = other.partition("@") if equals else (name, "", "")
    if not equals:
        name, at, version = name.partition("@")
        new = name
    if (equals and not other) or (at and not version):
        raise ValueError(f"expected NAME, NAME=NEW, NAME@VERSION or NAME=NEW@VERSION, {text!r} came")
    return parse_name(name), Wanted(parse_name(new or name), parse_name(version) if version else "")


def parse_time(text: str) -> int:
    """ISO 8601, UTC where it says nothing else, as Unix time in nanoseconds. Raises ValueError."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"expected a time as 2025-11-03T09:30:00, {text!r} came") from None
    since = (when if when.tzinfo else when.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000


def read(places: Sequence[Path]) -> Exchanges:
    """A recording's index. Raises RecordingError, ConsoleError."""
    exchanges, segments = Exchanges(), open_segments(places)
    with _progress("reading", len(segments)) as shown:
        for number, segment in enumerate(segments, 1):
            try:
                exchanges.add(segment)
            except OSError as error:
                raise ConsoleError(f"{segment.path}: {error.strerror}") from None
            shown(number)
    return exchanges


def play(exchanges: Exchanges, options: Options) -> Report:
    """Ask all that was chosen. Raises TickpathError before anything was asked; ConsoleError where there is nothing to
    ask."""
    choice = Choice(options.models, options.from_ns, options.until_ns, options.speed)
    plan = make_plan(exchanges, choice)
    if not plan.sessions:
        raise ConsoleError(_nothing(exchanges, plan))
    with make_room(len(plan.indices)) as room:
        address = parse_address(options.address)
        tls = tls_of(options.tls_ca, options.tls_cert, options.tls_key)
        server = Server(address, token_from(options.token_file), tls)
        player = Player(exchanges, server, choice, room, options.in_flight)
        ending, reason = _play(player, plan)
        report = make_report(exchanges, plan, player, room.rows, options.speed, ending, reason)
        player.close()
    return report


def _play(player: Player, plan: Plan) -> tuple[Ending, str]:
    gc.collect()
    gc.disable()
    try:
        with _progress("playing", len(plan.indices)) as shown:
            player.play(plan, shown)
    except ServerLostError as error:
        return "server lost", str(error)
    except KeyboardInterrupt:
        return "interrupted", "stopped by Ctrl-C"
    except OSError as error:
        raise ConsoleError(f"the recording can't be read any more: {error.strerror}") from None
    finally:
        gc.enable()
    return "complete", ""


def _nothing(exchanges: Exchanges, plan: Plan) -> str:
    names = sorted({model.name for model in exchanges.models.values()})
    left_out = "".join(f"; {count:,} {why}" for why, count in plan.left_out.items())
    return (
        f"nothing to play among {len(exchanges):,} exchanges of models {', '.join(names) or UNKNOWN}{left_out}: see "
        "--list, --model, --from and --until"
    )


class _Shown:
    """Draws how far it is, at most twice a second."""

    def __init__(self, progress: Progress, total: int, title: str, hidden: bool) -> None:
        self._progress = progress
        self._hidden = hidden
        self._task = progress.add_task(title, total=total)
        self._next_s = 0.0

    def __call__(self, done: int) -> None:
        if not self._hidden and (now_s := monotonic()) >= self._next_s:
            self._next_s = now_s + DRAW_S
            self._progress.update(self._task, completed=done, refresh=True)


@contextmanager
def _progress(title: str, total: int) -> Iterator[_Shown]:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn())
    hidden = not console.is_terminal
    with Progress(*columns, console=console, auto_refresh=False, transient=True, disable=hidden) as progress:
        yield _Shown(progress, total, title, hidden)


def listing(exchanges: Exchanges) -> Listing:
    """What there is, without a server."""
    requests: Counter[str] = Counter()
    without_answer = 0
    for exchange in exchanges:
        if exchange.is_request:
            model = exchanges.model(exchange)
            requests[UNKNOWN if model is None else model.name] += 1
            without_answer += not exchange.reply_length
    segments = tuple(
        SegmentListing(
            segment.path.name,
            "open" if segment.open else "recovered" if segment.recovered else "closed",
            segment.header.server,
            segment.unix_ns(segment.first_ns) if segment.first_ns else segment.header.unix_ns,
            segment.unix_ns(segment.last_ns) if segment.last_ns else segment.header.unix_ns,
            segment.bytes,
            segment.entries,
            segment.missing,
            segment.torn,
        )
        for segment in exchanges.segments
    )
    sessions = len(exchanges.sessions)
    return Listing(segments, sessions, requests, without_answer, exchanges.orphans, exchanges.unreadable)
