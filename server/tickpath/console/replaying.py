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
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tickpath.client.address import parse_address
from tickpath.client.tls import tls_of
from tickpath.client.token import token_from
from tickpath.console.errors import ConsoleError
from tickpath.console.options import ADDRESS
from tickpath.console.settings import parse_name
from tickpath.loadtest.report.text import microseconds
from tickpath.loadtest.report.whole import keep_whole
from tickpath.loadtest.room import make_room
from tickpath.loadtest.sender import ServerLostError
from tickpath.playback.dialogue import Wanted
from tickpath.playback.exchanges import Exchanges
from tickpath.playback.plan import Choice, Plan, make_plan
from tickpath.playback.player import Player, Server
from tickpath.playback.report import Ending, Latency, Report, make_report
from tickpath.recorder.reading import open_segments

# Drawing takes a millisecond, and the sender sends nothing meanwhile.
DRAW_S: Final = 0.5
UNKNOWN: Final = "(unknown)"


class Options(msgspec.Struct, frozen=True):
    """What was typed."""

    address: str | None
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
        address = parse_address(options.address or ADDRESS)
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


def listing_parts(listing: Listing) -> list[object]:
    """For people."""
    table = _table("segment", "state", "first (UTC)", "last", "MiB", "entries", "dropped")
    for each in listing.segments:
        table.add_row(
            each.file,
            each.state,
            _clock(each.from_ns, "%Y-%m-%d %H:%M:%S"),
            _clock(each.until_ns, "%H:%M:%S"),
            f"{each.bytes / 2**20:,.1f}",
            f"{each.entries:,}",
            f"{each.missing:,}",
        )
    requests = _table("model", "requests")
    for name, count in sorted(listing.requests.items()):
        requests.add_row(name, f"{count:,}")
    parts: list[object] = [keep_whole(table), keep_whole(requests), f"{listing.sessions:,} sessions"]
    notes = (
        (listing.without_answer, "requests have no answer in it"),
        (listing.without_request, "answers have no request in it"),
        (listing.unreadable, "entries are whole and hold no message"),
    )
    parts += [f"{count:,} {what}" for count, what in notes if count]
    return parts + [f"{each.file}: {each.torn}" for each in listing.segments if each.torn]


def report_parts(report: Report) -> list[object]:
    """For people."""
    speed = "as fast as answers came" if report.speed is None else f"{report.speed:g} times as fast as recorded"
    parts: list[object] = [f"played {report.played:,} requests to {report.server}, {speed}"]
    parts += [f"{count:,} not played: {why}" for why, count in report.left_out.items()]
    parts += [f"torn: {torn}" for torn in report.torn]
    if report.missing:
        parts.append(f"{report.missing:,} entries were dropped when this was recorded, answers perhaps among them")
    parts += ["", _latency_table(report), *_versions(report), *_differences(report), "", *_verdict(report)]
    return parts


def _latency_table(report: Report) -> Table:
    table = _table("µs", "p50", "p99", "p99.9", "max", "samples")
    for column in table.columns[1:]:
        column.justify = "right"
    rows: dict[str, Latency | None] = {
        "on the server, recorded": report.recorded,
        "on the server, now": report.replayed,
        "round trip, now, from when it was due": report.round_trip,
        "lateness of this sender": report.lateness,
    }
    for name, found in rows.items():
        if found is not None:
            tail = "~" * found.thin + microseconds(found.p999_ns)
            spans = (microseconds(found.p50_ns), microseconds(found.p99_ns), tail, microseconds(found.max_ns))
            table.add_row(name, *spans, f"{found.count:,}")
    if any(found is not None and found.thin for found in rows.values()):
        table.caption = "~ thin: under 10,000 samples, so p99.9 rests on fewer than ten"
    return keep_whole(table)


def _versions(report: Report) -> list[object]:
    told = {True: "the same file", False: "another file", None: "whether the file is the same is not known"}
    return [
        f"{pair.model}: {pair.count:,} answers of version {pair.recorded}, now of {pair.replayed}: "
        f"{told[pair.model_is_same]}"
        for pair in report.versions
    ]


def _differences(report: Report) -> list[object]:
    parts: list[object] = [
        f"{change.model}: {change.count:,} times {change.recorded} then, {change.replayed} now"
        for change in report.codes
    ]
    if not report.differences:
        return parts
    table = _table("model", "client", "session", "id", "output", "values", "abs", "ulp")
    for each in report.differences:
        values = f"{each.values:,} of {each.of:,}" if each.of else ""
        largest = "" if each.abs_max is None else f"{each.abs_max:.3g}"
        steps = "" if each.ulp_max is None else f"{each.ulp_max:,}"
        where = (each.model, each.client, str(each.session), str(each.id))
        table.add_row(*where, each.output, values, largest, steps)
    if report.differ > len(report.differences):
        table.caption = f"the first {len(report.differences)} of {report.differ:,}"
    return [*parts, keep_whole(table)]


def _verdict(report: Report) -> list[object]:
    parts: list[object] = []
    if report.ending != "complete":
        parts.append(f"It ended early ({report.ending}): {report.reason}")
    if report.not_recorded:
        parts.append(f"{report.not_recorded:,} were answered and have no recorded answer to compare with")
    if report.unanswered:
        parts.append(f"{report.unanswered:,} were not answered")
    if report.differ:
        largest = f"by up to {report.abs_max:.3g}, {report.ulp_max:,} ulp"
        parts.append(f"{report.differ:,} of {report.compared:,} answers DIFFER, {largest}")
    else:
        parts.append(f"{report.same:,} of {report.compared:,} are the same, bit for bit; no answer differs")
    if report.decided_otherwise:
        parts.append(f"{report.decided_otherwise:,} ended otherwise than recorded, for another reason than time")
    return parts


def _table(*columns: str) -> Table:
    return Table(*columns, box=box.SIMPLE_HEAD, caption_justify="left")


def _clock(unix_ns: int, form: str) -> str:
    return datetime.fromtimestamp(unix_ns / 1e9, UTC).strftime(form)
