"""What `tickpath replay` tells people: what a recording holds, and what came of a playback."""

from datetime import UTC, datetime

from rich.table import Table

from tickpath.console.replaying import Listing
from tickpath.console.tables import numbers, texts
from tickpath.loadtest.report.text import microseconds
from tickpath.loadtest.report.whole import keep_whole
from tickpath.playback.report import Latency, Report


def listing_parts(listing: Listing) -> list[object]:
    """What a recording holds."""
    table = texts("segment", "state", "first (UTC)", "last", "MiB", "entries", "dropped")
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
    requests = texts("model", "requests")
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
    """What came of a playback."""
    if report.speed is None:
        speed = "as fast as answers came"
    else:
        speed = "at the recorded times" if report.speed == 1 else f"{report.speed:g} times as fast as recorded"
    parts: list[object] = [f"played {report.played:,} requests to {report.server} at {report.address}, {speed}"]
    parts += [f"{count:,} not played: {why}" for why, count in report.left_out.items()]
    parts += [f"torn: {torn}" for torn in report.torn]
    if report.missing:
        parts.append(f"{report.missing:,} entries were dropped when this was recorded, answers perhaps among them")
    parts += ["", _latency_table(report), *_versions(report), *_differences(report), "", *_verdict(report)]
    return parts


def _latency_table(report: Report) -> Table:
    table = numbers("Latency, µs", "p50", "p99", "p99.9", "max", "samples")
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
    table = texts("model", "client", "session", "id", "output", "values", "abs", "ulp")
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


def _clock(unix_ns: int, form: str) -> str:
    return datetime.fromtimestamp(unix_ns / 1e9, UTC).strftime(form)
