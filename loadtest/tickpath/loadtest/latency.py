"""Percentiles of all samples, exact, by one method: nearest rank.

The percentile is the smallest sample that at least that share of all samples does not exceed, so it is always a
latency that some request had. numpy calls it `inverted_cdf`; here it is done in whole numbers, which no rounding can
move by a rank.

How sure a percentile is follows from counting alone, whatever the distribution: each sample lies below the true
percentile with the same chance, so the number of those that do is binomial, and two ranks enclose the true value with
a known probability. That takes samples to be independent. A stall hits its neighbours alike: then the truth is wider.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from tickpath.loadtest.binomial import Binomial

P50: Final = Fraction(50, 100)
P90: Final = Fraction(90, 100)
P95: Final = Fraction(95, 100)
P99: Final = Fraction(99, 100)
P999: Final = Fraction(999, 1000)
P9999: Final = Fraction(9999, 10_000)
PERCENTILES: Final = {"p50": P50, "p90": P90, "p95": P95, "p99": P99, "p99.9": P999, "p99.99": P9999}

# A percentile with fewer samples than this beyond it is thin: one stall more or less would move it.
BEYOND_MIN: Final = 10
CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """Encloses the true percentile with the probability `confidence`. A bound is None where there are too few samples
    for one."""

    low_ns: int | None
    high_ns: int | None
    confidence: float


@dataclass(frozen=True, slots=True)
class Summary:
    """A distribution of spans in nanoseconds, over `count` samples."""

    count: int
    p50_ns: int
    p90_ns: int
    p95_ns: int
    p99_ns: int
    p999_ns: int
    p9999_ns: int
    max_ns: int
    mean_ns: float
    p999_interval: Interval

    @property
    def thin(self) -> bool:
        """p99.9 rests on too few samples to mean much: under 10,000."""
        return is_thin(self.count, P999)


def is_thin(count: int, quantile: Fraction) -> bool:
    """Fewer than ten of `count` samples lie beyond the percentile."""
    return count * (1 - quantile) < BEYOND_MIN


def rank_of(count: int, quantile: Fraction) -> int:
    """Which of `count` samples is the percentile, from 1."""
    return max(-(-count * quantile.numerator // quantile.denominator), 1)


def nearest_rank(ascending_ns: npt.NDArray[np.int64], quantile: Fraction) -> int:
    """The percentile of int64[count] samples that ascend."""
    return int(ascending_ns[rank_of(len(ascending_ns), quantile) - 1])


def interval(ascending_ns: npt.NDArray[np.int64], quantile: Fraction, confidence: float = CONFIDENCE) -> Interval:
    """Of the percentile of int64[count] samples that ascend, by order statistics; each side may err with half of what
    `confidence` leaves."""
    count, err = len(ascending_ns), (1 - confidence) / 2
    below = Binomial(count, float(quantile))
    low, high = below.quantile(err), below.quantile(1 - err) + 1
    return Interval(
        low_ns=int(ascending_ns[low - 1]) if low > 0 else None,
        high_ns=int(ascending_ns[high - 1]) if high <= count else None,
        confidence=confidence,
    )


def summarise(samples_ns: npt.NDArray[np.int64]) -> Summary:
    """Of int64[count] samples in any order. Raises ValueError when there are none."""
    if not len(samples_ns):
        raise ValueError("there are no samples")
    ascending_ns = np.sort(samples_ns)
    return Summary(
        count=len(samples_ns),
        p50_ns=nearest_rank(ascending_ns, P50),
        p90_ns=nearest_rank(ascending_ns, P90),
        p95_ns=nearest_rank(ascending_ns, P95),
        p99_ns=nearest_rank(ascending_ns, P99),
        p999_ns=nearest_rank(ascending_ns, P999),
        p9999_ns=nearest_rank(ascending_ns, P9999),
        max_ns=int(ascending_ns[-1]),
        mean_ns=float(samples_ns.mean()),
        p999_interval=interval(ascending_ns, P999),
    )
