"""Histograms against numpy and against the plainest possible account."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tickpath.observe.histograms import (
    BUCKET_BOUNDS_NS,
    CELLS,
    VALUE_NS_MAX,
    VALUE_NS_MIN,
    SlidingWindow,
    bucket_index,
    cell_index,
    cell_value_ns,
    quantile_ns,
)

PRECISION = 0.01

# Evenly over the octaves, as latencies come, and not over the values, which would nearly all be above a second.
latencies_ns = st.floats(np.log(VALUE_NS_MIN), np.log(VALUE_NS_MAX)).map(
    lambda power: min(max(round(np.exp(power)), VALUE_NS_MIN), VALUE_NS_MAX)
)


@given(latencies_ns)
def test_a_cell_is_within_the_stated_precision_of_every_value_in_it(value_ns: int) -> None:
    (cell,) = cell_index(np.array([value_ns]))
    assert 0 <= cell < CELLS
    assert abs(cell_value_ns(int(cell)) - value_ns) <= PRECISION * value_ns


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1))
def test_what_is_out_of_range_counts_at_the_nearer_end(values_ns: list[int]) -> None:
    cells = cell_index(np.array(values_ns))
    for value_ns, cell in zip(values_ns, cells, strict=True):
        assert value_ns > VALUE_NS_MIN or cell == 0
        assert value_ns < VALUE_NS_MAX or cell == CELLS - 1


@given(st.lists(latencies_ns, min_size=1, max_size=2000), st.sampled_from(["0", "0.5", "0.9", "0.99", "0.999", "1"]))
def test_quantiles_are_numpys_within_the_stated_precision(values_ns: list[int], quantile: str) -> None:
    counts = np.bincount(cell_index(np.array(values_ns)), minlength=CELLS)
    # Nearest rank is numpy's inverted_cdf; numpy's own rank is a float and can be one off, so it is done by hand here.
    rank = max(1, -(-len(values_ns) * round(1000 * float(quantile)) // 1000))
    expected = sorted(values_ns)[rank - 1]
    assert abs(quantile_ns(counts, quantile) - expected) <= PRECISION * expected


def test_quantiles_of_a_large_sample_are_numpys_inverted_cdf() -> None:
    values_ns = np.random.default_rng(1).lognormal(np.log(50_000), 1.0, 100_000).astype(np.int64)
    counts = np.bincount(cell_index(values_ns), minlength=CELLS)
    for quantile in ("0.5", "0.99", "0.999"):
        expected = np.quantile(values_ns, float(quantile), method="inverted_cdf")
        assert quantile_ns(counts, quantile) == pytest.approx(expected, rel=PRECISION)


def test_the_rank_of_a_quantile_is_exact() -> None:
    """As floats, 0.999 * 1000 may round to either side of 999."""
    counts = np.zeros(CELLS, np.int64)
    counts[10], counts[20] = 999, 1
    assert quantile_ns(counts, "0.999") == cell_value_ns(10)
    counts[10], counts[20] = 998, 2
    assert quantile_ns(counts, "0.999") == cell_value_ns(20)


def in_prometheus(quantile: float, values_ns: list[int]) -> float:
    """What histogram_quantile makes of these values, in ns: linear inside the bucket that holds the rank."""
    cumulative = np.cumsum(np.bincount(bucket_index(np.array(values_ns)), minlength=len(BUCKET_BOUNDS_NS) + 1))
    rank = quantile * cumulative[-1]
    bucket = int(np.searchsorted(cumulative, rank))
    below, bound = (0 if bucket == 0 else int(BUCKET_BOUNDS_NS[bucket - 1])), int(BUCKET_BOUNDS_NS[bucket])
    before = 0 if bucket == 0 else int(cumulative[bucket - 1])
    return float(below + (bound - below) * (rank - before) / (int(cumulative[bucket]) - before))


@pytest.mark.parametrize("spread", [0.0, 0.05, 0.5])
@pytest.mark.parametrize("factor", [1.7, 3, 10, 100])
@pytest.mark.parametrize("median_ns", [10_000, 50_000, 700_000, 20_000_000])
def test_a_model_that_gets_slower_moves_every_percentile(median_ns: int, factor: float, spread: float) -> None:
    """Ten times slower shows as about ten times in each, whatever the shape; a bucket's width is the error."""
    values = np.random.default_rng(3).lognormal(np.log(median_ns), spread, 20_000)
    before, after = values.astype(np.int64).tolist(), (values * factor).astype(np.int64).tolist()
    for quantile in (0.01, 0.1, 0.5, 0.9, 0.99, 0.999):
        moved = in_prometheus(quantile, after) / in_prometheus(quantile, before)
        assert factor / (5 / 3) <= moved <= factor * (5 / 3)


def test_no_values_have_quantile_0() -> None:
    assert quantile_ns(np.zeros(CELLS, np.int64), "0.99") == 0


def test_bounds_ascend_from_1_us_to_10_s_in_steps_of_five_thirds_at_most() -> None:
    assert BUCKET_BOUNDS_NS[0] == 1_000
    assert BUCKET_BOUNDS_NS[-1] == 10 * 10**9
    ratios = BUCKET_BOUNDS_NS[1:] / BUCKET_BOUNDS_NS[:-1]
    assert ratios.min() > 1
    assert ratios.max() <= 5 / 3 + 1e-9


@given(st.lists(st.one_of(latencies_ns, st.sampled_from(BUCKET_BOUNDS_NS.tolist())), min_size=1))
def test_a_bucket_holds_what_is_at_or_below_its_bound(values_ns: list[int]) -> None:
    for value_ns, index in zip(values_ns, bucket_index(np.array(values_ns)), strict=True):
        bounds = [*BUCKET_BOUNDS_NS.tolist(), float("inf")]
        assert value_ns <= bounds[index]
        assert index == 0 or value_ns > bounds[index - 1]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 90), st.lists(st.tuples(st.integers(0, 2), latencies_ns), max_size=5))))
def test_the_window_is_the_sum_of_its_last_60_seconds(steps: list[tuple[int, list[tuple[int, int]]]]) -> None:
    window = SlidingWindow(3)
    kept: list[tuple[int, int, int]] = []
    now_s = 1_000
    for pause_s, values in steps:
        now_s += pause_s
        window.advance(now_s)
        if values:
            window.add(np.array([row for row, _ in values]), np.array([value for _, value in values]))
        kept += [(now_s, row, value) for row, value in values]
        expected = np.zeros((3, CELLS), np.int64)
        for second, row, value in kept:
            if second > now_s - SlidingWindow.WINDOW_S:
                expected[row, cell_index(np.array([value]))] += 1
        assert np.array_equal(window.counts, expected)


@pytest.mark.parametrize("pause_s", [60, 61, 75, 119, 10_000])
def test_a_long_pause_empties_a_full_window(pause_s: int) -> None:
    window = SlidingWindow(1)
    for second in range(100, 160):
        window.advance(second)
        window.add(np.array([0]), np.array([1_000]))
    assert window.counts.sum() == SlidingWindow.WINDOW_S
    window.advance(159 + pause_s)
    assert not window.counts.any()


def test_a_window_that_grows_keeps_what_it_has() -> None:
    window = SlidingWindow(1)
    window.advance(5)
    window.add(np.array([0]), np.array([1_000]))
    window.grow(3)
    window.add(np.array([2]), np.array([1_000]))
    assert window.counts.sum(axis=1).tolist() == [1, 0, 1]
    window.advance(5 + SlidingWindow.WINDOW_S)
    assert not window.counts.any()
