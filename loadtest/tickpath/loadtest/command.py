"""`tickpath loadtest`, its `compare` and its `referee`: they parse, call and print. What takes long to import is
imported when it runs."""

import math
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

    from tickpath.loadtest.flags import LoopFlags, TargetFlags
    from tickpath.loadtest.outputs import Outputs

INVALID: Final = 5
"""Exit code where what was measured can't be trusted, or an SLO can't be kept at any rate."""

UNFINISHED: Final = 1
"""Exit code where not all was measured that was asked for; what was is reported."""

ADDRESS: Final = "127.0.0.1:7070"

SECONDS_MAX: Final = 10**7
"""Four months: what is longer was mistyped."""

Command = TypeVar("Command", bound=Callable[..., Any])


class Number(click.FloatRange):
    """One that is finite: nan lies in every FloatRange."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not finite", param, ctx)
        return number


AT: Final = click.option(
    "--at",
    "address",
    default=ADDRESS,
    show_default=True,
    metavar="ADDRESS",
    help="HOST:PORT, tls://HOST:PORT or unix:PATH.",
)
TOKEN_FILE: Final = click.option(
    "--token-file", metavar="FILE", help="Whose token the server is told.  [default: $TICKPATH_TOKEN]"
)
CREDENTIALS: Final = (
    TOKEN_FILE,
    click.option("--tls-ca", metavar="FILE.pem", help="Who signs servers' certificates.  [default: this machine's]"),
    click.option("--tls-cert", metavar="FILE.pem", help="Show this certificate."),
    click.option("--tls-key", metavar="FILE.pem", help="Its key."),
)
"""Of whatever connects to a server: what it shows of itself, and whom it trusts."""

TARGET_FLAGS: Final = (
    AT,
    click.option(
        "--target",
        default="tickpath",
        show_default=True,
        metavar="KIND",
        help="What listens there: tickpath; echo, which answers frames in order, as the C floor does; or module:Class.",
    ),
    *CREDENTIALS,
    click.option("--model", metavar="NAME", help="Need not be named where there is only one."),
    click.option("--inputs", type=Path, metavar="FILE.npz", help="Real inputs.  [default: a synthetic order book]"),
    click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Of the book and of Poisson."),
    click.option("--request-bytes", type=click.IntRange(6), help="For echo.  [default: 280]"),
    click.option(
        "--connections", type=click.IntRange(1), help="[default: 1; one for each in flight; as --slo needs them]"
    ),
    click.option("--in-flight", type=click.IntRange(1), help="Most per connection.  [default: what the server takes]"),
    click.option("--warmup", type=click.IntRange(0), default=200, show_default=True, help="Requests before it counts."),
    click.option(
        "--drain", type=Number(0, SECONDS_MAX), default=5.0, show_default=True, help="Seconds to wait for last answers."
    ),
    click.option("--cpu", type=click.IntRange(0), metavar="N", help="Keep the sender on core N."),
)

LOOP_FLAGS: Final = (
    click.option("--rate", "--request-rate-range", metavar="R|START:END:STEP", help="Requests a second, open loop."),
    click.option("--concurrency", "--concurrency-range", metavar="N|START:END:STEP", help="In flight, closed loop."),
    click.option("--replay", type=Path, metavar="FILE", help="Arrival times: .csv, .parquet, .dbn, or lines of ns."),
    click.option(
        "--duration", type=Number(0, SECONDS_MAX, min_open=True), metavar="S", help="[default: 10; all of a FILE]"
    ),
    click.option(
        "--distribution",
        "--request-distribution",
        type=click.Choice(["constant", "poisson"]),
        default="constant",
        show_default=True,
        help="Of the gaps, with --rate.",
    ),
    click.option("--burst", metavar="ON:OFF", help="Milliseconds at --rate, the peak, and without any."),
    click.option("--ramp-to", type=Number(0, min_open=True), metavar="R", help="From --rate, steadily."),
    click.option("--column", metavar="NAME", help="Of FILE."),
    click.option("--unit", type=click.Choice(["ns", "us", "ms", "s"]), help="Of the times in FILE."),
    click.option("--speed", type=Number(0, min_open=True), default=1.0, show_default=True, help="Of FILE."),
    click.option("--skip", type=click.IntRange(0), default=0, show_default=True, help="So many arrivals of FILE."),
    click.option("--pause-max", type=Number(0, min_open=True), metavar="S", help="Longest pause of FILE."),
)

EXAMPLES: Final = """
Examples:

