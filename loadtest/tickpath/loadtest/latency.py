"""Percentiles of all samples, exact, by one method: nearest rank.

The percentile is the smallest sample that at least that share of all samples does not exceed, so it is always a
latency that some request had. numpy calls it `inverted_cdf`; here it is done in whole numbers, which no rounding can
move by a rank.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Below this a p99.9 rests on fewer than ten samples.
THIN_BELOW = 10_000


@dataclass(frozen=True, slots=True)
class Summary:
    """A distribution of spans in nanoseconds, over `count` samples."""

    count: int
    p50_ns: int
    p90_ns: int
    p99_ns: int
    p999_ns: int
    max_ns: int
    mean_ns: float

    @property
    def thin(self) -> bool:
        """p99.9 rests on too few samples to mean much."""
        return self.count < THIN_BELOW


def nearest_rank(ascending_ns: npt.NDArray[np.int64], per_mille: int) -> int:
    """The percentile of samples that ascend; `per_mille` 999 is p99.9."""
    rank = -(-len(ascending_ns) * per_mille // 1000)
    return int(ascending_ns[max(rank, 1) - 1])


def summarise(samples_ns: npt.NDArray[np.int64]) -> Summary:
    """Of int64[count] samples in any order. Raises ValueError when there are none."""
    if not len(samples_ns):
        raise ValueError("there are no samples")
    ascending_ns = np.sort(samples_ns)
    p50, p90, p99, p999, most = (nearest_rank(ascending_ns, per_mille) for per_mille in (500, 900, 990, 999, 1000))
    return Summary(len(samples_ns), p50, p90, p99, p999, most, float(samples_ns.mean()))
