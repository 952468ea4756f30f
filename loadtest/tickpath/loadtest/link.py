"""One connection of the sender: a socket that never blocks, and the dialogue on it."""

import socket
import time
from collections.abc import Sequence
from typing import Generic, TypeVar

from tickpath.client import ConnectError, TickpathError, Tls
from tickpath.client.address import Address
from tickpath.client.blocking_connection import open_socket
from tickpath.client.blocking_tls import hides_more
from tickpath.client.deadline import Deadline
from tickpath.client.errors import is_it, lost, reason_of, timed_out, unreachable
from tickpath.client.tls import tls_for
from tickpath.loadtest.target import Answer, Dialogue

# From connect() to the end of the greeting. A server that is alive takes a millisecond, a busy one not seconds.
CONNECT_S = 10.0

AnyDialogue = TypeVar("AnyDialogue", bound=Dialogue)


class Link(Generic[AnyDialogue]):
    """A connection that is ready for requests. `waiting` are the indices of those that were sent and not answered."""

    __slots__ = ("_rest", "_socket", "connect_ns", "dialogue", "in_flight_max", "number", "waiting")

    def __init__(self, number: int, connected: socket.socket, dialogue: AnyDialogue, in_flight_max: int) -> None:
        connected.setblocking(False)
        self.number = number
        self.dialogue = dialogue
        self.in_flight_max = min(dialogue.in_flight_max, in_flight_max)
        self.waiting: set[int] = set()
        self.connect_ns = 0
        self._socket = connected
        self._rest = bytearray()

    @property
    def ended(self) -> str:
        """Why nothing more can be said here; empty while it can."""
        return self.dialogue.ended

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, frame: bytes | bytearray) -> bool:
        """Whether all of it has left; what has not is kept for `flush`."""
        if self._rest:
            self._rest += frame
            return False
        sent = self._send(frame)
        if sent < len(frame):
            self._rest += memoryview(frame)[sent:]
        return not self._rest

    def flush(self) -> bool:
        """Whether all has left now."""
        del self._rest[: self._send(self._rest)]
        return not self._rest

    def receive(self) -> int:
        """How many bytes have come."""
        try:
            byte_count = self._socket.recv_into(self.dialogue.get_buffer())
        except BlockingIOError:
            return 0
        except OSError as error:
            self._end(error)
            return 0
        if byte_count == 0:
            self.dialogue.ended = self.dialogue.ended or "the server closed the connection"
        return byte_count

    @property
    def hides_more(self) -> bool:
        """Whether more has come than waiting for it would show: the rest of a record of TLS."""
        return hides_more(self._socket)

    def answers(self, byte_count: int) -> Sequence[Answer]:
        """What the bytes say that have come."""
        return self.dialogue.received(byte_count)

    def close(self) -> None:
        self._socket.close()

    def _send(self, frame: bytes | bytearray) -> int:
        try:
            return self._socket.send(frame)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._end(error)
            return len(frame)  # it has gone the way of the connection

    def _end(self, error: OSError) -> None:
        self.dialogue.ended = self.dialogue.ended or f"the connection broke: {reason_of(error)}"


def open_link(
    number: int, address: Address, dialogue: AnyDialogue, in_flight_max: int, tls: Tls | None = None
) -> Link[AnyDialogue]:
    """Connect and greet. Raises TickpathError, and what the target says is wrong with the request."""
    deadline = Deadline.after(CONNECT_S)
    start_ns = time.monotonic_ns()
    try:
        connected = open_socket(address, tls_for(address, tls), deadline)
    except OSError as error:
        raise unreachable(address, error) from None
    try:
        connect_ns = _greet(connected, address, dialogue) - start_ns
    except BaseException:
        connected.close()
        raise
    link = Link(number, connected, dialogue, in_flight_max)
    link.connect_ns = connect_ns
    return link


def _greet(connected: socket.socket, address: Address, dialogue: Dialogue) -> int:
    """The time when the answer was there, before it was read: making requests of it is no part of connecting."""
    came_ns = time.monotonic_ns()
    try:
        connected.sendall(dialogue.greeting())
        while not dialogue.ready:
            byte_count = connected.recv_into(dialogue.get_buffer())
            came_ns = time.monotonic_ns()
            dialogue.received(byte_count)
            if byte_count == 0 or dialogue.ended:
                raise _refused(address, dialogue.ended or f"it closed the connection at once; {is_it(address)}")
    except TimeoutError:
        raise timed_out(address, CONNECT_S) from None
    except OSError as error:
        raise lost(address, reason_of(error)) from None
    return came_ns


def _refused(address: Address, reason: str) -> TickpathError:
    return ConnectError(f"{address} opens no session: {reason}")
