"""Is B faster than A? Alternating blocks, paired within each, and first A against itself.

A block is four runs in the order A B B A: whatever drifts steadily over a block (heat, a neighbour, a cache) weighs on
both alike. A block yields one number for each percentile: B's (the geometric mean of its two runs) over A's. Runs of
one block share a schedule, so arrivals are paired too. How sure the mean of those ratios is comes from the blocks
alone, by the bootstrap; requests of one run are no independent samples of a machine.

First the same is done with A in B's place. What difference it finds is none, so a smaller one can't be claimed here.

Where it ends early, the blocks that are whole count; where they are too few, the runs that were made are told alone.

Pure: it is given what measures.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from tickpath.loadtest.errors import LoadTestError, StoppedError
from tickpath.loadtest.latency import P50, P99, P999, is_thin, nearest_rank
from tickpath.loadtest.run import OK, Run
from tickpath.loadtest.series import ended_early
from tickpath.loadtest.validity import invalid
from tickpath.loadtest.words import counted

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
    """`problems`: why it is INVALID, a line each; empty where it holds. `stopped`: why not all of its blocks were made;
    empty where they were. `differences`: none where that left too few; `runs` are all that were made to their end."""

    differences: tuple[Difference, ...]
    blocks: int
    confidence: float
    problems: tuple[str, ...]
    stopped: str = ""
    runs: tuple[tuple[Side, Run], ...] = ()


@dataclass(slots=True)
class _Blocks:
    """Of one order, such as ABBA: those that are whole, then the runs of one that is not."""

    order: str
    enough: int
    whole: list[Block] = field(default_factory=list)
    part: Block = field(default_factory=list)
    stopped: str = ""

    @property
    def lack(self) -> str:
        """Empty where there are enough."""
        if len(self.whole) >= self.enough:
            return ""
        return f"{counted(len(self.whole), 'block')} of {self.order} whole, a comparison takes {self.enough}"

    def runs(self) -> list[tuple[Side, Run]]:
        """With the side that each was of."""
        return [
            ("B" if side == "B" else "A", run)
            for block in (*self.whole, self.part)
            for side, run in zip(self.order, block, strict=False)
        ]


def compare(measure: Measure, blocks: int = BLOCKS, seed: int = 1) -> Comparison:
    """Run `blocks` blocks of A against A, then as many of A against B. `measure(side, block)` makes one run over fresh
    connections, with a schedule that follows from the block's number; a StoppedError of it, or a run that ends early,
    ends the comparison with what there is. Raises LoadTestError, and what else `measure` raises."""
    if blocks < BLOCKS_MIN:
        raise LoadTestError(f"a comparison takes {BLOCKS_MIN} blocks at least, {blocks} came: more blocks")
    control = _measured(measure, _Blocks("AAAA", enough=blocks), range(blocks))
    trial = _Blocks("ABBA", enough=BLOCKS_MIN, stopped=control.stopped)
    if not control.stopped:
        _measured(measure, trial, range(blocks, 2 * blocks))
    runs = (*control.runs(), *trial.runs())
    if lack := control.lack or trial.lack:
        if not runs:
            raise LoadTestError(f"{trial.stopped}; {lack}")
        return Comparison((), len(trial.whole), CONFIDENCE, (), f"{trial.stopped}; {lack}", runs)
    return _compared(control, trial, runs, seed)


def _compared(control: _Blocks, trial: _Blocks, runs: tuple[tuple[Side, Run], ...], seed: int) -> Comparison:
    whole = [run for block in (*control.whole, *trial.whole) for run in block]
    if not all(len(run.answered) for run in whole):
        raise LoadTestError(f"nothing to compare: {next(filter(None, map(invalid, whole)))[0]}")
    differences = (
        Difference(name, _ratio(control.whole, quantile, seed), _ratio(trial.whole, quantile, seed))
        for name, quantile in _told(whole).items()
    )
    problems = (*_problems("AAAA", control.whole), *_problems("ABBA", trial.whole))
    return Comparison(tuple(differences), len(trial.whole), CONFIDENCE, problems, trial.stopped, runs)


def _measured(measure: Measure, blocks: _Blocks, numbers: range) -> _Blocks:
    """Filled, as far as it went."""
    for number in numbers:
        blocks.part = []
        for side in blocks.order:
            try:
                run = measure("B" if side == "B" else "A", number)
            except StoppedError as error:
                blocks.stopped = str(error)
                return blocks
            if early := ended_early(run):
                blocks.stopped = early
                return blocks
            blocks.part.append(run)
        blocks.whole.append(blocks.part)
        blocks.part = []
    return blocks


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
            reasons = (*invalid(run), *((f"{counted(failed, 'request')} ended with an error",) if failed else ()))
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
