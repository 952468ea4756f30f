"""What `tickpath loadtest` does between its flags and its report: run after run, with a progress line."""

import importlib.util
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tickpath.loadtest.compare import Comparison, Side, compare
from tickpath.loadtest.early_stopping import requests_needed
from tickpath.loadtest.errors import LoadTestError
from tickpath.loadtest.flags import LoopFlags, TargetFlags, parse_range
from tickpath.loadtest.goodput import Goodput, parse_slo, search
from tickpath.loadtest.referee import SCENARIOS, Case, Ruling, rule
from tickpath.loadtest.run import Run
from tickpath.loadtest.runner import ClosedLoop, Load, measure
from tickpath.loadtest.schedule import Poisson

# Where the search for goodput begins, unless told.
FIRST_RATE: Final = "1000"
# A Poisson count of 300, the least that proves a p99, is a fifth below its mean once in 3,000 runs.
COUNT_MARGIN: Final = 1.2


def measure_all(loads: Iterable[Load], console: Console) -> list[Run]:
    """One after the other; an interruption ends them."""
    runs: list[Run] = []
    for load in loads:
        runs.append(_measure(load, load.loop.describe(), console))
        if runs[-1].ending == "interrupted":
            break
    return runs


def find_goodput(slo_text: str, target: TargetFlags, loop: LoopFlags, console: Console) -> Goodput:
    """Beginning at --rate. Raises LoadTestError."""
    slo = parse_slo(slo_text)
    start = replace(loop, rate=FIRST_RATE) if loop.rate is None else loop
    if replace(start, duration=None) != LoopFlags(rate=start.rate, distribution=start.distribution):
        raise LoadTestError("--slo looks for a Poisson rate: beside it stand --rate, where to begin, and --duration")
    rates_hz = parse_range(start.rate or FIRST_RATE)
    if len(rates_hz) > 1:
        raise LoadTestError("--slo begins at one rate: --rate R")
    # A run at a lower rate would have too few requests to prove anything.
    rate_hz_min = COUNT_MARGIN * requests_needed(0, slo.quantile) / loop.seconds
    if rates_hz[0] < rate_hz_min:
        raise LoadTestError(
            f"{slo.describe()} takes {rate_hz_min * loop.seconds:,.0f} requests to prove: begin at a higher --rate "
            f"than {rates_hz[0]:,g}, or give a longer --duration than {loop.seconds:g} s"
        )
    made: list[float] = []

    def measure_at(rate_hz: float) -> Run:
        made.append(rate_hz)
        schedule = Poisson(rate_hz, loop.seconds, target.seed + len(made))
        return _measure(target.load(schedule), f"{slo.describe()} at {rate_hz:,.0f}/s?", console)

    return search(measure_at, slo, rates_hz[0], rate_hz_min=rate_hz_min)


def compare_targets(a: TargetFlags, b: TargetFlags, loop: LoopFlags, blocks: int, console: Console) -> Comparison:
    """Each block with a seed of its own. Raises LoadTestError."""
    if len(loop.loops(a.seed)) > 1:
        raise LoadTestError("compare takes one rate or one concurrency, not a range")

    def measure_side(side: Side, block: int) -> Run:
        flags = replace(a if side == "A" else b, seed=a.seed + block)
        (each,) = loop.loops(flags.seed)
        kind = "A against itself" if block < blocks else "A against B"
        return _measure(flags.load(each), f"{kind}, block {block % blocks + 1} of {blocks}: {side}", console)

    return compare(measure_side, blocks, a.seed)


def referee(target: TargetFlags, slo_text: str, rate_hz: float, seconds: float, console: Console) -> list[Ruling]:
    """LoadGen's word on the target, in both scenarios, each after the same with nothing behind it; an interruption ends
    the series. Raises LoadTestError, TickpathError."""
    if importlib.util.find_spec("mlperf_loadgen") is None:
        raise LoadTestError("the referee needs MLPerf's LoadGen: pip install 'tickpath[loadgen]'")
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


def _measure(load: Load, title: str, console: Console) -> Run:
    with _watched(load, title, console) as watched:
        return measure(watched)


@contextmanager
def _watched(load: Load, title: str, console: Console) -> Iterator[Load]:
    total = None if isinstance(load.loop, ClosedLoop) else len(load.loop.offsets_ns())
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    hidden = not console.is_terminal
    with Progress(*columns, console=console, auto_refresh=False, transient=True, disable=hidden) as progress:
        task = progress.add_task(title, total=total)
        yield replace(load, told=lambda sent: progress.update(task, completed=sent, refresh=True))
