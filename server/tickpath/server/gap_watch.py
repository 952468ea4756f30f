"""How long the loop was away at a stretch while something went on beside it."""

import asyncio
from time import monotonic_ns
from typing import Final

# The shortest time that the loop's timers know.
BEAT_S: Final = 0.001
BEAT_NS: Final = 1_000_000


class GapWatch:
    """A heartbeat of a millisecond, from making it until `stop`. `gap_ns`: the most that one was late, which is the
    most that any request had to wait for the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.gap_ns = 0
        self._schedule()

    def stop(self) -> int:
        """Ends it. Returns `gap_ns`."""
        self._timer.cancel()
        self._note()
        return self.gap_ns

    def _schedule(self) -> None:
        self._due_ns = monotonic_ns() + BEAT_NS
        self._timer = self._loop.call_later(BEAT_S, self._beat)

    def _beat(self) -> None:
        self._note()
        self._schedule()

    def _note(self) -> None:
        self.gap_ns = max(self.gap_ns, monotonic_ns() - self._due_ns)
