"""A server whose every word is told by the test: real sockets, the wire package, one script per connection."""

import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeAlias, TypeVar

import msgspec

from tickpath.wire import (
    PROTOCOL_VERSION,
    ClientMessage,
    Code,
    Failure,
    FrameDecoder,
    Goodbye,
    Hello,
    Infer,
    Limits,
    ModelInfo,
    Result,
    ServerMessage,
    TensorInfo,
    Welcome,
    decode_client_message,
    encode_frame,
)

M = TypeVar("M", bound=ClientMessage)

STAMPS: Final = (1_000, 1_010, 1_030, 1_060, 1_100, 1_150)
LIMITS: Final = Limits(64 * 1024 * 1024, 8, 16, 5_000_000_000)
ROW: Final = TensorInfo("x", "float32", (1, 3), 0)
ECHO: Final = ModelInfo("echo", "7", 11, (ROW,), (msgspec.structs.replace(ROW, name="y"),), (1, 2, 4))
WIDE_ROW: Final = TensorInfo("x", "float32", (1, 2048, 1024), 0)
WIDE: Final = ModelInfo("wide", "1", 12, (WIDE_ROW,), (msgspec.structs.replace(WIDE_ROW, name="y"),), (1,))

# No script waits longer than this for a client; it only bounds how long a failing test hangs.
PATIENCE_S: Final = 20.0


class Session:
    """The server's side of one connection."""

    def __init__(self, connected: socket.socket) -> None:
        connected.settimeout(PATIENCE_S)
        self.socket = connected
        self._decoder = FrameDecoder(LIMITS.frame_bytes_max)

    def receive(self, kind: type[M]) -> M:
        """The client's next message, which must be of this kind. An Infer's inputs are copied."""
        message = self.next_message()
        assert isinstance(message, kind), f"expected {kind.__name__}, got {message}"
        return message

    def next_message(self) -> ClientMessage | None:
        """The client's next message; None when it has closed."""
        while (frame := self._decoder.next_frame()) is None:
            byte_count = self.socket.recv_into(self._decoder.get_buffer())
            if byte_count == 0:
                return None
            self._decoder.received(byte_count)
        message = decode_client_message(frame)
        if isinstance(message, Infer):
            inputs = [None if data is None else memoryview(bytes(data)) for data in message.inputs]
            return msgspec.structs.replace(message, inputs=inputs)
        return message

    def expect_end(self) -> None:
        """The client closes, with a Goodbye or without."""
        message = self.next_message()
        if isinstance(message, Goodbye):
            message = self.next_message()
        assert message is None, f"expected the end, got {message}"

    def welcome(self, *models: ModelInfo, limits: Limits = LIMITS) -> Hello:
        """Take Hello and open the session."""
        hello = self.receive(Hello)
        self.send(Welcome(PROTOCOL_VERSION, "scripted", limits, models or (ECHO,)))
        return hello

    def frame(self, *messages: ServerMessage) -> bytes:
        return b"".join(encode_frame(message) for message in messages)

    def send(self, *messages: ServerMessage) -> None:
        self.send_bytes(self.frame(*messages))

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def echo(self, infer: Infer) -> None:
        self.send(echoed(infer))

    def refuse(self, infer: Infer, code: Code, message: str = "no") -> None:
        self.send(Failure(infer.id, code, message))

    def reset(self) -> None:
        """End the connection with an RST where the transport has one."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def echoed(infer: Infer, version: str = "7") -> Result:
    """The inputs as outputs."""
    return Result(infer.id, version, [data for data in infer.inputs if data is not None], STAMPS)


def one_echo(session: Session) -> None:
    """The shortest script: one request is answered."""
    session.welcome()
    session.echo(session.receive(Infer))
    session.expect_end()


Script: TypeAlias = Callable[[Session], None]
Address: TypeAlias = tuple[str, int] | str


class ScriptedServer:
    """Listens; the n-th connection is spoken to by the n-th script, each on a thread of its own. Leaving the context
    waits for all of them and raises what the first of them raised."""

    def __init__(self, unix_path: Path | None, *scripts: Script, address: Address | None = None) -> None:
        self._scripts = scripts
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []
        if unix_path is not None:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(unix_path))
            self._listener.listen()
            self.address: Address = f"unix:{unix_path}"
        else:
            self._listener = socket.create_server(address if isinstance(address, tuple) else ("127.0.0.1", 0))
            self.address = self._listener.getsockname()
        self._listener.settimeout(PATIENCE_S)
        self._acceptor = threading.Thread(target=self._guarded, args=(self._accept,))

    def __enter__(self) -> Self:
        self._acceptor.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._listener.close()
        self._acceptor.join()
        for thread in self._threads:
            thread.join()
        self._listener.close()
        if self._errors and error is None:
            raise self._errors[0]

    def _accept(self) -> None:
        for script in self._scripts:
            connected, _ = self._listener.accept()
            thread = threading.Thread(target=self._guarded, args=(self._speak, script, connected))
            self._threads.append(thread)
            thread.start()

    def _speak(self, script: Script, connected: socket.socket) -> None:
        with connected:
            script(Session(connected))

    def _guarded(self, work: Callable[..., None], *arguments: object) -> None:
        try:
            work(*arguments)
        except BaseException as error:  # raised again in the test's own thread
            self._errors.append(error)
