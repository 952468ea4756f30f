"""Early stopping on published numbers; the goodput search on a queue whose limit is known."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from tests.simulated import on_time, run_of

from tickpath.loadtest.early_stopping import prove, requests_needed
from tickpath.loadtest.errors import StoppedError, UsageError
from tickpath.loadtest.goodput import PRECISION, Goodput, Slo, connections_for, judge, parse_slo, search
from tickpath.loadtest.latency import P50, P90, P99, P999
from tickpath.loadtest.run import PENDING, SKIPPED, Ending, Run
from tickpath.loadtest.schedule import Constant, Poisson
from tickpath.wire import Code


@pytest.mark.parametrize(
    ("over", "quantile", "needed"),
    [(0, P99, 459), (1, P90, 64), (1, P99, 662)],  # the last two are the least counts MLPerf's rules name
)
def test_early_stopping_on_known_numbers(over: int, quantile: Fraction, needed: int) -> None:
    assert requests_needed(over, quantile) == needed


@pytest.mark.parametrize("over", [0, 1, 2, 7, 40])
@pytest.mark.parametrize("quantile", [P50, P90, P99])
def test_early_stopping_is_its_definition(over: int, quantile: Fraction) -> None:
    def chance(total: int) -> float:
        beyond = 1 - quantile
        return float(sum(math.comb(total, k) * beyond**k * quantile ** (total - k) for k in range(over + 1)))

    needed = requests_needed(over, quantile)
    assert chance(needed) < 0.01 <= chance(needed - 1)
    assert prove(over, needed, quantile).holds
    assert not prove(over, needed - 1, quantile).holds


def test_the_share_over_the_limit_nears_what_the_percentile_allows() -> None:
    allowed = [over / requests_needed(over, P999) for over in (10, 100, 1000, 10_000)]
    assert allowed == sorted(allowed)
    assert 0.0009 < allowed[-1] < 0.001


@pytest.mark.parametrize(
    ("text", "slo"),
    [
        ("p99=250us", Slo(P99, 250_000)),
        ("p99.9=1.5ms", Slo(P999, 1_500_000)),
        ("p50 = 2s", Slo(P50, 2_000_000_000)),
        ("p99=250µs", Slo(P99, 250_000)),
        ("p99=900ns", Slo(P99, 900)),
    ],
)
def test_slo(text: str, slo: Slo) -> None:
    assert parse_slo(text) == slo


@pytest.mark.parametrize(
    "text", ["", "p99", "p99=250", "99=250us", "p100=1ms", "p0=1ms", "p99=0us", "p99=-1us", "p99<1us", "p99=0.1ns"]
)
def test_an_slo_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="like p99=250us"):
        parse_slo(text)


def test_slo_described() -> None:
    assert parse_slo("p99.9=1.5ms").describe() == "p99.9 <= 1,500 µs"


SLO = Slo(P99, 2_000_000)
SERVED_HZ = 10_000
# Poisson arrivals at an exponential server are answered after an exponential time whose mean is 1 / (served -
# arriving): its p99 is 2 ms at this rate.
LIMIT_HZ = SERVED_HZ - math.log(100) / 2e-3


def queue(seconds: float, seed: int) -> Callable[[float], Run]:
    """Measures a server that serves 10,000 a second, each request in an exponential time."""
    rng = np.random.default_rng(seed)

    def measure(rate_hz: float) -> Run:
        offsets_ns = Poisson(rate_hz, seconds, int(rng.integers(1 << 30))).offsets_ns()
        return on_time(offsets_ns, np.rint(rng.exponential(1e9 / SERVED_HZ, len(offsets_ns))).astype(np.int64))

    return measure


@pytest.mark.parametrize("start_hz", [500, 7_000, 60_000])
def test_goodput_of_a_queue_is_what_its_theory_gives(start_hz: float) -> None:
    """Found from below and from above. Not beyond the limit by more than chance may have it, and not far below it."""
    found = search(queue(seconds=3, seed=1), SLO, start_hz)
    assert 0.85 * LIMIT_HZ < found.rate_hz < 1.03 * LIMIT_HZ
    passes = [probe.rate_hz for probe in found.probes if probe.passed]
    assert passes.count(found.rate_hz) == 2
    assert found.probes[-1].passed


def test_the_gap_to_the_next_rate_that_failed_is_small() -> None:
    found = search(queue(seconds=3, seed=2), SLO, 1000)
    wall_hz = min(probe.rate_hz for probe in found.probes if not probe.passed)
    assert found.rate_hz < wall_hz <= found.rate_hz * (1 + PRECISION)


def answered(rate_hz: float, latency_ns: int, seconds: float = 1, code: int = 0, ending: Ending = "complete") -> Run:
    """Every request takes as long; the last one ends with `code`."""
    offsets_ns = Constant(rate_hz, seconds).offsets_ns()
    codes = np.zeros(len(offsets_ns), np.int32)
    codes[-1] = code
    return run_of(offsets_ns, offsets_ns, offsets_ns + latency_ns, codes, ending)


def test_the_highest_rate_that_is_allowed() -> None:
    found = search(lambda rate_hz: answered(rate_hz, 1000), SLO, 1000, rate_hz_max=3000)
    assert [probe.rate_hz for probe in found.probes] == [1000, 2000, 3000, 3000]
    assert found.rate_hz == 3000
    assert found.describe() == (
        "goodput 3,000/s (p99 <= 2,000 µs, 99% confidence, no errors); no higher rate was tried"
    )


def test_a_lucky_pass_is_taken_back() -> None:
    """8,000 passes once and never again."""
    seen: list[float] = []

    def measure(rate_hz: float) -> Run:
        seen.append(rate_hz)
        lucky = rate_hz == 8000 and seen.count(8000) == 1
        return answered(rate_hz, 1000 if rate_hz <= 5000 or lucky else 3_000_000)

    found = search(measure, SLO, 1000)
    assert seen[:5] == [1000, 2000, 4000, 8000, 16_000]
    assert seen.count(8000) == 2
    assert 5000 / (1 + PRECISION) <= found.rate_hz <= 5000


def test_no_rate_passes() -> None:
    found = search(lambda rate_hz: answered(rate_hz, 3_000_000, seconds=2000 / rate_hz), SLO, 4096)
    assert found.rate_hz == 0
    assert [probe.rate_hz for probe in found.probes] == [2.0**power for power in range(12, 1, -1)]
    assert found.probes[0].reason == "it is 3,000.0 µs"


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (answered(1000, 1000, code=Code.OVERLOADED), "1 of 1,000 requests had no prediction"),
        (answered(1000, 1000, code=PENDING), "1 of 1,000 requests had no prediction"),
        (answered(1000, 3_000_000), "it is 3,000.0 µs"),
        (
            answered(1000, 1000, code=SKIPPED),
            "skipped 1 of 1,000 requests, as all that 1 connection may have was in flight: raise --connections",
        ),
        (answered(100, 1000), "0 of 100 requests over the limit leave it open: 459 are needed, a longer --duration"),
    ],
)
def test_why_a_rate_does_not_pass(run: Run, reason: str) -> None:
    assert judge(run, 1000, SLO).reason == reason


@pytest.mark.parametrize(("limit_ns", "passes"), [(71_000, True), (69_000, False)])
def test_a_late_sender_fails_no_rate_that_keeps_the_limit_all_the_same(limit_ns: int, passes: bool) -> None:
    """Its lateness is within the 70 µs: what keeps the limit with it keeps it without."""
    offsets_ns = Constant(1000, 1).offsets_ns()
    run = run_of(offsets_ns, offsets_ns + 20_000, offsets_ns + 70_000)
    reason = judge(run, 1000, Slo(P99, limit_ns)).reason
    assert reason == "" if passes else reason.startswith("the sender was late: 20.0 of the p50")


def test_a_run_that_is_too_short_ends_the_search() -> None:
    found: Goodput = search(lambda _: answered(100, 1000), SLO, 1000)
    assert (found.rate_hz, len(found.probes), found.stopped) == (0, 1, "")
    assert found.describe().startswith("goodput 0/s")
    assert found.probes[0].reason in found.describe()


def ending_after(count: int, run: Run | None = None) -> Callable[[float], Run]:
    """All up to 5,000/s passes; after so many runs there is this one, or none."""
    made: list[float] = []

    def measure(rate_hz: float) -> Run:
        if len(made) == count:
            if run is None:
                raise StoppedError("nobody listens")
            return run
        made.append(rate_hz)
        return answered(rate_hz, 1000 if rate_hz <= 5000 else 3_000_000)

    return measure


def test_a_search_that_ends_early_tells_the_best_that_passed() -> None:
    found = search(ending_after(5, answered(1000, 1000, ending="interrupted")), SLO, 1000)
    assert [probe.rate_hz for probe in found.probes] == [1000, 2000, 4000, 8000, pytest.approx(5657, abs=1)]
    assert (found.rate_hz, found.best_hz) == (0, 4000)
    assert found.describe() == (
        "goodput at least 4,000/s, UNCONFIRMED: it passed once and takes two passes "
        "(p99 <= 2,000 µs, 99% confidence, no errors); at 5,657/s it is 3,000.0 µs; the search ended early: interrupted"
    )


def test_a_search_that_can_not_go_on_says_why() -> None:
    found = search(ending_after(1), SLO, 1000)
    assert (found.best_hz, found.stopped) == (1000, "nobody listens")
    assert found.describe().endswith("no higher rate was tried; the search ended early: nobody listens")
    nothing = search(ending_after(0), SLO, 1000)
    assert (nothing.best_hz, nothing.probes) == (0, ())
    assert nothing.describe().startswith("goodput unknown, no rate has passed so far")
    failed = search(ending_after(1), SLO, 8000)
    assert "goodput unknown" in failed.describe()
    assert "at 8,000/s it is 3,000.0 µs" in failed.describe()


def test_a_pass_above_a_failure_is_no_best() -> None:
    """4,000 failed after it had passed: the search went on below, and what passed there is told."""
    seen: list[float] = []

    def measure(rate_hz: float) -> Run:
        seen.append(rate_hz)
        if len(seen) > 3:
            raise StoppedError("enough")
        return answered(rate_hz, 1000 if len(seen) < 3 else 3_000_000)

    found = search(measure, SLO, 2000, rate_hz_max=4000)
    assert [(probe.rate_hz, probe.passed) for probe in found.probes] == [(2000, True), (4000, True), (4000, False)]
    assert found.best_hz == 2000


@pytest.mark.parametrize(
    ("rate_hz", "limit_ns", "in_flight", "connections"),
    [
        (100, 250_000, None, 4),  # 128 in flight are more than a queue takes
        (20_000, 10_000_000, None, 13),  # 400 in flight, 32 on each
        (20_000, 10_000_000, 64, 13),
        (20_000, 10_000_000, 8, 50),
        (100_000, 10**9, None, 256),
    ],
)
def test_connections_of_a_search(rate_hz: float, limit_ns: int, in_flight: int | None, connections: int) -> None:
    assert connections_for(rate_hz, Slo(P99, limit_ns), in_flight) == connections