\b
tickpath loadtest --rate 2000
tickpath loadtest --rate 500:5000:500 --distribution poisson --csv rates.csv
tickpath loadtest --concurrency 4 --model mlp --html report.html
tickpath loadtest --replay day.mbo.dbn.zst --speed 100 --pause-max 1
tickpath loadtest --slo p99=250us
tickpath loadtest compare 127.0.0.1:7070 127.0.0.1:7071 --rate 1000
tickpath loadtest referee --model mlp --rate 500

Exit code: 0 all is well, also after Ctrl-C in the last run; 5 the figures are INVALID, or no rate keeps the SLO; 2
usage; 1 anything else, such as runs that were not made.
"""


def _flags(options: Sequence[Callable[[Command], Command]]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@contextmanager
def _ending() -> Iterator[None]:
    """What can't be measured ends the command with one line."""
    from tickpath.client import TickpathError
    from tickpath.loadtest.errors import LoadTestError, UsageError

    for ending in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: what was measured is told, and no rows stay in memory
        if signal.getsignal(ending) != signal.SIG_IGN:  # as nohup has it
            signal.signal(ending, signal.default_int_handler)
    try:
        yield
    except UsageError as error:
        raise click.UsageError(str(error), click.get_current_context()) from None
    except (TickpathError, LoadTestError) as error:
        raise click.ClickException(str(error)) from None


def _split(options: dict[str, Any]) -> "tuple[TargetFlags, LoopFlags]":
    """The rest is left in `options`."""
    from dataclasses import fields

    from tickpath.loadtest.flags import LoopFlags, TargetFlags

    target, loop = (
        {field.name: options.pop(field.name) for field in fields(kind)} for kind in (TargetFlags, LoopFlags)
    )
    return TargetFlags(**target), LoopFlags(**loop)


RESULT_FLAGS: Final = (
    click.option("--json", "json_path", type=Path, metavar="FILE", help="Write JSON; - is stdout."),
    click.option("--csv", "csv_path", type=Path, metavar="FILE", help="Write CSV; - is stdout."),
)

ADDRESS_FLAGS: Final = 2
"""So many of the first are about where the one target is, and what."""

REQUEST_FLAGS: Final = 10
"""So many say where it is and what it is asked; the others are about our own sender."""


@click.group(invoke_without_command=True, epilog=EXAMPLES, subcommand_metavar="[compare|referee ...]")
@_flags(TARGET_FLAGS)
@_flags(LOOP_FLAGS)
@click.option("--slo", metavar="p99=250us", help="Find the highest Poisson rate that keeps it.")
@_flags(RESULT_FLAGS)
@click.option("--html", "html_path", type=Path, metavar="FILE", help="Write a report with plots.")
@click.option("--png", "png_path", type=Path, metavar="FILE", help="Write the plots alone.")
@click.option("--hgrm", "hgrm_path", type=Path, metavar="FILE", help="Write an HDR histogram's percentiles.")
@click.option("--samples", "samples_path", type=Path, metavar="FILE", help="Write every request's row, as .npy.")
@click.pass_context
def loadtest(context: click.Context, /, slo: str | None, **options: Any) -> int:
    """Load a server, and see the tail. Latency counts from when each request was meant to leave."""
    if context.invoked_subcommand is not None:
        _refuse_flags_before(context)
        return 0
    from rich.console import Console

    from tickpath.loadtest import conduct
    from tickpath.loadtest.errors import as_usage
    from tickpath.loadtest.flags import check_used
    from tickpath.loadtest.outputs import Outputs

    with _ending():
        target, loop = _split(options)
        outputs, progress = Outputs(**options), Console(stderr=True)
        with as_usage():
            outputs.check()
        if slo is not None:
            return _search(slo, target, loop, outputs, progress)
        loads = [target.load(each) for each in loop.loops(target.seed)]
        check_used(target)
        series = conduct.measure_all(loads, progress)
        valid = outputs.report(series.runs, series.not_run)
    return UNFINISHED if series.not_run else 0 if valid else INVALID


