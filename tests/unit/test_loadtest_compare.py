"""Comparisons of servers whose ratio is known."""

from collections.abc import Callable

import numpy as np
import pytest
from tests.simulated import run_of

from tickpath.loadtest.compare import BLOCKS_MIN, Comparison, Side, bootstrap_mean, compare
from tickpath.loadtest.errors import LoadTestError, StoppedError
from tickpath.loadtest.run import Ending, Run
from tickpath.loadtest.schedule import Constant
from tickpath.wire import Code

OFFSETS_NS = Constant(1000, 1).offsets_ns()
Measure = Callable[[Side, int], Run]


def bench(
    ratio: float, noise: float = 0.03, drift: float = 0.0, seed: int = 1, calls: list[str] | None = None
) -> Measure:
    """B takes `ratio` times as long as A; from run to run all of a run is off by `noise`, and each run is slower than
    the one before by `drift`."""
    rng = np.random.default_rng(seed)
    made = calls if calls is not None else []

    def measure(side: Side, block: int) -> Run:
        made.append(f"{side}{block}")
        scale = (ratio if side == "B" else 1) * np.exp(rng.normal(0, noise)) * (1 + drift) ** len(made)
        spans_ns = np.rint(scale * (50_000 + rng.exponential(10_000, len(OFFSETS_NS)))).astype(np.int64)
        return run_of(OFFSETS_NS, OFFSETS_NS, OFFSETS_NS + spans_ns)

    return measure


def test_a_against_itself_first_and_then_abba() -> None:
    calls: list[str] = []
    compare(bench(1, calls=calls), blocks=6)
    assert "".join(call[0] for call in calls) == "AAAA" * 6 + "ABBA" * 6
    assert [int(call[1:]) for call in calls] == [block for block in range(12) for _ in range(4)]


@pytest.mark.parametrize("ratio", [0.8, 1.2])
def test_a_difference_is_found_with_its_size(ratio: float) -> None:
    found = compare(bench(ratio))
    assert [difference.percentile for difference in found.differences] == ["p50", "p99"]
    for difference in found.differences:
        assert difference.claimed
        assert difference.ratio.low < ratio < difference.ratio.high
        assert difference.ratio.mean == pytest.approx(ratio, rel=0.05)
        assert len(difference.ratio.blocks) == found.blocks == 10
    assert found.problems == ()
    word = "slower" if ratio > 1 else "faster"
    assert f"B is {abs(found.differences[0].ratio.mean - 1):.1%} {word} (" in found.differences[0].describe()


def claims(make: Callable[[int], Measure], times: int = 60) -> float:
    """How often a difference of the median is claimed."""
    return float(np.mean([compare(make(seed), blocks=6, seed=seed).differences[0].claimed for seed in range(times)]))


def test_none_is_claimed_where_there_is_none() -> None:
    """At most as often as 95 % confidence lets it happen, and four standard errors of that share."""
    assert claims(lambda seed: bench(1, seed=seed)) < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 60)


def test_most_are_claimed_where_there_is_one() -> None:
    assert claims(lambda seed: bench(1.15, seed=seed)) > 0.9


def test_drift_weighs_on_both_alike() -> None:
    """Everything slows down by 5 % a run: 10 blocks end 50 times slower than they began."""
    found = compare(bench(1.1, noise=0.01, drift=0.05)).differences[0]
    assert found.ratio.mean == pytest.approx(1.1, rel=0.02)
    assert found.control.mean == pytest.approx(1, rel=0.02)


def test_the_claimable_difference_grows_with_the_noise() -> None:
    quiet, noisy = (compare(bench(1, noise=noise)).differences[0] for noise in (0.01, 0.1))
    assert quiet.claimable < 0.02
    assert noisy.claimable > 0.05
    assert noisy.describe() == f"p50: no difference that can be claimed; here that takes {noisy.claimable:.1%}"


def spoilt(number: int, *, code: int = 0, late_ns: int = 0, ending: Ending = "complete") -> Measure:
    """The run of that number, from 0, is not like the others."""
    rng_runs = bench(1)
    made: list[Run] = []

    def measure(side: Side, block: int) -> Run:
        run = rng_runs(side, block)
        made.append(run)
        if len(made) != number + 1:
            return run
        codes = np.full(len(OFFSETS_NS), 0, np.int32)
        codes[:3] = code
        spans_ns = run.latency_ns()
        return run_of(OFFSETS_NS, OFFSETS_NS + late_ns, OFFSETS_NS + spans_ns + late_ns, codes, ending)

    return measure


