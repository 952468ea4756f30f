"""Noticing a server whose host has lost its power: it never says so, and calls would only time out."""

import socket
import sys
from typing import Any, Final

# What was sent and is not acknowledged for so long ends the connection; the kernel itself would try for a quarter of an
# hour. A server that only computes for long still acknowledges.
UNACKNOWLEDGED_MS_MAX: Final = 10_000


def notice_dead_peer(connected: Any) -> None:
    """Set it on a TCP socket, or on asyncio's stand-in for one. Raises OSError."""
    if sys.platform == "linux":
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS_MAX)
