"""What a user of a pool may set."""

from typing import Final, TypedDict

import msgspec

from tickpath.client.tls import Tls
from tickpath.client.token import Token


class SessionOptions(TypedDict, total=False):
    """What each server is told, as Client and AsyncClient take it."""

    name: str
    token: Token
    tls: Tls | None


class Hedge(msgspec.Struct, frozen=True):
    """A request that has taken longer than `percentile` of the recent ones is also sent to another server. The first
    answer counts; the other request is taken back.

    `share_max`: of all requests, how many may be sent twice: 0.05 is one in twenty, so the servers together have at the
    most so much more to do, however slow they are. Raises ValueError.
    """

    # Of a hundred requests five wait long enough; those are the tail, and what is sent twice stays small.
    percentile: float = 95.0
    share_max: float = 0.05

    def __post_init__(self) -> None:
        if not 0 < self.percentile < 100:
            raise ValueError(f"percentile is between 0 and 100, got {self.percentile:g}")
        if not 0 < self.share_max <= 1:
            raise ValueError(f"share_max is above 0 and at most 1, got {self.share_max:g}")


class Health(msgspec.Struct, frozen=True):
    """How a server that says nothing is told from one that is slow: its loop answers a Ping at once, whatever its
    models compute. Raises ValueError."""

    # One Ping a second to a server that is idle is no load, and finds one that hangs before most calls do.
    ping_after_s: float = 1.0
    # A server's loop is away for milliseconds while it loads a model; a second is far beyond that.
    pong_s_max: float = 1.0

    def __post_init__(self) -> None:
        if not (self.ping_after_s > 0 and self.pong_s_max > 0):
            raise ValueError(
                f"ping_after_s and pong_s_max are above 0, got {self.ping_after_s:g} and {self.pong_s_max:g}"
            )


HEALTH: Final = Health()
