"""When a second server is asked for the same, and how often that may be. Pure: no clock, no sockets.

Rules
- A latency is that of a whole request, from its first sending to the answer that counted, whichever server gave it. So
  a request that was hedged still counts as slow, and hedging can't talk its own threshold down.
- Memory is one ring of the last SAMPLES latencies; the threshold is taken anew after each RENEW of them.
- Each request earns `share_max` of a hedge and each hedge costs one, so that hedges are never more than that share of
  the requests so far. What was earned and not used is kept up to BURST: a server that stalls is met with a few at once.
"""

from array import array
from typing import Final

import numpy as np

from tickpath.client.pool.options import Hedge

# Enough for p99 to be ten samples deep, few enough to follow a change of load within seconds.
SAMPLES: Final = 1024
# Fewer say nothing of a tail.
SAMPLES_MIN: Final = 100
# Taking the threshold costs some 15 µs: spread over so many requests it is lost in them.
RENEW: Final = 64
# As many as one connection has in flight by default when its server stalls.
BURST: Final = 32.0


class Hedging:
    """A pool's recent latencies and its budget of hedges."""

    def __init__(self, hedge: Hedge | None) -> None:
        self.after_ns: int | None = None
        """How long a request is waited for before another server is asked; None: not at all."""
        self._hedge = hedge
        self._earned = 0.0
        self._latencies_ns = array("q", bytes(8 * SAMPLES))
        self._count = 0

    def sent(self) -> None:
        """A new request is on its way."""
        if self._hedge is not None:
            self._earned = min(BURST, self._earned + self._hedge.share_max)

    def take(self) -> bool:
        """Whether one hedge may be sent now; it then counts as sent."""
        if self._earned < 1:
            return False
        self._earned -= 1
        return True

    def answered(self, latency_ns: int) -> None:
        """A request has its answer."""
        if self._hedge is None:
            return
        self._latencies_ns[self._count % SAMPLES] = latency_ns
        self._count += 1
        if self._count >= SAMPLES_MIN and (self._count % RENEW == 0 or self.after_ns is None):
            self.after_ns = self._threshold_ns(self._hedge.percentile)

    def _threshold_ns(self, percentile: float) -> int:
        count = min(self._count, SAMPLES)
        rank = min(count - 1, int(count * percentile / 100))
        return int(np.partition(np.frombuffer(self._latencies_ns, np.int64, count), rank)[rank])
