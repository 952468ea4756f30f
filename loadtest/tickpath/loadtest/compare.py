"""Is B faster than A? Alternating blocks, paired within each, and first A against itself.

A block is four runs in the order A B B A: whatever drifts steadily over a block (heat, a neighbour, a cache) weighs on
both alike. A block yields one number for each percentile: B's (the geometric mean of its two runs) over A's. Runs of
one block share a schedule, so arrivals are paired too. How sure the mean of those ratios is comes from the blocks
alone, by the bootstrap; requests of one run are no independent samples of a machine.

First the same is done with A in B's place. What difference it finds is none, so a smaller one can't be claimed here.

Pure: it is given what measures.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from tickpath.loadtest.errors import LoadTestError
from tickpath.loadtest.latency import P50, P99, P999, is_thin, nearest_rank
from tickpath.loadtest.run import OK, Run
from tickpath.loadtest.validity import invalid

Side = Literal["A", "B"]
Measure = Callable[[Side, int], Run]
Block = list[Run]

BLOCKS: Final = 10
# Fewer say too little about how blocks differ.
BLOCKS_MIN: Final = 6
CONFIDENCE: Final = 0.95
RESAMPLES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Ratio:
    """B over A: the geometric mean of the blocks, and the interval that holds the true one."""

    blocks: tuple[float, ...]
    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Difference:
    """One percentile: `control` is A over A, `ratio` B over A."""

    percentile: str
    control: Ratio
    ratio: Ratio

    @property
    def claimable(self) -> float:
        """The smallest difference that can be claimed here, as a share: 0.03 is 3 %."""
        return max(self.control.high, 1 / self.control.low) - 1

    @property
    def claimed(self) -> bool:
        """B differs: the interval leaves out "the same", and the difference is more than A has from itself."""
        apart = self.ratio.low > 1 or self.ratio.high < 1
        return apart and max(self.ratio.mean, 1 / self.ratio.mean) - 1 > self.claimable

    def describe(self) -> str:
        """One line."""
        if not self.claimed:
            return f"{self.percentile}: no difference that can be claimed; here that takes {self.claimable:.1%}"
        more = "slower" if self.ratio.mean > 1 else "faster"
        low, high = sorted((abs(self.ratio.low - 1), abs(self.ratio.high - 1)))
        return f"{self.percentile}: B is {abs(self.ratio.mean - 1):.1%} {more} ({low:.1%} to {high:.1%})"


@dataclass(frozen=True, slots=True)
class Comparison:
    """`problems`: why it is INVALID, a line each; empty where it holds."""

    differences: tuple[Difference, ...]
    blocks: int
    confidence: float
    problems: tuple[str, ...]


def compare(measure: Measure, blocks: int = BLOCKS, seed: int = 1) -> Comparison:
    """Run `blocks` blocks of A against A, then as many of A against B. `measure(side, block)` makes one run over fresh
    connections, with a schedule that follows from the block's number. Raises LoadTestError, and what it raises."""
    if blocks < BLOCKS_MIN:
        raise LoadTestError(f"a comparison takes {BLOCKS_MIN} blocks at least, {blocks} came: more blocks")
    control = _blocks(measure, "AAAA", range(blocks), enough=blocks)
    trial = _blocks(measure, "ABBA", range(blocks, 2 * blocks), enough=BLOCKS_MIN)
    runs = [run for block in (*control, *trial) for run in block]
    if not all(len(run.answered) for run in runs):
        raise LoadTestError(f"nothing to compare: {next(filter(None, map(invalid, runs)))[0]}")
    differences = (
        Difference(name, _ratio(control, quantile, seed), _ratio(trial, quantile, seed))
        for name, quantile in _told(runs).items()
    )
    return Comparison(
        tuple(differences), len(trial), CONFIDENCE, (*_problems("AAAA", control), *_problems("ABBA", trial))
    )


def _blocks(measure: Measure, order: str, numbers: range, enough: int) -> list[Block]:
    """All that were measured to their end, before an interruption ended the series."""
    blocks = []
    for number in numbers:
        if not (block := _block(measure, order, number)):
            break
        blocks.append(block)
    if len(blocks) < enough:
        raise LoadTestError(f"interrupted after {len(blocks)} blocks of {order}, a comparison takes {enough}")
    return blocks


def _block(measure: Measure, order: str, number: int) -> Block:
    runs = []
    for side in order:
        runs.append(measure("B" if side == "B" else "A", number))
        if runs[-1].ending == "interrupted":
            return []
    return runs


def _told(runs: list[Run]) -> dict[str, Fraction]:
    """The percentiles that every run has enough samples for."""
    fewest = min(len(run.answered) for run in runs)
    return {"p50": P50, "p99": P99} | ({} if is_thin(fewest, P999) else {"p99.9": P999})


def _problems(order: str, blocks: list[Block]) -> tuple[str, ...]:
    """Of runs that can't be trusted, and of errors: what fails is often quick."""
    told = []
    for number, block in enumerate(blocks, 1):
        for side, run in zip(order, block, strict=True):
            failed = int(np.count_nonzero(run.rows["code"] > OK))
            reasons = (*invalid(run), *((f"{failed:,} requests ended with an error",) if failed else ()))
            told += [f"{order} block {number}, {side}: {reason}" for reason in reasons]
    return tuple(told)


def _ratio(blocks: list[Block], quantile: Fraction, seed: int) -> Ratio:
    logs = np.array([_log_ratio(block, quantile) for block in blocks])
    low, high = bootstrap_mean(logs, seed)
    return Ratio(tuple(np.exp(logs).tolist()), math.exp(logs.mean()), math.exp(low), math.exp(high))


def _log_ratio(block: Block, quantile: Fraction) -> float:
    """Of the inner two runs over the outer two."""
    first, second, third, fourth = (math.log(nearest_rank(np.sort(run.latency_ns()), quantile)) for run in block)
    return (second + third - first - fourth) / 2


def bootstrap_mean(values: npt.NDArray[np.float64], seed: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The interval of the mean of float64[count] values, by the bootstrap of its t statistic: unlike the plain one it
    also holds what it says where values are few."""
    count, mean = len(values), float(values.mean())
    drawn = values[np.random.default_rng(seed).integers(0, count, (RESAMPLES, count))]
    errors = drawn.std(axis=1, ddof=1) / math.sqrt(count)
    varied = errors > 0  # now and then one value is drawn every time
    if not varied.any():
        return mean, mean
    t = (drawn.mean(axis=1)[varied] - mean) / errors[varied]
    below, above = np.quantile(t, [(1 - confidence) / 2, (1 + confidence) / 2])
    error = float(values.std(ddof=1)) / math.sqrt(count)
    return mean - float(above) * error, mean - float(below) * error
