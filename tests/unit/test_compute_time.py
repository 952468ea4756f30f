"""What a model takes, as it is learnt: quick to follow, hard to fool, and never shut for good."""

import random
from collections.abc import Callable

import pytest

from tickpath.server.compute_time import ComputeTime

MS = 1_000_000


def noted(time: ComputeTime, *times_ns: int) -> ComputeTime:
    for each in times_ns:
        time.note(each, each)
    return time


def test_what_never_changes_stays() -> None:
    time = noted(ComputeTime(MS), *[MS] * 20)
    assert time.mean_ns == MS
    assert time.high_ns == pytest.approx(MS, rel=0.04)


@pytest.mark.parametrize(("before_ns", "after_ns"), [(MS, 3 * MS), (3 * MS, MS), (MS, MS // 10)])
def test_the_mean_follows_a_change_within_a_hundred(before_ns: int, after_ns: int) -> None:
    time = noted(ComputeTime(before_ns), *[before_ns] * 100, *[after_ns] * 100)
    assert time.mean_ns == pytest.approx(after_ns, rel=0.02)


def test_one_pause_says_little() -> None:
    time = noted(ComputeTime(MS), 10_000 * MS)
    assert time.mean_ns < 1.2 * MS
    assert time.high_ns < 1.04 * MS


def test_a_time_that_is_not_known_yet_is_the_first_that_comes() -> None:
    time = ComputeTime(0)
    for _ in range(100):
        time.note(MS, MS)
    assert time.mean_ns == pytest.approx(MS, rel=0.02)
    assert time.high_ns > 0


@pytest.mark.parametrize(
    "draw",
    [
        lambda chance: chance.uniform(0.9, 1.1),
        lambda chance: chance.expovariate(1),
        lambda chance: chance.lognormvariate(0, 0.5),
    ],
    ids=["uniform", "exponential", "lognormal"],
)
def test_the_high_is_where_one_in_a_hundred_is_above(draw: Callable[[random.Random], float]) -> None:
    chance, time, above = random.Random(0), ComputeTime(MS), 0
    for _ in range(20_000):
        noted(time, int(MS * draw(chance)))
    for _ in range(50_000):
        came_ns = int(MS * draw(chance))
        above += came_ns > time.high_ns
        noted(time, came_ns)
    assert 1 / 200 < above / 50_000 < 1 / 80


def test_a_busy_spell_is_forgotten() -> None:
    time = noted(ComputeTime(MS), *[8 * MS] * 200)
    high_ns = time.high_ns
    assert noted(time, *[MS] * 3_000).high_ns < high_ns / 2


def test_a_budget_needs_room_for_the_high_up_to_half_of_it_and_for_the_mean_always() -> None:
    time = ComputeTime(MS)
    time.high_ns = 4 * MS
    assert time.needed_ns(100 * MS) == 4 * MS
    assert time.needed_ns(6 * MS) == 3 * MS
    assert time.needed_ns(MS) == MS


def test_no_model_is_shut_for_good() -> None:
    """What is refused teaches nothing, so refusals by the mean alone lower it until one is tried."""
    time, budget_ns, refused = ComputeTime(50 * MS), 10 * MS, 0
    while time.needed_ns(budget_ns) > budget_ns:
        time.doubt()
        refused += 1
    assert 0 < refused < 3_000
