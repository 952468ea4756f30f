"""Waiting for an intended send time without missing it."""

import time
from collections.abc import Callable

# A sleep on Linux ends 50 µs late with default timer slack, and some more on a busy machine: the rest of the way is
# spun.
SPIN_NS = 200_000


def wait_until(
    intended_ns: int,
    clock_ns: Callable[[], int] = time.monotonic_ns,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Return at `intended_ns`, or at once when it is over; the answer is the time it is then. Sleeps only while the
    time is far away."""
    now_ns = clock_ns()
    while now_ns < intended_ns:
        ahead_ns = intended_ns - now_ns
        if ahead_ns > SPIN_NS:
            sleep((ahead_ns - SPIN_NS) / 1e9)
        now_ns = clock_ns()
    return now_ns
