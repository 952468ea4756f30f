"""Pacing keeps to a clock that the test holds."""

from tickpath.loadtest.pace import SPIN_NS, wait_until


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
