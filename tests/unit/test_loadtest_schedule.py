"""Schedules are pure; pacing keeps them on a clock that the test holds."""

from itertools import pairwise

import numpy as np
import pytest

from tickpath.loadtest.pace import SPIN_NS, wait_until
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


class Clock:
    """Time that passes by 100 ns at each look, and by what is slept plus `oversleep_ns`."""

    def __init__(self, oversleep_ns: int) -> None:
        self.now_ns = 0
        self.slept: list[float] = []
        self._oversleep_ns = oversleep_ns

    def read(self) -> int:
        self.now_ns += 100
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_ns += round(seconds * 1e9) + self._oversleep_ns


def test_sleeps_while_far_and_spins_when_near() -> None:
    clock = Clock(oversleep_ns=SPIN_NS // 2)
    now_ns = wait_until(1_000_000, clock.read, clock.sleep)
    assert 1_000_000 <= now_ns < 1_000_000 + 200
    assert len(clock.slept) == 1


def test_near_times_are_not_slept_for() -> None:
    clock = Clock(oversleep_ns=0)
    wait_until(SPIN_NS, clock.read, clock.sleep)
    assert clock.slept == []


def test_a_time_that_is_over_is_not_waited_for() -> None:
    clock = Clock(oversleep_ns=0)
    clock.now_ns = 5_000
    assert wait_until(1_000, clock.read, clock.sleep) == 5_100
