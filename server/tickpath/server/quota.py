"""How much one client may ask, over all its connections. Pure: time comes in as `now_ns`."""

from dataclasses import dataclass, field
from math import ceil

from tickpath.server.access_config import ClientConfig
from tickpath.server.admission import Refusal
from tickpath.wire import Code

# A burst is what comes in so long at the full rate, unless told otherwise: the ticks of one market event come within
# milliseconds, and whoever sends evenly never needs it.
BURST_S = 0.1


class TokenBucket:
    """Lets `rate` a second through, and after a pause up to `burst` at once; full to begin with.

    It holds no tokens but the time at which it will be full again, in whole nanoseconds, so that nothing drifts.
    """

    def __init__(self, rate: float, burst: int) -> None:
        self._each_ns = ceil(1e9 / rate)  # never more than the rate
        self._burst_ns = burst * self._each_ns
        self._full_ns = 0

    def wait_ns(self, now_ns: int) -> int:
        """How long until one more may pass; 0: now."""
        return max(0, max(self._full_ns, now_ns) + self._each_ns - now_ns - self._burst_ns)

    def take(self, now_ns: int) -> bool:
        """Whether one may pass now; it then has."""
        if self.wait_ns(now_ns):
            return False
        self._full_ns = max(self._full_ns, now_ns) + self._each_ns
        return True


@dataclass(slots=True)
class Account:
    """One client's use of its quotas: what its connections have now. The loop's thread owns it."""

    config: ClientConfig
    sessions: int = 0
    in_flight: int = 0
    _bucket: TokenBucket | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        rate = self.config.rate_max
        if rate is not None:
            self._bucket = TokenBucket(rate, self.config.rate_burst or max(1, round(rate * BURST_S)))

    def refuse_session(self) -> Refusal | None:
        """The refusal of one more connection, or None."""
        limit = self.config.sessions_max
        if limit is None or self.sessions < limit:
            return None
        return Refusal(
            Code.OVERLOADED,
            f"client {self.config.name!r} has {limit} sessions open, the most it may have: close one first",
        )

    def refuse_in_flight(self) -> Refusal | None:
        """The refusal of one more request that has to wait, or None."""
        limit = self.config.in_flight_max
        if limit is None or self.in_flight < limit:
            return None
        return Refusal(
            Code.OVERLOADED,
            f"{limit} requests of client {self.config.name!r} are in flight over all its sessions, the most it may "
            "have: wait for an answer",
        )

    def refuse_rate(self, now_ns: int) -> Refusal | None:
        """The refusal of a request that comes too soon after the others, or None: it then counts."""
        bucket = self._bucket
        if bucket is None or bucket.take(now_ns):
            return None
        return Refusal(
            Code.OVERLOADED,
            f"client {self.config.name!r} may ask {self.config.rate_max:g} times a second: the next may come in "
            f"{bucket.wait_ns(now_ns) / 1e6:.1f} ms",
        )
