"""Goodput: the highest Poisson rate at which a percentile keeps its limit, with no request failing.

Pure: the search is given what measures at a rate. A rate passes when its run is valid, every request was answered, and
the early-stopping rule proves that the percentile keeps the limit. Rates double until one fails, then the gap between
the best that passed and the worst that failed is halved on a log scale. The highest of many noisy passes is lucky more
often than not, so the rate that is found must pass once more; where it doesn't, the search goes on below it.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from tickpath.loadtest.early_stopping import CONFIDENCE, Proof, prove, requests_needed
from tickpath.loadtest.errors import StoppedError, UsageError
from tickpath.loadtest.latency import nearest_rank
from tickpath.loadtest.run import OK, SKIPPED, Run
from tickpath.loadtest.series import ended_early
from tickpath.loadtest.validity import invalid
from tickpath.loadtest.words import counted, rate_text

NS_PER: Final = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9}

# Two rates nearer than this are one: runs of ten seconds don't tell them apart.
PRECISION: Final = 0.05
# No rate that passes is looked for below this share of the first: it was far off, or nothing passes.
RATE_SHARE_MIN: Final = 1 / 1024

# What a connection to a tickpath server holds, unless it was told otherwise.
IN_FLIGHT: Final = 32
# 128 requests are more than a model's queue of 64 takes: it is the server that says no, not a full connection.
CONNECTIONS_MIN: Final = 4
# A sender that goes round more of them is late for that alone.
CONNECTIONS_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class Slo:
    """`quantile` of all requests are answered within `limit_ns`, counted from the intended send time."""

    quantile: Fraction
    limit_ns: int

    def describe(self) -> str:
        return f"p{float(self.quantile * 100):g} <= {self.limit_ns / 1e3:,.10g} µs"


@dataclass(frozen=True, slots=True)
class Probe:
    """One rate, and why it didn't pass; empty where it did."""

    rate_hz: float
    run: Run
    proof: Proof
    reason: str

    @property
    def passed(self) -> bool:
        return not self.reason


@dataclass(frozen=True, slots=True)
class Goodput:
    """`rate_hz` passed twice; 0 where no rate did. `probes` in the order they were made. `stopped`: why the search
    ended before it had an answer; empty where it had one."""

    slo: Slo
    confidence: float
    rate_hz: float
    probes: tuple[Probe, ...]
    stopped: str = ""

    @property
    def best_hz(self) -> float:
        """The highest rate that passed, if only once, below all that failed; 0 where there is none."""
        passed_hz = (probe.rate_hz for probe in self.probes if probe.passed and probe.rate_hz < self._wall_hz)
        return max(passed_hz, default=0.0)

    @property
    def _wall_hz(self) -> float:
        return min((probe.rate_hz for probe in self.probes if not probe.passed), default=math.inf)

    def describe(self) -> str:
        """One line: the rate, what it means, and what stands in the way of more."""
        sure = f"{self.slo.describe()}, {self.confidence:.0%} confidence, no errors"
        wall = next((probe for probe in self.probes if probe.rate_hz == self._wall_hz and not probe.passed), None)
        limit = f"at {rate_text(wall.rate_hz)}/s {wall.reason}" if wall else "no higher rate was tried"
        ended = f"; the search ended early: {self.stopped}" if self.stopped else ""
        if self.best_hz and not self.rate_hz:
            best = f"at least {rate_text(self.best_hz)}/s, UNCONFIRMED: it passed once and takes two passes"
            return f"goodput {best} ({sure}); {limit}{ended}"
        if self.stopped:
            return f"goodput unknown, no rate has passed so far ({sure}); {limit}{ended}"
        return f"goodput {rate_text(self.rate_hz)}/s ({sure}); {limit}"


def parse_slo(text: str) -> Slo:
    """From `p99=250us`, `p99.9=1.5ms`. Raises UsageError."""
    found = re.fullmatch(rf"p(\d+(?:\.\d+)?)=(\d+(?:\.\d+)?)({'|'.join(NS_PER)})", text.replace(" ", ""))
    quantile, limit_ns = (Fraction(found[1]) / 100, Fraction(found[2]) * NS_PER[found[3]]) if found else (0, 0)
    if not (0 < quantile < 1 and limit_ns >= 1):
        raise UsageError(
            f"--slo takes a percentile below 100 and a time above zero with its unit ({', '.join(NS_PER)}), "
            f"like p99=250us; {text!r} came"
        )
    return Slo(Fraction(quantile), int(limit_ns))


