"""A SocketConnection over TLS, in which three things differ.

- A socket that would block says so in a way of its own.
- What the socket has received may be more than was asked for: the rest of a record waits where `poll` can't see it, so
  all of it is taken at once.
- What could not be sent at once may be in the socket by half: it has to be sent again as it was, and nothing else may
  be sent before it.
"""

import ssl
from typing import Any

from tickpath.client.blocking_connection import SocketConnection


class TlsSocket(ssl.SSLSocket):
    """Raises BlockingIOError where a plain socket would, whichever way it waits."""

    def send(self, data: Any, flags: int = 0) -> int:
        try:
            return super().send(data, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        try:
            return super().recv_into(buffer, nbytes, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None


class TlsConnection(SocketConnection):
    """An encrypted socket and its conversation."""

    def _send_at_once(self, frame: bytes) -> None:
        if self.open and self._send(frame) < len(frame):
            self.close()

    def _receive(self) -> None:
        super()._receive()
        while self.open and hides_more(self._socket):
            super()._receive()


def hides_more(connected: object) -> bool:
    """Whether something was received that waiting for the socket would not show."""
    return isinstance(connected, ssl.SSLSocket) and connected.pending() > 0
