"""Percentiles: exact, by one method, against numpy and against the definition; intervals that hold what they say."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickpath.loadtest.binomial import Binomial
from tickpath.loadtest.latency import P50, P90, P95, P99, P999, P9999, interval, is_thin, nearest_rank, summarise

QUANTILES = (P50, P90, P95, P99, P999, P9999, Fraction(1))
samples = st.lists(st.integers(0, 10**9), min_size=1, max_size=300)


@given(samples, st.sampled_from(QUANTILES))
def test_nearest_rank_is_its_definition(values: list[int], quantile: Fraction) -> None:
    found = nearest_rank(np.sort(np.array(values, np.int64)), quantile)
    at_most = sum(value <= found for value in values)
    below = sum(value < found for value in values)
    assert found in values
    assert at_most >= len(values) * quantile > below


@pytest.mark.parametrize("count", [1, 2, 3, 10, 53, 99, 100, 101, 999, 1000, 1001, 9_999, 10_000, 12_345, 1_000_000])
def test_agrees_with_numpy(count: int) -> None:
    values = np.random.default_rng(count).integers(0, 10**9, count)
    summary = summarise(values)
    found = [
        summary.p50_ns,
        summary.p90_ns,
        summary.p95_ns,
        summary.p99_ns,
        summary.p999_ns,
        summary.p9999_ns,
        summary.max_ns,
    ]
    shares = [0.5, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0]
    assert found == np.quantile(values, shares, method="inverted_cdf").tolist()
    assert found == sorted(found)
    assert summary.mean_ns == pytest.approx(values.mean())
    assert summary.count == count


def test_thin_with_fewer_than_ten_samples_beyond() -> None:
    assert summarise(np.ones(9_999, np.int64)).thin
    assert not summarise(np.ones(10_000, np.int64)).thin
    assert is_thin(999, P99)
    assert not is_thin(1000, P99)


def test_no_samples_have_no_percentiles() -> None:
    with pytest.raises(ValueError, match="no samples"):
        summarise(np.array([], np.int64))


@pytest.mark.parametrize(("trials", "chance"), [(1, 0.5), (2, 0.999), (53, 0.99), (200, 0.001), (200, 0.5)])
def test_binomial_is_its_definition(trials: int, chance: float) -> None:
    binomial, share, at_most = Binomial(trials, chance), Fraction(chance), Fraction(0)
    for count in range(trials + 1):
        at_most += math.comb(trials, count) * share**count * (1 - share) ** (trials - count)
        assert binomial.at_most(count) == pytest.approx(float(at_most), abs=1e-12)


@given(st.integers(1, 10**7), st.floats(1e-4, 0.9999), st.floats(0.001, 0.999))
def test_a_quantile_is_the_first_count_that_is_likely_enough(trials: int, chance: float, probability: float) -> None:
    binomial = Binomial(trials, chance)
    found = binomial.quantile(probability)
    assert binomial.at_most(found) >= probability > binomial.at_most(found - 1)


def test_none_of_many_is_exact_far_from_the_mean() -> None:
    assert Binomial(1_000_000, 1e-5).at_most(0) == pytest.approx((1 - 1e-5) ** 1_000_000, rel=1e-6)


@pytest.mark.parametrize(("quantile", "count"), [(P50, 20), (P50, 1001), (P99, 2000), (P999, 10_000)])
def test_intervals_hold_the_true_percentile_as_often_as_they_say(quantile: Fraction, count: int) -> None:
    """Of 2,000 experiments; the standard error of that share is half a per cent at most. The ranks are whole, so the
    interval may hold more often than it must, never less."""
    rng = np.random.default_rng(5)
    truth_ns = -1e6 * math.log(1 - float(quantile))
    held = 0
    for _ in range(2000):
        found = interval(np.sort(np.rint(rng.exponential(1e6, count)).astype(np.int64)), quantile)
        held += (found.low_ns or 0) <= truth_ns and (found.high_ns is None or truth_ns <= found.high_ns)
    assert 0.935 < held / 2000 < 0.99


def test_known_ranks() -> None:
    """The textbook interval of a median of 10 lies between the second and the ninth sample: 97.9 %."""
    found = interval(np.arange(1, 11), P50)
    assert (found.low_ns, found.high_ns, found.confidence) == (2, 9, 0.95)


def test_too_few_samples_have_no_bound() -> None:
    assert interval(np.array([7]), P50).low_ns is None
    assert interval(np.arange(3687), P999).high_ns is None
    assert interval(np.arange(3688), P999).high_ns == 3687  # 0.999 ** 3688 < 2.5 %
