"""Percentiles: exact, by one method, against numpy and against the definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickpath.loadtest.latency import THIN_BELOW, nearest_rank, summarise

PER_MILLE = (500, 900, 990, 999, 1000)
samples = st.lists(st.integers(0, 10**9), min_size=1, max_size=300)


@given(samples, st.sampled_from(PER_MILLE))
def test_nearest_rank_is_its_definition(values: list[int], per_mille: int) -> None:
    found = nearest_rank(np.sort(np.array(values, np.int64)), per_mille)
    share = sum(value <= found for value in values) * 1000
    below = sum(value < found for value in values) * 1000
    assert found in values
    assert share >= len(values) * per_mille > below


@pytest.mark.parametrize("count", [1, 2, 3, 10, 99, 100, 101, 999, 1000, 1001, 9_999, 10_000, 12_345])
def test_agrees_with_numpy(count: int) -> None:
    values = np.random.default_rng(count).integers(0, 10**9, count)
    summary = summarise(values)
    expected = np.quantile(values, [0.5, 0.9, 0.99, 0.999], method="inverted_cdf")
    assert [summary.p50_ns, summary.p90_ns, summary.p99_ns, summary.p999_ns] == expected.tolist()
    assert summary.max_ns == values.max()
    assert summary.mean_ns == pytest.approx(values.mean())
    assert summary.count == count


def test_thin_below_ten_thousand_samples() -> None:
    assert summarise(np.ones(THIN_BELOW - 1, np.int64)).thin
    assert not summarise(np.ones(THIN_BELOW, np.int64)).thin


def test_no_samples_have_no_percentiles() -> None:
    with pytest.raises(ValueError, match="no samples"):
        summarise(np.array([], np.int64))
