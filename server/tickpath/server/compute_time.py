"""What a model takes, kept up to date as it runs. Pure, and without an allocation but for two numbers."""

from typing import Final

# The mean follows the last 16 or so: quick enough for a machine that gets busy, slow enough for one odd replay.
MEAN_SHIFT: Final = 4
# Up by 1/32 when a time was above, down by 1/4096 when it was not: at rest where one in 129 is above, which is p99. A
# single pause of any length moves it by 3 %, and after a busy spell it has halved within 3,000 requests.
UP_SHIFT: Final = 5
DOWN_SHIFT: Final = 12


class ComputeTime:
    """Of one bucket. `mean_ns`: how long a request holds the model up, by which waiting is foreseen. `high_ns`: from
    its start to its answer in 99 of 100 cases, which a budget must have room for."""

    __slots__ = ("high_ns", "mean_ns")

    def __init__(self, first_ns: int) -> None:
        self.mean_ns = self.high_ns = first_ns

    def note(self, busy_ns: int, answered_ns: int) -> None:
        """A request held the model up for so long, and was answered so long after its start."""
        self.mean_ns += (busy_ns - self.mean_ns) >> MEAN_SHIFT
        high_ns = self.high_ns
        if answered_ns > high_ns:
            self.high_ns = high_ns + (high_ns >> UP_SHIFT) + 1
        else:
            self.high_ns = high_ns - (high_ns >> DOWN_SHIFT)