def connections_for(rate_hz: float, slo: Slo, in_flight: int | None = None) -> int:
    """Enough for those in flight when each takes twice the limit, by Little's law; `in_flight` on each at most."""
    waiting = 2 * rate_hz * slo.limit_ns / 1e9
    needed = math.ceil(waiting / min(in_flight or IN_FLIGHT, IN_FLIGHT))
    return min(max(needed, CONNECTIONS_MIN), CONNECTIONS_MAX)


def judge(run: Run, rate_hz: float, slo: Slo, confidence: float = CONFIDENCE) -> Probe:
    """Whether the run at `rate_hz` passes."""
    latency_ns = run.latency_ns()
    failed = int(np.count_nonzero(run.rows["code"] != OK))
    proof = prove(failed + int(np.count_nonzero(latency_ns > slo.limit_ns)), len(run.rows), slo.quantile, confidence)
    return Probe(rate_hz, run, proof, _reason(run, failed, proof, slo))


def _reason(run: Run, failed: int, proof: Proof, slo: Slo) -> str:
    if skipped := run.count(SKIPPED):
        full = f"all that {counted(run.connections, 'connection')} may have was in flight"
        return f"skipped {skipped:,} of {counted(len(run.rows), 'request')}, as {full}: raise --connections"
    # The sender's own part only adds to a latency: a rate that keeps the SLO with it keeps it without.
    if problems := invalid(run, as_bounds=proof.holds):
        return problems[0]
    if failed:
        return f"{failed:,} of {counted(len(run.rows), 'request')} had no prediction"
    if proof.holds:
        return ""
    found_ns = nearest_rank(np.sort(run.latency_ns()), slo.quantile)
    if found_ns > slo.limit_ns:
        return f"it is {found_ns / 1e3:,.1f} µs"
    told = f"{proof.over:,} of {counted(proof.total, 'request')} over the limit leave it open"
    return f"{told}: {proof.needed:,} are needed, a longer --duration"


def search(
    measure: Callable[[float], Run],
    slo: Slo,
    start_hz: float,
    rate_hz_max: float = math.inf,
    rate_hz_min: float = 0.0,
    confidence: float = CONFIDENCE,
) -> Goodput:
    """Find it. `measure` runs a Poisson schedule at the rate it is given, another seed each time, and long enough for
    `requests_needed(0, slo.quantile)`. An interrupted run and a StoppedError end the search. Raises what else `measure`
    raises."""
    probes: list[Probe] = []
    passed: list[float] = []
    failed_hz, rate_hz = math.inf, min(start_hz, rate_hz_max)
    while rate_hz >= max(rate_hz_min, start_hz * RATE_SHARE_MIN):
        try:
            run = _whole(measure(rate_hz))
        except StoppedError as error:
            return Goodput(slo, confidence, 0.0, tuple(probes), str(error))
        probe = judge(run, rate_hz, slo, confidence)
        probes.append(probe)
        if probe.passed and rate_hz in passed:
            return Goodput(slo, confidence, rate_hz, tuple(probes))
        if probe.proof.total < requests_needed(0, slo.quantile, confidence):
            break
        if probe.passed:
            passed.append(rate_hz)
        else:
            failed_hz = rate_hz
            passed = [other_hz for other_hz in passed if other_hz < rate_hz]
        rate_hz = _next_rate(max(passed, default=0.0), failed_hz, rate_hz_max)
    return Goodput(slo, confidence, 0.0, tuple(probes))


def _whole(run: Run) -> Run:
    """Raises StoppedError where it was interrupted."""
    if run.ending == "interrupted":
        raise StoppedError(ended_early(run))
    return run


def _next_rate(passed_hz: float, failed_hz: float, rate_hz_max: float) -> float:
    if not passed_hz:
        return failed_hz / 2
    if failed_hz == math.inf:
        return min(2 * passed_hz, rate_hz_max)
    return passed_hz if failed_hz <= passed_hz * (1 + PRECISION) else math.sqrt(passed_hz * failed_hz)