def test_a_run_that_can_not_be_trusted_spoils_the_comparison() -> None:
    late = compare(spoilt(4 * BLOCKS_MIN + 5, late_ns=100_000), blocks=BLOCKS_MIN)
    assert len(late.problems) == 1
    assert late.problems[0].startswith("ABBA block 2, B: the sender was late")
    failed = compare(spoilt(0, code=Code.OVERLOADED), blocks=BLOCKS_MIN)
    assert failed.problems == ("AAAA block 1, A: 3 requests ended with an error",)
    assert failed.differences


def test_an_interruption_ends_it_with_the_blocks_that_are_whole() -> None:
    found: Comparison = compare(spoilt(4 * 10 + 4 * 7 + 1, ending="interrupted"))
    assert (found.blocks, found.stopped) == (7, "interrupted")
    assert len(found.differences) == 2


@pytest.mark.parametrize("ending", ["interrupted", "server lost"])
@pytest.mark.parametrize(
    ("number", "lack", "a_runs", "b_runs"),
    [
        (5, "1 block of AAAA whole, a comparison takes 10", 5, 0),
        (4 * 10 + 4 * 5 + 2, "5 blocks of ABBA whole, a comparison takes 6", 40 + 11, 11),
    ],
)
def test_of_too_few_blocks_the_runs_are_kept(ending: Ending, number: int, lack: str, a_runs: int, b_runs: int) -> None:
    found = compare(spoilt(number, ending=ending))
    assert found.differences == ()
    assert found.stopped.endswith(lack)
    assert found.stopped.startswith({"interrupted": "interrupted", "server lost": "the server was lost"}[ending])
    sides = [side for side, _ in found.runs]
    assert (sides.count("A"), sides.count("B")) == (a_runs, b_runs)
    assert all(run.ending == "complete" for _, run in found.runs)


def test_a_run_that_can_not_begin_ends_it_likewise() -> None:
    calls: list[str] = []
    good = bench(1, calls=calls)

    def measure(side: Side, block: int) -> Run:
        if len(calls) == 50:
            raise StoppedError("nobody listens")
        return good(side, block)

    found = compare(measure, blocks=6)
    assert (found.blocks, found.stopped, len(found.runs)) == (6, "", 48)
    calls.clear()
    found = compare(measure, blocks=7)
    assert found.stopped == "nobody listens; 5 blocks of ABBA whole, a comparison takes 6"
    assert len(found.runs) == 50


def test_without_a_run_there_is_nothing_to_tell() -> None:
    with pytest.raises(LoadTestError, match="interrupted; 0 blocks of AAAA whole, a comparison takes 10"):
        compare(spoilt(0, ending="interrupted"))


def test_too_few_blocks() -> None:
    with pytest.raises(LoadTestError, match="takes 6 blocks at least, 5 came"):
        compare(bench(1), blocks=5)


def test_nothing_answered() -> None:
    nothing = run_of(OFFSETS_NS, OFFSETS_NS, OFFSETS_NS, np.full(len(OFFSETS_NS), Code.OVERLOADED, np.int32))
    with pytest.raises(LoadTestError, match="nothing to compare: no request was answered"):
        compare(lambda _side, _block: nothing)


@pytest.mark.parametrize("count", [6, 10, 20])
def test_the_bootstrap_holds_the_true_mean_about_as_often_as_it_says(count: int) -> None:
    """95 %, and never less than 90 %, of 200 experiments; a skewed distribution is the harder case."""
    rng = np.random.default_rng(count)
    for values in (rng.normal(0, 1, (200, count)), rng.exponential(1, (200, count)) - 1):
        intervals = [bootstrap_mean(row, seed) for seed, row in enumerate(values)]
        assert np.mean([low <= 0 <= high for low, high in intervals]) > 0.9


def test_the_bootstrap_of_equal_values_is_that_value() -> None:
    assert bootstrap_mean(np.full(6, 0.5), 1) == (0.5, 0.5)
