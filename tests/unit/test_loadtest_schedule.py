"""Schedules are pure."""

from itertools import pairwise

import numpy as np
import pytest

from tickpath.loadtest.schedule import constant_rate


def test_constant_rate_starts_at_the_start_and_keeps_the_interval() -> None:
    assert constant_rate(5_000, 1000, 4).tolist() == [5_000, 1_005_000, 2_005_000, 3_005_000]


def test_rounding_never_adds_up() -> None:
    times = constant_rate(0, 3, 3_000_001)
    assert times[-1] == 1_000_000 * 10**9
    assert set(np.diff(times)) == {333_333_333, 333_333_334}


def test_times_ascend_at_any_rate() -> None:
    for rate_hz in (0.5, 7, 1000, 99_999):
        assert all(earlier < later for earlier, later in pairwise(constant_rate(1, rate_hz, 100).tolist()))


@pytest.mark.parametrize("rate_hz", [0, -1, float("nan")])
def test_a_rate_is_positive(rate_hz: float) -> None:
    with pytest.raises(ValueError, match="above zero"):
        constant_rate(0, rate_hz, 1)
