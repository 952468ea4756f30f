"""The other end of a connection to a server, in bytes and messages: it may break any rule that a client keeps."""

import socket
from types import TracebackType
from typing import Self

from tickpath.wire import (
    PROTOCOL_VERSION,
    REPLY_BYTES_MAX,
    ClientMessage,
    FrameDecoder,
    Hello,
    ServerMessage,
    Welcome,
    decode_server_message,
    encode_frame,
)


class Peer:
    """A socket and what has come from it; nothing is checked that is not asked for."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._decoder = FrameDecoder(REPLY_BYTES_MAX)

    def greet(self) -> Welcome:
        """Hello and its answer."""
        self.send(Hello(PROTOCOL_VERSION, "peer"))
        welcome = self.receive()
        assert isinstance(welcome, Welcome)
        return welcome

    def frame(self, message: ClientMessage) -> bytes:
        return encode_frame(message)

    def send(self, *messages: ClientMessage) -> None:
        """Several messages leave in one segment, as a pipelining client's do."""
        self.socket.sendall(b"".join(map(encode_frame, messages)))

    def receive(self) -> ServerMessage | None:
        """The next message; None when the server has closed. A tensor in it is a copy."""
        while (frame := self._decoder.next_frame()) is None:
            try:
                byte_count = self.socket.recv_into(self._decoder.get_buffer())
            except ConnectionResetError:
                return None
            if byte_count == 0:
                return None
            self._decoder.received(byte_count)
        return decode_server_message(memoryview(bytes(frame)))

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Close with a TCP reset instead of a goodbye."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
