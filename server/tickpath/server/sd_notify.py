"""What the service manager is told, by systemd's notification protocol: lines in a datagram to the socket that
NOTIFY_SOCKET names. Without that variable nothing is sent, and nothing is opened.

The watchdog is fed by the loop's housekeeping and by nothing else: a loop that stands still is then started again.
"""

import logging
import os
import socket
from collections import deque
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from time import monotonic_ns
from typing import Final, Self

log = logging.getLogger(__name__)

SOCKET: Final = "NOTIFY_SOCKET"
WATCHDOG_US: Final = "WATCHDOG_USEC"
WATCHDOG_PID: Final = "WATCHDOG_PID"
# As many as 64 bits have; Python refuses to read a number of thousands.
DIGITS_MAX: Final = 20
# systemd's own advice: feed it twice in the time that it waits, so that one late turn is no death.
FEEDS_PER_WATCHDOG: Final = 2
# States that the manager has not taken yet. Each reload has two; the last of them are those that count.
WAITING_MAX: Final = 16


class ServiceManager:
    """Told where this process is in its life. One thread; never waits: what the manager can't take now is told at a
    later turn of the housekeeping, the watchdog's feed aside, of which there is another soon."""

    def __init__(self, address: str | None = None, watchdog_ns: int = 0) -> None:
        """`address`: a path, or `@name` for an abstract socket. `watchdog_ns`: how long it may hear nothing; 0: for
        ever."""
        # The kernel's form of an abstract name begins with a NUL.
        self._address = "\0" + address[1:] if address is not None and address.startswith("@") else address or ""
        self._feed_ns = watchdog_ns // FEEDS_PER_WATCHDOG
        self._feed_due_ns = 0
        self._serving = False
        self._heard = True
        self._waiting: deque[str] = deque(maxlen=WAITING_MAX)
        self._socket: socket.socket | None = None
        if address is not None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> Self:
        """The manager that started this process. Takes its variables out, since they are for no child of ours."""
        address = environment.pop(SOCKET, None)
        watchdog_us, pid = environment.pop(WATCHDOG_US, ""), environment.pop(WATCHDOG_PID, "")
        if address is not None and address[:1] not in ("/", "@"):
            log.warning("%s=%s is not told anything: a path or @name expected", SOCKET, address)
            address = None
        is_ours = address is not None and pid in ("", str(os.getpid()))
        return cls(address, int(watchdog_us[:DIGITS_MAX]) * 1000 if is_ours and watchdog_us.isdecimal() else 0)

    def ready(self, status: str) -> None:
        """Requests are taken from now on."""
        self._serving = True
        self._tell("READY=1", f"STATUS={status}")

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """While it reloads, `systemctl reload` may wait. Before and after it serves nobody waits."""
        if self._serving:
            self._tell("RELOADING=1", f"MONOTONIC_USEC={monotonic_ns() // 1000}")
        try:
            yield
        finally:
            if self._serving:
                self._tell("READY=1")

    def stopping(self) -> None:
        """No more requests are taken."""
        self._serving = False
        self._tell("STOPPING=1")

    def feed(self, now_ns: int) -> None:
        """The loop turns: called at every turn of its housekeeping, says it as often as the watchdog needs it."""
        if self._waiting:
            self._flush()
        if self._feed_ns and now_ns >= self._feed_due_ns:
            self._feed_due_ns = now_ns + self._feed_ns
            self._send("WATCHDOG=1")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _tell(self, *lines: str) -> None:
        if self._socket is not None:
            self._waiting.append("\n".join(lines))
            self._flush()

    def _flush(self) -> None:
        while self._waiting and self._send(self._waiting[0]):
            self._waiting.popleft()

    def _send(self, text: str) -> bool:
        """Whether the manager has it, or never will."""
        assert self._socket is not None
        try:
            # Not connected: a manager that is started anew has a new socket under the same name.
            self._socket.sendto(text.encode(), self._address)
        except BlockingIOError:
            return False
        except OSError as error:
            if self._heard:  # once, and not at every turn
                why = error.strerror or error  # a path that is too long has no number
                log.warning("%s: the manager can't be told %s: %s", SOCKET, text.partition("\n")[0], why)
            self._heard = False
        else:
            self._heard = True
        return True
