"""Schedules: what arithmetic gives, the same each time, in order, within the run."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickpath.loadtest.errors import LoadTestError
from tickpath.loadtest.schedule import Bursts, Constant, Poisson, Ramp, Replay, Schedule

rates = st.floats(0.5, 50_000)
lengths = st.floats(0.1, 2)
any_schedule = st.one_of(
    st.builds(Constant, rates, lengths),
    st.builds(Poisson, st.floats(200, 50_000), lengths, st.integers(0, 99)),
    st.builds(Bursts, st.floats(1000, 50_000), st.floats(0.001, 1), st.floats(0.001, 1), lengths),
    st.builds(Ramp, st.one_of(st.just(0.0), rates), rates, lengths),
)


@given(any_schedule)
def test_any_schedule_ascends_from_the_start_and_ends_within_the_run(
    schedule: Constant | Poisson | Bursts | Ramp,
) -> None:
    offsets_ns = schedule.offsets_ns()
    assert offsets_ns.dtype == np.int64
    assert offsets_ns[0] >= 0
    assert (np.diff(offsets_ns) >= 0).all()
    assert offsets_ns[-1] < schedule.seconds * 1e9
    assert np.array_equal(offsets_ns, schedule.offsets_ns())


def test_constant_keeps_the_interval() -> None:
    assert Constant(1000, 0.004).offsets_ns().tolist() == [0, 1_000_000, 2_000_000, 3_000_000]


def test_rounding_never_adds_up() -> None:
    offsets_ns = Constant(3, 1_000_000).offsets_ns()
    assert offsets_ns[-1] == 999_999_666_666_667
    assert set(np.diff(offsets_ns)) == {333_333_333, 333_333_334}


def kolmogorov_smirnov(samples: npt.NDArray[np.float64], cdf: Callable[[npt.NDArray[np.float64]], object]) -> float:
    """The largest distance of the empirical distribution from `cdf`, times the root of the count: where the samples
    are from it, whatever it is, above 1.36 in 5 of 100 cases and above 1.95 in 1 of 1,000."""
    expected, count = np.asarray(cdf(np.sort(samples))), len(samples)
    steps = np.arange(count + 1) / count
    return float(np.sqrt(count) * max((steps[1:] - expected).max(), (expected - steps[:-1]).max()))


def exponential(gaps: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return 1 - np.exp(-gaps)


def poisson_gaps(rate_hz: float, seconds: float, seed: int) -> npt.NDArray[np.float64]:
    """In units of the mean."""
    return np.diff(Poisson(rate_hz, seconds, seed).offsets_ns()) * rate_hz / 1e9


def test_poisson_gaps_are_exponential_and_independent() -> None:
    gaps = poisson_gaps(2000, 10, 1)
    assert kolmogorov_smirnov(gaps, exponential) < 1.95
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 4 / np.sqrt(len(gaps))


def test_poisson_gaps_of_many_seeds_are_as_far_from_exponential_as_chance_has_it() -> None:
    distances = np.array([kolmogorov_smirnov(poisson_gaps(2000, 1, seed), exponential) for seed in range(400)])
    assert np.mean(distances > 1.36) == pytest.approx(0.05, abs=4 * np.sqrt(0.05 * 0.95 / 400))


def test_that_test_tells_other_gaps_apart() -> None:
    gaps = np.diff(Constant(2000, 10).offsets_ns()) * 2000 / 1e9
    assert kolmogorov_smirnov(gaps, exponential) > 10
    gamma = np.random.default_rng(0).gamma(1.1, 1 / 1.1, 20_000)  # nearly exponential, mean 1
    assert kolmogorov_smirnov(gamma, exponential) > 1.95


def test_poisson_counts_vary_like_a_poisson_count() -> None:
    counts = np.array([len(Poisson(1000, 1, seed).offsets_ns()) for seed in range(400)])
    assert counts.mean() == pytest.approx(1000, abs=4 * np.sqrt(1000 / 400))
    assert counts.var() == pytest.approx(1000, rel=4 * np.sqrt(2 / 400))


def test_another_seed_is_another_schedule() -> None:
    assert not np.array_equal(Poisson(1000, 1, 1).offsets_ns()[:10], Poisson(1000, 1, 2).offsets_ns()[:10])


def test_bursts_are_on_and_off() -> None:
    offsets_ms = Bursts(rate_hz=1000, on_s=0.003, off_s=0.097, seconds=0.25).offsets_ns() / 1e6
    assert offsets_ms.tolist() == [0, 1, 2, 100, 101, 102, 200, 201, 202]


@pytest.mark.parametrize(
    ("rate_hz", "on_s", "off_s", "mean"),
    [(1000, 0.001, 0.009, "100"), (1500, 0.001, 0.001, "1,000"), (300, 1, 2, "100")],
)
def test_the_mean_that_bursts_promise_is_the_one_they_keep(
    rate_hz: float, on_s: float, off_s: float, mean: str
) -> None:
    bursts = Bursts(rate_hz, on_s, off_s, seconds=100 * (on_s + off_s))
    assert len(bursts.offsets_ns()) / bursts.seconds == pytest.approx(float(mean.replace(",", "")))
    assert bursts.describe().endswith(f"mean {mean}/s)")


@pytest.mark.parametrize(("from_hz", "to_hz"), [(0, 4000), (1000, 3000), (3000, 1000), (2000, 2000)])
def test_a_ramp_has_the_area_under_its_rate(from_hz: float, to_hz: float) -> None:
    offsets_ns = Ramp(from_hz, to_hz, 10).offsets_ns()
    for second in range(11):
        area = from_hz * second + (to_hz - from_hz) / 10 * second**2 / 2
        assert abs(np.count_nonzero(offsets_ns < second * 1e9) - area) <= 1


def replay(speed: float = 1.0, skip: int = 0, pause_s_max: float | None = None, seconds: float | None = None) -> Replay:
    arrivals_ns = np.array([7, 7, 7, 10**9 + 7, 10**9 + 9, 100 * 10**9 + 9])
    return Replay(arrivals_ns, "a.csv", speed, skip, pause_s_max, seconds)


@pytest.mark.parametrize(
    ("schedule", "expected", "words"),
    [
        (replay(), [0, 0, 0, 10**9, 10**9 + 2, 100 * 10**9 + 2], "replay of a.csv at 1x"),
        (replay(speed=10), [0, 0, 0, 10**8, 10**8, 10**10], "replay of a.csv at 10x"),
        (replay(speed=0.5, seconds=3), [0, 0, 0, 2 * 10**9, 2 * 10**9 + 4], "replay of a.csv at 0.5x"),
        (replay(skip=3), [0, 2, 99 * 10**9 + 2], "replay of a.csv at 1x, without the first 3"),
        (
            replay(pause_s_max=2, skip=3),
            [0, 2, 2 * 10**9 + 2],
            "replay of a.csv at 1x, without the first 3, 1 pause cut to 2 s",
        ),
        (
            replay(pause_s_max=0.5, seconds=0.6),
            [0, 0, 0, 5 * 10**8, 5 * 10**8 + 2],
            "replay of a.csv at 1x, 1 pause cut to 0.5 s",
        ),
    ],
)
def test_replay(schedule: Replay, expected: list[int], words: str) -> None:
    assert schedule.offsets_ns().tolist() == expected
    assert schedule.describe() == words


def test_descriptions() -> None:
    schedules: list[Schedule] = [Constant(2000, 1), Poisson(1500, 1, 7), Bursts(5000, 0.1, 0.9, 1), Ramp(0, 4000, 1)]
    assert [schedule.describe() for schedule in schedules] == [
        "constant 2,000/s",
        "Poisson 1,500/s, seed 7",
        "bursts of 100 ms at 5,000/s, 900 ms apart (peak 5,000/s, mean 500/s)",
        "ramp from 0/s to 4,000/s",
    ]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Constant(0, 1), "a rate is above zero requests a second, 0 came"),
        (lambda: Poisson(float("nan"), 1, 0), "a rate is above zero requests a second, nan came"),
        (lambda: Constant(1, -1), "a run is above zero seconds, -1 came"),
        (lambda: Constant(1e6, 1e6), "20,000,000 requests at most, 1,000,000,000,000 came"),
        (lambda: Bursts(1e6, 1, 1, 100), "requests at most"),
        (lambda: Bursts(1000, 1e-4, 9e-4, 10), "one request at least, 0.1 ms at 1,000/s hold 0.1: longer bursts"),
        (lambda: Bursts(10, 1, 0, 10), "the time between bursts is above zero"),
        (lambda: Ramp(-1, 10, 10), "first rate"),
        (lambda: Ramp(1, float("inf"), 10), "last rate"),
        (lambda: replay(speed=0), "speed is above zero"),
        (lambda: replay(skip=6), "a.csv has 6 arrivals, 6 can't be skipped"),
        (lambda: replay(pause_s_max=-1), "longest pause"),
        (lambda: Poisson(0.001, 0.1, 0).offsets_ns(), "no arrival in 0.1 s: a longer run"),
    ],
)
def test_what_can_not_be_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(LoadTestError, match=message):
        make()


def test_times_ascend_at_any_rate() -> None:
    for rate_hz in (0.5, 7, 1000, 99_999):
        offsets = Constant(rate_hz, 100 / rate_hz).offsets_ns().tolist()
        assert len(offsets) == 100
        assert all(earlier < later for earlier, later in pairwise(offsets))
