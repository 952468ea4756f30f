"""When a connection is tried again: at once, then after growing waits, inside the time of the call that needs it."""

from collections.abc import Iterator
from typing import Final

import msgspec


class Reconnect(msgspec.Struct, frozen=True):
    """Waits between attempts, in seconds: `wait_s_first`, doubled each time up to `wait_s_max`, each cut by up to half
    at random, so that the clients of a restarted server do not all come back in the same instant."""

    # A restarting server is away for a second or two: 10 ms costs few attempts and finds it soon.
    wait_s_first: float = 0.01
    # Once a second is no load on a server that is back, and no long wait for a caller.
    wait_s_max: float = 1.0

    def waits_s(self) -> Iterator[float]:
        """Without end."""
        from random import uniform

        wait_s = self.wait_s_first
        while True:
            yield wait_s * uniform(0.5, 1.0)
            wait_s = min(2 * wait_s, self.wait_s_max)


RECONNECT: Final = Reconnect()
