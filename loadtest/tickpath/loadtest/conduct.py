"""What `tickpath loadtest` does between its flags and its report: run after run, with a progress line."""

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from tickpath.loadtest.compare import Comparison, Side, compare
from tickpath.loadtest.early_stopping import requests_needed
from tickpath.loadtest.errors import LoadTestError, StoppedError, UsageError, as_usage
from tickpath.loadtest.flags import LoopFlags, TargetFlags, check_used, parse_range
from tickpath.loadtest.goodput import Goodput, Slo, connections_for, parse_slo, search
from tickpath.loadtest.hints import hint
from tickpath.loadtest.progress import leave_core, watched
from tickpath.loadtest.referee import SCENARIOS, Case, Ruling, rule
from tickpath.loadtest.run import Run
from tickpath.loadtest.runner import ClosedLoop, Load, measure
from tickpath.loadtest.schedule import Constant, Poisson
from tickpath.loadtest.series import NotRun, Series, ended_early
from tickpath.loadtest.words import rate_text

# Where the search for goodput begins, unless told.
FIRST_RATE: Final = "1000"
# A Poisson count of 300, the least that proves a p99, is a fifth below its mean once in 3,000 runs.
COUNT_MARGIN: Final = 1.2
# One request, which tells whether there is an answer at all.
TRIAL: Final = Constant(1000, 0.001)


class Bench:
    """Makes one run after the other. `total`: how many there will be, where that is known."""

    def __init__(self, console: Console, total: int | None = None) -> None:
        self._console = console
        self._of = f" of {total}" if total else ""
        self._made = 0
        self._stopped = ""

    def run(self, load: Load, title: str) -> Run:
        """Raises StoppedError where the run before ended early, or this one can't begin; where it is the first, what
        `measure` raises."""
        if self._stopped:
            raise StoppedError(self._stopped)
        try:
            with watched(load, f"run {self._made + 1}{self._of}: {title}", self._console) as shown:
                run = _measure(shown)
        except (LoadTestError, KeyboardInterrupt) as error:
            if not self._made:
                raise
            raise StoppedError(str(error) or "stopped by Ctrl-C") from None
        self._made += 1
        self._stopped = ended_early(run)
        return run


def _measure(load: Load) -> Run:
    try:
        return measure(load)
    except LoadTestError as error:
        raise LoadTestError(hint(load.options.address) or str(error)) from None


def measure_all(loads: Sequence[Load], console: Console) -> Series:
    """One after the other, until one ends early or can't begin."""
    leave_core(loads[0].cpu)
    bench, runs, reason = Bench(console, len(loads)), list[Run](), ""
    for load in loads:
        try:
            runs.append(bench.run(load, load.loop.describe()))
        except StoppedError as error:
            reason = str(error)
            break
    left = tuple(load.loop.describe() for load in loads[len(runs) :])
    return Series(tuple(runs), NotRun(left, reason) if left else None)


def find_goodput(slo_text: str, target: TargetFlags, loop: LoopFlags, console: Console) -> Goodput:
    """Beginning at --rate. Raises LoadTestError."""
    slo = parse_slo(slo_text)
    start_hz, rate_hz_min = _start(slo, loop)
    check_used(target)
    leave_core(target.cpu)
    bench, made = Bench(console), list[float]()

    def measure_at(rate_hz: float) -> Run:
        made.append(rate_hz)
        connections = target.connections or connections_for(rate_hz, slo, target.in_flight)
        load = replace(target, connections=connections).load(Poisson(rate_hz, loop.seconds, target.seed + len(made)))
        return bench.run(load, f"{slo.describe()} at {rate_text(rate_hz)}/s?")

    return search(measure_at, slo, start_hz, rate_hz_min=rate_hz_min)


def _start(slo: Slo, loop: LoopFlags) -> tuple[float, float]:
    """The first rate, and the least: a run below it would have too few requests to prove anything. Raises
    UsageError."""
    start = replace(loop, rate=FIRST_RATE) if loop.rate is None else loop
    if replace(start, duration=None) != LoopFlags(rate=start.rate, distribution=start.distribution):
        raise UsageError("--slo looks for a Poisson rate: beside it stand --rate, where to begin, and --duration")
    rates_hz = parse_range(start.rate or FIRST_RATE)
    if len(rates_hz) > 1:
        raise UsageError("--slo begins at one rate: --rate R")
    rate_hz_min = COUNT_MARGIN * requests_needed(0, slo.quantile) / loop.seconds
    if rates_hz[0] < rate_hz_min:
        raise UsageError(
            f"{slo.describe()} takes {rate_hz_min * loop.seconds:,.0f} requests to prove: begin at a higher --rate "
            f"than {rate_text(rates_hz[0])}, or give a longer --duration than {loop.seconds:g} s"
        )
    with as_usage():
        Poisson(rates_hz[0], loop.seconds, 1)
    return rates_hz[0], rate_hz_min


def compare_targets(a: TargetFlags, b: TargetFlags, loop: LoopFlags, blocks: int, console: Console) -> Comparison:
    """Each block with a seed of its own, after one request to each. Raises LoadTestError."""
    check_used(a, b)
    loops = loop.loops(a.seed)
    if len(loops) > 1:
        raise UsageError("compare takes one rate or one concurrency, not a range")
    for flags in (a, b):
        try_out(flags.load(loops[0]))
    leave_core(a.cpu)
    bench = Bench(console, 8 * blocks)

    def measure_side(side: Side, block: int) -> Run:
        flags = replace(a if side == "A" else b, seed=a.seed + block)
        each = loops[0] if loop.replay else loop.loops(flags.seed)[0]  # a file is read once, and has no seed
        kind = "A against itself" if block < blocks else "A against B"
        return bench.run(flags.load(each), f"{kind}, block {block % blocks + 1} of {blocks}: {side}")

    return compare(measure_side, blocks, a.seed)


def try_out(load: Load) -> None:
    """Connect as the load does, and ask once. Raises LoadTestError where that can't be, or nothing is answered well."""
    loop = replace(load.loop, seconds=TRIAL.seconds) if isinstance(load.loop, ClosedLoop) else TRIAL
    _measure(replace(load, loop=loop, warmup=1))


def referee(target: TargetFlags, slo_text: str, rate_hz: float, seconds: float, console: Console) -> list[Ruling]:
    """LoadGen's word on the target, in both scenarios, each after the same with nothing behind it; an interruption ends
    the series. Raises LoadTestError, TickpathError."""
    if importlib.util.find_spec("mlperf_loadgen") is None:
        raise LoadTestError("the referee needs MLPerf's LoadGen: pip install 'tickpath[loadgen]'")
    check_used(target)
    with as_usage():
        parse_slo(slo_text)
    cases = [
        Case(scenario, null, target.target, target.options, slo_text, rate_hz, seconds)
        for scenario in SCENARIOS
        for null in (True, False)
    ]
    rulings: list[Ruling] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    hidden = not console.is_terminal
    with Progress(*columns, console=console, auto_refresh=False, transient=True, disable=hidden) as progress:
        task = progress.add_task("", total=len(cases))
        for case in cases:
            title = f"LoadGen, {case.scenario} of {'null' if case.null else case.options.address}"
            progress.update(task, description=title, completed=len(rulings), refresh=True)
            try:
                rulings.append(rule(case))
            except KeyboardInterrupt:
                break
    if not rulings:
        raise LoadTestError("interrupted before LoadGen had ruled on anything")
    return rulings
