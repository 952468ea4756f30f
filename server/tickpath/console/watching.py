"""`tickpath top` and `tickpath slow`, which ask a running server's observer."""

import sys

import click

from tickpath.console.endings import Failed, ending
from tickpath.console.options import OBSERVER_OPTION
from tickpath.console.output import print_json, print_rich
from tickpath.loadtest.command import TOKEN_FILE

# More than anybody reads; what the observer gives at most.
COUNT_MAX = 200

MODEL = click.option("--model", metavar="NAME", help="This model alone.")


@click.command(epilog="Examples:\n\n\b\ntickpath top\ntickpath top --model btc --every 0.5\ntickpath top --once")
@OBSERVER_OPTION
@TOKEN_FILE
@MODEL
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_default=True,
    metavar="S",
    help="Look again so often.",
)
@click.option("--once", is_flag=True, help="Print one look and end, for scripts.")
def top(observer: str, token_file: str | None, model: str | None, every_s: float, once: bool) -> None:
    """Watch a server: rates, percentiles, queues, misses.

    Percentiles are of the last minute, rates of the last 5 to 10 seconds, the rest is of now or counts from the start.
    """
    from rich.console import Console

    from tickpath.console import top as watch
    from tickpath.console.errors import ConsoleError
    from tickpath.console.observer import ObserverAt

    watching = watch.Watching(ObserverAt(observer, token_file), model, every_s)
    if not once and not sys.stdout.isatty():
        raise click.UsageError("standard output is no terminal: `tickpath top --once` prints one look")
    with ending(Failed, ConsoleError):
        if once:
            print_rich(watch.once(watching))
        else:
            watch.run(watching, Console(highlight=False, markup=False))


@click.command(epilog="Examples:\n\n\b\ntickpath slow\ntickpath slow --model btc --count 5\ntickpath slow --json")
@OBSERVER_OPTION
@TOKEN_FILE
@MODEL
@click.option(
    "--count",
    type=click.IntRange(1, COUNT_MAX),
    default=10,
    show_default=True,
    metavar="N",
    help="How many requests.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what /slow answers, as JSON.")
def slow(observer: str, token_file: str | None, model: str | None, count: int, as_json: bool) -> None:
    """Say why requests were late: the slowest of the last minutes.

    Each with the time it took in every stage, what is usual, and what else went on then: the queue, a reload, the
    garbage collector, a CPU taken away.
    """
    from tickpath.console.errors import ConsoleError
    from tickpath.console.observer import ObserverAt, ask_slow

    with ending(Failed, ConsoleError):
        report = ask_slow(ObserverAt(observer, token_file), count, model)
    if as_json:
        print_json(report)
        return

    from tickpath.console.slow import slow_tables

    print_rich(*slow_tables(report, model))


COMMANDS = (top, slow)
