"""Histograms over arrays: fixed buckets that add up over servers, and fine cells for quantiles over the last minute.

Fine cells are HDR-style: a float64's leading bits, its exponent and the first six of its mantissa, are a log-linear
index, so a million values are binned by one shift. The hdrhistogram package records one value a call, in 0.85 µs: seven
spans of 80,000 requests a second would take half a core.

A quantile is the smallest value that at least that share of the values lies at or below (numpy's `inverted_cdf`), given
as the middle of its cell: never more than 1 % away.
"""

import math
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int64]

BUCKET_BOUNDS_NS: Final[Ints] = np.array(
    [step * 10**decade for decade in range(2, 9) for step in (10, 15, 20, 30, 50, 70)] + [10**10], np.int64
)
"""Upper bounds, inclusive, from 1 µs to 10 s. Neighbours are at most 1.67x apart, so that histogram_quantile, which
guesses inside one bucket, moves with every change worth an alarm; 1-2-5 would be 2.5x, and twelve a decade twice the
series."""

VALUE_NS_MIN: Final = 100
VALUE_NS_MAX: Final = 100 * 10**9
"""100 ns to 100 s: under any reply there can be, and past every limit of the server. What lies outside counts as the
nearer end."""

# 64 cells from a power of two to the next: a cell is at most 1/64 of its value wide, and its middle 1/128 = 0.8 % off.
_MANTISSA_SHIFT: Final = 52 - 6
_FIRST: Final = int(np.float64(VALUE_NS_MIN).view(np.int64)) >> _MANTISSA_SHIFT
_LAST: Final = int(np.float64(VALUE_NS_MAX).view(np.int64)) >> _MANTISSA_SHIFT
CELLS: Final = _LAST - _FIRST + 1


def bucket_index(values_ns: Ints) -> Ints:
    """Index into BUCKET_BOUNDS_NS of the first bound not below each value; len(BUCKET_BOUNDS_NS) where all are."""
    return np.searchsorted(BUCKET_BOUNDS_NS, values_ns).astype(np.int64, copy=False)


def cell_index(values_ns: Ints) -> Ints:
    """Index of each value's fine cell, 0 to CELLS - 1."""
    clipped = np.clip(values_ns, VALUE_NS_MIN, VALUE_NS_MAX).astype(np.float64)
    return (clipped.view(np.int64) >> _MANTISSA_SHIFT) - _FIRST


def cell_value_ns(cell: int) -> float:
    """The middle of a fine cell, in nanoseconds."""
    low, high = (np.array([cell, cell + 1], np.int64) + _FIRST << _MANTISSA_SHIFT).view(np.float64)
    return float(low + high) / 2


def quantile_ns(counts: Counts, quantile: str) -> float:
    """A quantile ("0.99") of what fine cells of shape (CELLS,) count, in nanoseconds; 0 where that is nothing."""
    cumulative = np.cumsum(counts)
    samples = int(cumulative[-1])
    if samples == 0:
        return 0.0
    # As a fraction: 0.999 is no float, and its rank among 1000 must be 999.
    rank = max(1, math.ceil(Fraction(quantile) * samples))
    return cell_value_ns(int(np.searchsorted(cumulative, rank)))


class SlidingWindow:
    """Fine cells of the last WINDOW_S seconds for several rows (models): one histogram a second, and their sum kept as
    they come and go. The newest second is the current one, so the window is between 59 and 60 s long."""

    WINDOW_S: Final = 60

    def __init__(self, rows: int) -> None:
        self.counts: Counts = np.zeros((rows, CELLS), np.int64)
        self._seconds = np.zeros((self.WINDOW_S, rows, CELLS), np.uint32)
        self._now_s = 0

    def grow(self, rows: int) -> None:
        """More rows, none of which has values yet."""
        extra = rows - len(self.counts)
        self.counts = np.pad(self.counts, ((0, extra), (0, 0)))
        self._seconds = np.pad(self._seconds, ((0, 0), (0, extra), (0, 0)))

    def advance(self, now_s: int) -> None:
        """Forget what is older than the window. Call it before `add`, and as often when there is nothing to add."""
        for second in range(max(self._now_s + 1, now_s - self.WINDOW_S + 1), now_s + 1):
            expired = self._seconds[second % self.WINDOW_S]
            if expired.any():  # else its memory was never touched, and stays so
                self.counts -= expired
                expired[:] = 0
        self._now_s = max(self._now_s, now_s)

    def add(self, rows: Ints, values_ns: Ints) -> None:
        """Count `values_ns[i]` in row `rows[i]`, in the current second; both of shape (n,)."""
        cells = rows * CELLS + cell_index(values_ns)
        np.add.at(self.counts.reshape(-1), cells, 1)
        np.add.at(self._seconds[self._now_s % self.WINDOW_S].reshape(-1), cells, 1)
