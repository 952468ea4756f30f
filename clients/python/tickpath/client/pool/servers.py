"""What a pool knows of its servers, and which is asked next. Pure: time comes in as `now_ns`.

Rules
- A server is ready (it has a connection that takes requests) or away. One that is away is tried again after growing
  waits, cut at random (Reconnect), and is chosen again from the moment it is back.
- Without a key the cheapest ready server is asked: its requests in flight, the new one included, times how long one
  takes there. That time follows a slow answer at once and forgets it by half each HALF_LIFE_NS, so that a server that
  stalled is soon left alone and later tried again.
- With a key, servers are ranked by a hash of key and address, and the first that is ready is asked: a key moves only
  when its server goes, and then only its own keys move.
- A server of which nothing was heard is pinged; without an answer in time its connection is given up.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from enum import Enum, auto
from hashlib import blake2b
from typing import Final, Self

from tickpath.client.address import parse_address
from tickpath.client.errors import ConnectError, RefusedError, TickpathError
from tickpath.client.pool.options import Health
from tickpath.client.reconnect import Reconnect

# Time enough for a few hundred requests elsewhere, and soon over once a server is itself again.
HALF_LIFE_NS: Final = 500_000_000
NEVER_NS: Final = 2**62


class Duty(Enum):
    """What a server needs now."""

    CONNECT = auto()
    PING = auto()
    GIVE_UP = auto()


class Server:
    """One server, by what came of asking it."""

    def __init__(self, place: int, address: str, health: Health, reconnect: Reconnect) -> None:
        self.place = place
        self.address = address
        self.ready = False
        self.connecting = False
        self.in_flight = 0
        self._ping_after_ns = int(health.ping_after_s * 1e9)
        self._pong_ns_max = int(health.pong_s_max * 1e9)
        self._reconnect = reconnect
        self._waits_s = reconnect.waits_s()
        self._retry_at_ns = 0
        self._heard_ns = 0
        self._pinged_ns: int | None = None
        self._latency_ns = 0.0
        self._latency_at_ns = 0

    def __repr__(self) -> str:
        return f"Server({self.address!r}, {'ready' if self.ready else 'away'}, in_flight={self.in_flight})"

    def opened(self, now_ns: int) -> None:
        """There is a connection."""
        self.ready, self.connecting = True, False
        self._latency_ns = 0.0
        self.heard(now_ns)

    def lost(self, now_ns: int) -> None:
        """Its connection takes no more requests, or none could be opened."""
        if self.ready:
            self._waits_s = self._reconnect.waits_s()
        self.ready = self.connecting = False
        self._retry_at_ns = now_ns + int(next(self._waits_s) * 1e9)

    def heard(self, now_ns: int) -> None:
        """It said something."""
        self._heard_ns = now_ns
        self._pinged_ns = None

    def pinged(self, now_ns: int) -> None:
        """It was asked for a sign of life."""
        self._pinged_ns = now_ns

    def took(self, latency_ns: int, now_ns: int) -> None:
        """A request took so long here, or was not waited for any longer after so long."""
        before_ns = self.latency_ns(now_ns)
        self._latency_ns = latency_ns if latency_ns > before_ns else before_ns + (latency_ns - before_ns) / 8
        self._latency_at_ns = now_ns

    def latency_ns(self, now_ns: int) -> float:
        """What one request may be expected to take; 0 where nothing is known."""
        if not self._latency_ns:
            return 0.0
        halvings = (now_ns - self._latency_at_ns) / HALF_LIFE_NS
        return self._latency_ns * math.exp2(-halvings)

    def cost(self, now_ns: int) -> float:
        """Less is better."""
        return (self.in_flight + 1) * self.latency_ns(now_ns)

    def due_ns(self) -> int:
        """When to look at `duty` again."""
        if self.connecting:
            return NEVER_NS
        if not self.ready:
            return self._retry_at_ns
        if self._pinged_ns is not None:
            return self._pinged_ns + self._pong_ns_max
        return self._heard_ns + self._ping_after_ns

    def duty(self, now_ns: int) -> Duty | None:
        """What is to be done about it now."""
        if now_ns < self.due_ns():
            return None
        if not self.ready:
            return Duty.CONNECT
        return Duty.PING if self._pinged_ns is None else Duty.GIVE_UP


class Servers:
    """All servers of a pool, in the order in which they were given."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self.all = tuple(servers)

    @classmethod
    def of(cls, addresses: Sequence[str], health: Health, reconnect: Reconnect) -> Self:
        """All of them away."""
        return cls([Server(place, address, health, reconnect) for place, address in enumerate(addresses)])

    def choose(self, now_ns: int, key: str | None, without: Collection[Server]) -> Server | None:
        """The one to ask, of those that are ready; None if there is none."""
        ready = [server for server in self.all if server.ready and server not in without]
        if len(ready) < 2:
            return ready[0] if ready else None
        if key is not None:
            return max(ready, key=lambda server: _weight(key, server.address))
        return min(ready, key=lambda server: (server.cost(now_ns), server.in_flight))


def distinct(addresses: Sequence[str | tuple[str, int]]) -> list[str]:
    """The addresses as people are told them and keys are hashed with them. Raises AddressError, ValueError."""
    texts = [str(parse_address(address)) for address in addresses]
    if not texts or len(set(texts)) < len(texts):
        raise ValueError(f"a pool has one or more addresses, each once; got {texts}")
    return texts


def none_ready(servers: Servers, errors: Mapping[Server, TickpathError]) -> TickpathError:
    """What to raise where no server is there: why not, of each; or what they refuse with, if all refuse alike."""
    found = [errors.get(server) for server in servers.all]
    first = found[0]
    if isinstance(first, RefusedError) and all(type(error) is type(first) for error in found):
        return type(first)(*first.args)
    reasons = [str(errors.get(server) or f"{server.address}: no answer yet") for server in servers.all]
    return ConnectError(f"of {len(reasons)} servers none is there: {'; '.join(reasons)}")


def _weight(key: str, address: str) -> bytes:
    return blake2b(f"{address}\0{key}".encode(), digest_size=8).digest()
