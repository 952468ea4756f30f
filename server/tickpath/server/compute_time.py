"""What a model takes, kept up to date as it runs. Pure, and without an allocation but for two numbers."""

from typing import Final

# The mean follows the last 16 or so: quick enough for a machine that gets busy, slow enough for one odd replay.
MEAN_SHIFT: Final = 4
# A pause of the machine counts as four times the mean at the most: it says little about the next request.
OUTLIER_SHIFT: Final = 2
# Up by 1/32 when a time was above, down by 1/4096 when it was not: at rest where one in 129 is above, which is p99. A
# single pause of any length moves it by 3 %, and after a busy spell it has halved within 3,000 requests.
UP_SHIFT: Final = 5
DOWN_SHIFT: Final = 12
# What is refused teaches nothing, so a time that is too long for every budget would stay so. Down by 1/1024 at each
# refusal by it alone: of the requests to a model that has become too slow for them, one in some sixty is tried.
DOUBT_SHIFT: Final = 10


class ComputeTime:
    """Of one bucket. `mean_ns`: how long a request holds the model up, by which waiting is foreseen. `high_ns`: from
    its start to its answer in 99 of 100 cases."""

    __slots__ = ("high_ns", "mean_ns")

    def __init__(self, first_ns: int) -> None:
        self.mean_ns = self.high_ns = first_ns

    def needed_ns(self, budget_ns: int) -> int:
        """What a budget must have left at the start: room for `high_ns`, but no more than half of it, or a machine that
        stalls once in a while would be left idle; and for `mean_ns` always."""
        return max(self.mean_ns, min(self.high_ns, budget_ns >> 1))

    def doubt(self) -> None:
        """A request was refused though nothing was before it."""
        self.mean_ns -= self.mean_ns >> DOUBT_SHIFT

    def note(self, busy_ns: int, answered_ns: int) -> None:
        """A request held the model up for so long, and was answered so long after its start."""
        mean_ns = self.mean_ns
        self.mean_ns += (min(busy_ns, mean_ns << OUTLIER_SHIFT or busy_ns) - mean_ns) >> MEAN_SHIFT
        high_ns = self.high_ns
        if answered_ns > high_ns:
            self.high_ns = high_ns + (high_ns >> UP_SHIFT) + 1
        else:
            self.high_ns = high_ns - (high_ns >> DOWN_SHIFT)
