"""`tickpath replay`: a recording's requests, asked again; or what is in it."""

from pathlib import Path

import click

from tickpath.console.endings import Failed, ending
from tickpath.console.options import bad_parameter, credentials
from tickpath.console.output import print_json, print_rich

EXAMPLES = """
Examples:

\b
tickpath replay recordings --list
tickpath replay recordings --at 127.0.0.1:7071
tickpath replay recordings --at 127.0.0.1:7071 --speed max --model btc=@2025-11-02
tickpath replay recordings --at 127.0.0.1:7071 --from 2025-11-03T09:30 --until 2025-11-03T09:35 --json report.json

Exit code: 0 every answer is the recorded one, 7 some are not, 1 it could not be played to its end, 2 a wrong option.
"""


def _read_speed(_context: click.Context, _option: click.Parameter, text: str) -> float | None:
    from tickpath.console.replaying import parse_speed

    with bad_parameter():
        return parse_speed(text)


def _read_models(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> object:
    from tickpath.console.replaying import parse_model

    with bad_parameter():
        return dict(map(parse_model, texts))


def _read_time(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    from tickpath.console.replaying import parse_time

    with bad_parameter():
        return None if text is None else parse_time(text)


@click.command(epilog=EXAMPLES)
@click.argument("places", metavar="DIR|FILE...", nargs=-1, required=True, type=Path)
@click.option("--list", "only_list", is_flag=True, help="Say what is in it, and ask nobody.")
@click.option("--at", "address", metavar="ADDRESS", help="Who is asked: HOST:PORT, tls://HOST:PORT or unix:PATH.")
@click.option("--speed", callback=_read_speed, default="1", show_default=True, metavar="N|max", help="Times as fast.")
@click.option(
    "--model",
    "models",
    multiple=True,
    callback=_read_models,
    metavar="NAME[=NEW][@VERSION]",
    help="Play this one, to that one; again for each.  [default: all]",
)
@click.option("--from", "from_ns", callback=_read_time, metavar="TIME", help="Play what came then or later (UTC).")
@click.option("--until", "until_ns", callback=_read_time, metavar="TIME", help="Play what came before then.")
@click.option(
    "--in-flight",
    type=click.IntRange(1, 65536),
    default=32,
    show_default=True,
    metavar="N",
    help="So many at --speed max.",
)
@credentials
@click.option("--json", "report", metavar="FILE", help="Write the report there; - prints it.")
def replay(*, places: tuple[Path, ...], only_list: bool, report: str | None, **options: object) -> int:
    """Ask a recording's requests again, and compare the answers."""
    from tickpath.client import TickpathError
    from tickpath.console import replay_tables, replaying
    from tickpath.console.errors import ConsoleError
    from tickpath.loadtest.errors import LoadTestError
    from tickpath.recorder.segments import RecordingError

    if not only_list and options["address"] is None:
        # No default: what was recorded yesterday is not to reach the server of today by accident.
        raise click.UsageError("expected --at ADDRESS, the server that is to be asked, or --list")
    with ending(Failed, ConsoleError, RecordingError, TickpathError, LoadTestError):
        exchanges = replaying.read(places)
        if only_list:
            listing = replaying.listing(exchanges)
            if report is None:
                print_rich(*replay_tables.listing_parts(listing))
            else:
                _write(report, listing)
            return 0
        found = replaying.play(exchanges, replaying.Options(**options))  # type: ignore[arg-type]
    if report is not None:
        _write(report, found)
    if report != "-":
        print_rich(*replay_tables.report_parts(found))
    return found.exit_code


def _write(place: str, value: object) -> None:
    import msgspec

    if place == "-":
        print_json(value)
        return
    try:
        Path(place).write_bytes(msgspec.json.format(msgspec.json.encode(value)) + b"\n")
    except OSError as error:
        raise Failed(f"{place}: {error.strerror}") from None