def _search(slo: str, target: "TargetFlags", loop: "LoopFlags", outputs: "Outputs", progress: "Console") -> int:
    from tickpath.loadtest.conduct import find_goodput
    from tickpath.loadtest.series import NotRun

    goodput = find_goodput(slo, target, loop, progress)
    rest = NotRun((f"the rest of the search for {goodput.slo.describe()}",), goodput.stopped)
    if goodput.probes:
        outputs.report([probe.run for probe in goodput.probes], rest if goodput.stopped else None, goodput)
    else:
        click.echo(goodput.describe(), err=outputs.on_stdout)
    return UNFINISHED if goodput.stopped else 0 if goodput.rate_hz else INVALID


@loadtest.command(epilog="Examples:\n\n\b\ntickpath loadtest compare 127.0.0.1:7070 echo@127.0.0.1:7000 --rate 1000")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@_flags(TARGET_FLAGS[ADDRESS_FLAGS:])
@_flags(LOOP_FLAGS)
@click.option("--model-b", metavar="NAME", help="Of B.  [default: that of A]")
@click.option(
    "--blocks", type=click.IntRange(6), default=10, show_default=True, help="Of four runs; twice as many in all."
)
@_flags(RESULT_FLAGS)
def compare(a: str, b: str, model_b: str | None, blocks: int, **options: Any) -> int:
    """Is B faster than A? Each is [KIND@]ADDRESS, as of --at. Each is asked once; then runs of A alone
    tell the smallest difference that can be claimed here, and as many alternate, A B B A."""
    from dataclasses import replace

    from rich.console import Console

    from tickpath.loadtest import conduct
    from tickpath.loadtest.outputs import Outputs

    with _ending():
        options |= {"address": ADDRESS, "target": "tickpath"}
        target, loop = _split(options)
        outputs = Outputs(**options)
        outputs.check()
        left, right = target.at(a), replace(target.at(b), model=model_b or target.model)
        comparison = conduct.compare_targets(left, right, loop, blocks, Console(stderr=True))
        valid = outputs.report_comparison(a, b, comparison)
    return UNFINISHED if comparison.stopped else 0 if valid else INVALID


@loadtest.command(epilog="Examples:\n\n\b\ntickpath loadtest referee --model mlp --rate 500 --slo p99=5ms")
@_flags(TARGET_FLAGS[:REQUEST_FLAGS])
@click.option("--rate", type=Number(1), default=500, show_default=True, help="Of the Server scenario.")
@click.option(
    "--duration", type=Number(0.1, SECONDS_MAX), default=10, show_default=True, metavar="S", help="Of each row."
)
@click.option("--slo", default="p99=10ms", show_default=True, help="What the Server scenario has to keep.")
def referee(rate: float, duration: float, slo: str, **options: Any) -> int:
    """Ask MLPerf's LoadGen too: SingleStream and Server, each beside a row that answers at once."""
    from rich.console import Console

    from tickpath.loadtest.conduct import referee as ask
    from tickpath.loadtest.flags import TargetFlags
    from tickpath.loadtest.referee import ROWS
    from tickpath.loadtest.report.referee import referee_parts

    with _ending():
        rulings = ask(TargetFlags(**options), slo, rate, duration, Console(stderr=True))
    Console(highlight=False, markup=False).print(*referee_parts(rulings), sep="\n", crop=False)
    return UNFINISHED if len(rulings) < ROWS else 0 if all(ruling.valid for ruling in rulings) else INVALID


def _refuse_flags_before(context: click.Context) -> None:
    """They would be passed over."""
    from click.core import ParameterSource

    for name in context.params:
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"the flags of {context.invoked_subcommand} stand behind it", context)
