"""How many requests it takes to say that a percentile keeps a limit: the early-stopping rule of MLPerf LoadGen.

Were more than 1 - quantile of all requests over the limit, then so few among so many would be a rare sight; once it is
rarer than 1 - confidence, the limit is kept. Like every count it takes requests to be independent.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

from tickpath.loadtest.binomial import Binomial

CONFIDENCE: Final = 0.99
"""MLPerf LoadGen's own."""


@dataclass(frozen=True, slots=True)
class Proof:
    """Of `total` requests `over` exceed a limit. That the percentile keeps it is shown once they are `needed`."""

    over: int
    total: int
    needed: int

    @property
    def holds(self) -> bool:
        return self.total >= self.needed


def prove(over: int, total: int, quantile: Fraction, confidence: float = CONFIDENCE) -> Proof:
    """Whether `over` of `total` requests above a limit show, with `confidence`, that the percentile is below it."""
    return Proof(over, total, requests_needed(over, quantile, confidence))


@lru_cache(maxsize=1024)
def requests_needed(over: int, quantile: Fraction, confidence: float = CONFIDENCE) -> int:
    """The fewest requests among which `over` above the limit prove the percentile to be below it."""
    beyond = float(1 - quantile)

    def proves(total: int) -> bool:
        return Binomial(total, beyond).at_most(over) < 1 - confidence

    enough = over + 1
    while not proves(enough):
        enough *= 2
    short = enough // 2
    while enough - short > 1:
        middle = (short + enough) // 2
        short, enough = (short, middle) if proves(middle) else (middle, enough)
    return enough
