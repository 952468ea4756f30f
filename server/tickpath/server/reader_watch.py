"""Whether a client takes what waits for it: it may be slow, but not still."""

import asyncio
import socket
import sys
from collections.abc import Callable
from fcntl import ioctl
from termios import TIOCOUTQ

from tickpath.server.timer import Timer


class ReaderWatch:
    """Looks at a transport every `stall_s` from `start` to `stop`, and calls `stalled` once the client has taken
    nothing in between."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        stall_s: float,
        stalled: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._socket: socket.socket = transport.get_extra_info("socket")
        self._stall_s = stall_s
        self._stalled = stalled
        self._timer = Timer(loop)
        self._unsent_bytes = 0  # when it last looked, and what was written since

    def start(self) -> None:
        self._unsent_bytes = self.unsent_bytes()
        self._timer.start(self._stall_s, self._look)

    def stop(self) -> None:
        self._timer.stop()

    def wrote(self, byte_count: int) -> None:
        """So much more waits: that is not the client's doing."""
        self._unsent_bytes += byte_count

    def unsent_bytes(self) -> int:
        """What the client has not taken of all that was written, whether the transport has it or the kernel: that may
        hold megabytes, and asks for more only when a third of them is gone."""
        fd = self._socket.fileno()
        in_kernel = int.from_bytes(ioctl(fd, TIOCOUTQ, bytes(4)), sys.byteorder)
        return self._transport.get_write_buffer_size() + in_kernel

    def undelivered_bytes(self) -> int:
        """What an end of the connection now would take from the client. What the kernel holds of a Unix socket lies at
        the client's end already, whether it reads or not."""
        on_its_way = self._socket.family != socket.AF_UNIX
        return self.unsent_bytes() if on_its_way else self._transport.get_write_buffer_size()

    def _look(self) -> None:
        if 0 < self._unsent_bytes <= self.unsent_bytes():
            self._stalled()
        else:
            self.start()
