"""The time that a call has."""

import time
from typing import Final, Self

import msgspec

# Eleven days: nobody waits longer, and every way to wait takes it; poll can't wait for a month.
LEFT_S_MAX: Final = 1e6


class Deadline(msgspec.Struct, frozen=True, gc=False):
    """When a call's time is over, on this machine's monotonic clock, and how long it was."""

    at_s: float
    timeout_s: float

    @classmethod
    def after(cls, timeout_s: float) -> Self:
        """From now on."""
        return cls(time.monotonic() + timeout_s, timeout_s)

    def left_s(self) -> float:
        """Never negative, and never more than LEFT_S_MAX."""
        return min(max(0.0, self.at_s - time.monotonic()), LEFT_S_MAX)

    def at_ns(self) -> int:
        """When it is over, in nanoseconds; never further away than LEFT_S_MAX."""
        return int(min(self.at_s, time.monotonic() + LEFT_S_MAX) * 1e9)
