"""The binomial distribution, as far as percentiles need it: of n samples, how many lie beyond a quantile."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# How far from the mean counts are looked at: what lies beyond 40 standard deviations has a chance that a float can't
# tell from nothing, also where the distribution is skewed like a Poisson's.
REACH_SIGMAS = 40


@dataclass(frozen=True, slots=True)
class Binomial:
    """How often something happens in `trials` independent trials with the same `chance`, 0 < chance < 1."""

    trials: int
    chance: float

    def at_most(self, count: int) -> float:
        """The probability of `count` or fewer."""
        first, cumulative = self._window()
        place = count - first
        return 0.0 if place < 0 else float(cumulative[min(place, len(cumulative) - 1)])

    def quantile(self, probability: float) -> int:
        """The smallest count with `at_most(count) >= probability`, 0 < probability < 1."""
        first, cumulative = self._window()
        return first + int(np.searchsorted(cumulative, probability))

    def _window(self) -> tuple[int, npt.NDArray[np.float64]]:
        """The lowest count looked at, and the cumulative probabilities from there on."""
        mean = self.trials * self.chance
        reach = REACH_SIGMAS * (math.sqrt(mean * (1 - self.chance)) + 1)
        counts = np.arange(max(0, math.floor(mean - reach)), min(self.trials, math.ceil(mean + reach)) + 1)
        odds = self.chance / (1 - self.chance)
        steps = np.log((self.trials - counts[:-1]) / (counts[:-1] + 1) * odds)
        logs = np.concatenate(([0.0], np.cumsum(steps)))
        weights = np.exp(logs - logs.max())
        return int(counts[0]), np.minimum(np.cumsum(weights) / weights.sum(), 1.0)
