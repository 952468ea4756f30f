"""How the loop waits for the next request: asleep in epoll, polling for a moment first, or always polling.

A core that sleeps is slow to wake, and then finds its caches cold: the interrupt, the scheduler and the first misses
cost more than a small model. So for `poll_us` after a request the loop goes round without sleeping, since the next
request of a busy client comes soon; then it sleeps. `--spin` is the same without an end.
"""

import asyncio
from time import monotonic_ns


class Polling:
    """Keeps the loop awake. `poll_ns` None: for ever, from `start` on; 0: never."""

    def __init__(self, loop: asyncio.AbstractEventLoop, poll_ns: int | None) -> None:
        self._loop = loop
        self._poll_ns = poll_ns
        self._until_ns = 0
        self._awake = False

    def start(self) -> None:
        """Begin to spin, where that is asked for."""
        if self._poll_ns is None:
            self._spin()

    def extend(self, now_ns: int) -> None:
        """A request has come: stay awake for a while from now."""
        if self._poll_ns:
            self._until_ns = now_ns + self._poll_ns
            if not self._awake:
                self._awake = True
                self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """A callback that schedules itself makes the loop look at its sockets, without sleeping, and come back."""
        if monotonic_ns() < self._until_ns:
            self._loop.call_soon(self._turn)
        else:
            self._awake = False

    def _spin(self) -> None:
        self._loop.call_soon(self._spin)
