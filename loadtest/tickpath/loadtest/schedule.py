"""When requests are meant to leave. Pure: no clock, no sleep, no file; the same values give the same times.

Every schedule has `offsets_ns()`, int64[count], nanoseconds from the start of the run, in order, each before
`seconds` are over; and `describe()` for people. Both what can't be and what holds no request raise LoadTestError.
"""

import math
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from tickpath.loadtest.errors import LoadTestError
from tickpath.loadtest.words import rate_text

NANOSECONDS = npt.NDArray[np.int64]

# A request's row has 80 bytes and its frame stays in memory: what a run of this many needs, few machines have to spare.
REQUESTS_MAX: Final = 20_000_000


class Schedule(Protocol):
    """When to send."""

    def offsets_ns(self) -> NANOSECONDS: ...

    def describe(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Constant:
    """`rate_hz` requests a second at equal distances, the first at once."""

    rate_hz: float
    seconds: float

    def __post_init__(self) -> None:
        _above_zero("a rate", self.rate_hz, "requests a second")
        _check_length(self.rate_hz, self.seconds)

    def offsets_ns(self) -> NANOSECONDS:
        """Each is computed from the start, so rounding never adds up."""
        return _spaced(self.rate_hz, self.seconds)

    def describe(self) -> str:
        return f"constant {rate_text(self.rate_hz)}/s"


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent users: gaps are exponential, their mean is 1 / `rate_hz`."""

    rate_hz: float
    seconds: float
    seed: int

    def __post_init__(self) -> None:
        _above_zero("a rate", self.rate_hz, "requests a second")
        _check_length(self.rate_hz, self.seconds)

    def offsets_ns(self) -> NANOSECONDS:
        """A Poisson process has a Poisson count, and given that, its times are uniform."""
        rng = np.random.default_rng(self.seed)
        count = rng.poisson(self.rate_hz * self.seconds)
        if not count:
            raise LoadTestError(f"{self.describe()} has no arrival in {self.seconds:g} s: a longer run, a higher rate")
        return np.sort(rng.integers(0, round(self.seconds * 1e9), count))

    def describe(self) -> str:
        return f"Poisson {rate_text(self.rate_hz)}/s, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class Bursts:
    """On for `on_s` with `rate_hz` requests a second at equal distances, then off for `off_s`, and again. A burst holds
    `on_s` x `rate_hz` requests, rounded, and the first leaves as it begins."""

    rate_hz: float
    on_s: float
    off_s: float
    seconds: float

    def __post_init__(self) -> None:
        _above_zero("a rate", self.rate_hz, "requests a second")
        _above_zero("a burst", self.on_s, "seconds")
        _above_zero("the time between bursts", self.off_s, "seconds")
        if round(self.on_s * self.rate_hz, 9) < 1:
            raise LoadTestError(
                f"a burst holds one request at least, {self.on_s * 1e3:g} ms at {rate_text(self.rate_hz)}/s hold "
                f"{self.on_s * self.rate_hz:.2g}: longer bursts, or a higher rate"
            )
        _check_length(self.rate_hz, self.seconds)

    def offsets_ns(self) -> NANOSECONDS:
        burst_ns = _spaced(self.rate_hz, min(self.on_s, self.seconds))
        period_s = self.on_s + self.off_s
        starts_ns = _whole_ns(np.arange(math.ceil(self.seconds / period_s)) * (period_s * 1e9))
        offsets_ns: NANOSECONDS = (starts_ns[:, None] + burst_ns).ravel()
        return offsets_ns[offsets_ns < self.seconds * 1e9]

    def describe(self) -> str:
        mean_hz = max(1, round(self.rate_hz * self.on_s)) / (self.on_s + self.off_s)
        shape = f"bursts of {self.on_s * 1e3:g} ms at {rate_text(self.rate_hz)}/s, {self.off_s * 1e3:g} ms apart"
        return f"{shape} (peak {rate_text(self.rate_hz)}/s, mean {rate_text(mean_hz)}/s)"


@dataclass(frozen=True, slots=True)
class Ramp:
    """A rate that grows, or falls, steadily from `from_hz` to `to_hz`."""

    from_hz: float
    to_hz: float
    seconds: float

    def __post_init__(self) -> None:
        if self.from_hz != 0:
            _above_zero("a ramp's first rate", self.from_hz, "requests a second")
        _above_zero("a ramp's last rate", self.to_hz, "requests a second")
        _check_length(max(self.from_hz, self.to_hz), self.seconds)

    def offsets_ns(self) -> NANOSECONDS:
        """Request k leaves when the area under the rate is k: k = from·t + slope·t²/2, solved for t in the form that
        also stands a slope of zero."""
        count = max(1, round((self.from_hz + self.to_hz) / 2 * self.seconds))
        slope = (self.to_hz - self.from_hz) / self.seconds
        k = np.arange(count, dtype=np.float64)
        # Rounding may put the end of a falling ramp a hair below zero, and 0 / 0 is where a ramp from zero starts.
        root = np.sqrt(np.maximum(self.from_hz**2 + 2 * slope * k, 0))
        return _whole_ns(2 * k / np.maximum(self.from_hz + root, np.finfo(np.float64).tiny) * 1e9)

    def describe(self) -> str:
        return f"ramp from {rate_text(self.from_hz)}/s to {rate_text(self.to_hz)}/s"


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """Arrivals as they came, `speed` times as fast, from the arrival `skip` on, which leaves at once.

    `arrivals_ns`: int64[count], in order. `source` says where they are from. Pauses above `pause_s_max` (as recorded,
    before the speed) last so long and no longer: a night without trade need not be waited for. `seconds` ends the
    replay early; None replays all.
    """

    arrivals_ns: NANOSECONDS
    source: str
    speed: float = 1.0
    skip: int = 0
    pause_s_max: float | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        _above_zero("a replay's speed", self.speed, "times the recorded one")
        if self.pause_s_max is not None:
            _above_zero("the longest pause", self.pause_s_max, "seconds")
        if self.seconds is not None:
            _above_zero("a run", self.seconds, "seconds")
        if not 0 <= self.skip < len(self.arrivals_ns):
            raise LoadTestError(f"{self.source} has {len(self.arrivals_ns):,} arrivals, {self.skip:,} can't be skipped")

    def offsets_ns(self) -> NANOSECONDS:
        gaps_ns = self._gaps_ns()
        if self.pause_s_max is not None:
            gaps_ns = np.minimum(gaps_ns, round(self.pause_s_max * 1e9))
        offsets_ns = _whole_ns(np.concatenate(([0], np.cumsum(gaps_ns))) / self.speed)
        end_ns = math.inf if self.seconds is None else self.seconds * 1e9
        offsets_ns = offsets_ns[offsets_ns < end_ns]
        if len(offsets_ns) > REQUESTS_MAX:
            raise _too_many(len(offsets_ns))
        return offsets_ns

    def describe(self) -> str:
        parts = [f"replay of {self.source} at {self.speed:g}x"]
        if self.skip:
            parts.append(f"without the first {self.skip:,}")
        if self.pause_s_max is not None:
            gaps_ns = self._gaps_ns()[: len(self.offsets_ns()) - 1]  # of those that are replayed
            cut = np.count_nonzero(gaps_ns > self.pause_s_max * 1e9)
            parts.append(f"{cut:,} {'pause' if cut == 1 else 'pauses'} cut to {self.pause_s_max:g} s")
        return ", ".join(parts)

    def _gaps_ns(self) -> NANOSECONDS:
        return np.diff(self.arrivals_ns[self.skip :])


def _spaced(rate_hz: float, seconds: float) -> NANOSECONDS:
    return _whole_ns(np.arange(max(1, round(rate_hz * seconds))) * (1e9 / rate_hz))


def _whole_ns(times_ns: npt.NDArray[np.floating]) -> NANOSECONDS:
    whole: NANOSECONDS = np.rint(times_ns).astype(np.int64)
    return whole


def _above_zero(name: str, value: float, unit: str) -> None:
    if not 0 < value < math.inf:
        raise LoadTestError(f"{name} is above zero {unit}, {value:g} came")


def _check_length(rate_hz: float, seconds: float) -> None:
    _above_zero("a run", seconds, "seconds")
    if rate_hz * seconds > REQUESTS_MAX:
        raise _too_many(round(rate_hz * seconds))


def _too_many(count: int) -> LoadTestError:
    return LoadTestError(f"a run has {REQUESTS_MAX:,} requests at most, {count:,} came: a shorter run or a lower rate")
