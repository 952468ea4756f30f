"""One blocking socket and what is said on it: a request in one send, its reply in one receive.

Theory of operation
- The socket never blocks: `poll` does, with the time that the call has left (in whole milliseconds, rounded up).
- While a large request goes out, replies are taken in, since a server that can't send stops receiving.
- Whoever is interrupted while bytes are on their way into the socket or out of it may leave half a frame behind, so the
  connection is closed; it is closed on every error, and not used again after that. Who is interrupted while waiting
  leaves it as it was.
"""

import os
import socket
from select import POLLIN, POLLOUT, poll
from typing import Any, NoReturn, TypeVar

from tickpath.client.address import Address, TcpAddress, UnixAddress
from tickpath.client.conversation import Conversation, Request
from tickpath.client.dead_peer import notice_dead_peer
from tickpath.client.deadline import Deadline
from tickpath.client.errors import ConnectionLostError, lost, reason_of, timed_out
from tickpath.client.tls import Tls, server_name

T = TypeVar("T")


class SocketConnection:
    """A connected socket and its conversation."""

    def __init__(self, connected: socket.socket, conversation: Conversation) -> None:
        connected.setblocking(False)
        self.conversation = conversation
        self.open = True
        self._pid = os.getpid()
        self._socket = connected
        self._readable, self._either = poll(), poll()
        self._readable.register(connected, POLLIN)
        self._either.register(connected, POLLIN | POLLOUT)

    @property
    def ours(self) -> bool:
        """False in a child that was forked since: parent and child would take each other's replies."""
        return self._pid == os.getpid()

    def take_arrived(self) -> None:
        """Look at what has come without being waited for."""
        while self.open and self._readable.poll(0):
            self._receive()

    @property
    def takes_more(self) -> bool:
        """Whether new requests may be sent here."""
        return self.open and self.conversation.goodbye is None

    @property
    def has_room(self) -> bool:
        """Whether a new request may be sent here now, within the server's limit."""
        return self.open and self.conversation.has_room

    def answer(self, request: Request[T], deadline: Deadline) -> T:
        """Send, receive, and give the answer. Raises RefusedError and what `send` and `wait_for` raise."""
        try:
            self.send(request.frame, deadline)
            self.wait_for(request, deadline)
        finally:
            self.forget(request)
        return request.result()

    def send(self, frame: bytes, deadline: Deadline) -> None:
        """Raises ConnectionLostError, and RequestTimeoutError with the connection closed: part of a frame is out."""
        try:
            sent = self._send(frame)
            if sent < len(frame):
                self._send_rest(memoryview(frame)[sent:], deadline)
        except BaseException:
            self.close()
            raise

    def wait_for(self, request: Request[Any], deadline: Deadline) -> None:
        """Receive until the request is done. Raises ConnectionLostError, ProtocolError, RequestTimeoutError."""
        while not request.done:
            self._wait(self._readable, deadline)
            self._receive()

    def forget(self, request: Request[Any]) -> None:
        """Nobody waits for it any more, if it is not done. The server is told where that takes no waiting."""
        frame = self.conversation.forget(request)
        if frame is not None:
            self._send_at_once(frame)

    def leave(self) -> None:
        """Say goodbye where that takes no waiting, and close."""
        if self.ours:
            self._send_at_once(self.conversation.say_goodbye())
        self.close()

    def close(self) -> None:
        self.open = False
        self._socket.close()

    def _send_at_once(self, frame: bytes) -> None:
        """Whole or not at all; a connection on which that fails is closed."""
        if self.open:
            try:
                if 0 < self._send(frame) < len(frame):
                    self.close()
            except ConnectionLostError:
                return
            except BaseException:
                self.close()
                raise

    def _send(self, frame: bytes | memoryview) -> int:
        try:
            return self._socket.send(frame)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._lose(reason_of(error))

    def _send_rest(self, rest: memoryview, deadline: Deadline) -> None:
        while rest:
            events = self._wait(self._either, deadline)
            if events & ~POLLOUT:
                self._receive()
            if events & POLLOUT:
                rest = rest[self._send(rest) :]

    def _wait(self, poller: poll, deadline: Deadline) -> int:
        while not (ready := poller.poll(1e3 * deadline.left_s())):
            if not deadline.left_s():
                raise timed_out(self.conversation.address, deadline.timeout_s)
        return ready[0][1]

    def _receive(self) -> None:
        conversation = self.conversation
        try:
            byte_count = self._socket.recv_into(conversation.get_buffer())
            if byte_count == 0:
                self._lose("the server closed it")
            conversation.received(byte_count)
            while conversation.next_answered() is not None:
                pass
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(reason_of(error))
        except BaseException:  # also Ctrl-C: bytes may be gone that were not looked at
            self.close()
            raise

    def _lose(self, reason: str | None) -> NoReturn:
        self.close()
        raise lost(self.conversation.address, reason)


def make_connection(connected: socket.socket, conversation: Conversation, tls: Tls | None) -> SocketConnection:
    """Of what `open_socket` gave. Whoever speaks no TLS does not import it."""
    if tls is None:
        return SocketConnection(connected, conversation)
    from tickpath.client.blocking_tls import TlsConnection

    return TlsConnection(connected, conversation)


def open_socket(address: Address, tls: Tls | None, deadline: Deadline) -> socket.socket:
    """Connected, and past the handshake where there is `tls`. Raises OSError, CredentialsError."""
    timeout_s = max(1e-3, deadline.left_s())  # 0 would mean: don't wait at all
    if not isinstance(address, UnixAddress):
        connected = socket.create_connection((address.host, address.port), timeout_s)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        notice_dead_peer(connected)
        return connected if tls is None else _encrypted(connected, address, tls, deadline)
    connected = socket.socket(socket.AF_UNIX)
    try:
        connected.settimeout(timeout_s)
        connected.connect(address.path)
    except BaseException:
        connected.close()
        raise
    return connected


def _encrypted(connected: socket.socket, address: TcpAddress, tls: Tls, deadline: Deadline) -> socket.socket:
    try:
        from tickpath.client.blocking_tls import TlsSocket

        context = tls.context()
        context.sslsocket_class = TlsSocket
        connected.settimeout(max(1e-3, deadline.left_s()))
        return context.wrap_socket(connected, server_hostname=server_name(address, tls))
    except BaseException:
        connected.close()
        raise
