"""A server that speaks the protocol and whose every delay is known, as a process of its own.

    python -m tests.reference_server BEHAVIOUR.json

It prints its port. A request is answered its own delay after it came, whatever else is going on: request i, counted by
the client's ids, has the i-th delay.
"""

import heapq
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from tickpath.loadtest.tickpath_target import FIRST_ID
from tickpath.wire import (
    PROTOCOL_VERSION,
    Code,
    Failure,
    FrameDecoder,
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

LIMITS: Final = Limits(1 << 20, 4096, 64, 5_000_000_000)
X: Final = TensorInfo("x", "float32", (1, 64), 0)
Y: Final = TensorInfo("y", "float32", (1, 3), 0)
MODEL: Final = ModelInfo("reference", "1", 0, (X,), (Y,), (1,))
OUTPUT: Final = memoryview(bytes(12))


class Behaviour(msgspec.Struct, frozen=True):
    """`delays_ns` repeat. Every `never`-th request is not answered, nor is request `never_at`, every `twice`-th twice,
    every `refused`-th with a Failure; 0: none. It exits at request `dies_at`. Welcome comes after `greeting_s`, to the
    first `greets` that connect; the others get none. `arrivals` is a file of int64 nanoseconds: when each request came,
    written at the end."""

    delays_ns: tuple[int, ...] = (0,)
    never: int = 0
    never_at: int = -1
    twice: int = 0
    refused: int = 0
    dies_at: int = -1
    greeting_s: float = 0.0
    greets: int = 1 << 30
    arrivals: str = ""


class _Server:
    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self._decoders: dict[socket.socket, FrameDecoder] = {}
        self._due: list[tuple[int, int, socket.socket, bytes]] = []
        self._arrivals_ns: list[int] = []
        self._greeted = 0

    def serve(self, listener: socket.socket, stop: socket.socket) -> None:
        """Until something comes on `stop`."""
        while True:
            wait_s = max(0.0, (self._due[0][0] - time.monotonic_ns()) / 1e9) if self._due else None
            readable, _, _ = select.select([listener, stop, *self._decoders], [], [], wait_s)
            if stop in readable:
                break
            for connection in readable:
                self._accept(listener) if connection is listener else self._receive(connection)
            self._answer()
        if self._behaviour.arrivals:
            np.array(self._arrivals_ns, np.int64).tofile(self._behaviour.arrivals)

    def _accept(self, listener: socket.socket) -> None:
        accepted, _ = listener.accept()
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoders[accepted] = FrameDecoder(LIMITS.frame_bytes_max)

    def _receive(self, connection: socket.socket) -> None:
        decoder = self._decoders[connection]
        try:
            byte_count = connection.recv_into(decoder.get_buffer())
        except ConnectionResetError:
            byte_count = 0
        now_ns = time.monotonic_ns()
        if byte_count == 0:
            del self._decoders[connection]
            return
        decoder.received(byte_count)
        while (frame := decoder.next_frame()) is not None:
            message = decode_client_message(frame)
            if isinstance(message, Hello):
                self._greet(connection)
            elif isinstance(message, Infer):
                self._take(connection, message.id, now_ns)

    def _greet(self, connection: socket.socket) -> None:
        time.sleep(self._behaviour.greeting_s)
        if self._greeted < self._behaviour.greets:
            self._greeted += 1
            connection.sendall(encode_frame(Welcome(PROTOCOL_VERSION, "reference", LIMITS, (MODEL,))))

    def _take(self, connection: socket.socket, request_id: int, now_ns: int) -> None:
        behaviour, index = self._behaviour, request_id - FIRST_ID
        self._arrivals_ns.append(now_ns)
        if index == behaviour.dies_at:
            os._exit(1)
        delay_ns = behaviour.delays_ns[index % len(behaviour.delays_ns)]
        stamps = (now_ns, now_ns, now_ns, now_ns, now_ns + delay_ns, now_ns + delay_ns)
        reply: ServerMessage = Result(request_id, "1", [OUTPUT], stamps)
        if every(behaviour.refused, index):
            reply = Failure(request_id, Code.BAD_VALUE, "not this one")
        silent = every(behaviour.never, index) or index == behaviour.never_at
        copies = 0 if silent else 2 if every(behaviour.twice, index) else 1
        for _ in range(copies):
            heapq.heappush(self._due, (now_ns + delay_ns, len(self._arrivals_ns), connection, encode_frame(reply)))

    def _answer(self) -> None:
        while self._due and self._due[0][0] <= time.monotonic_ns():
            _, _, connection, frame = heapq.heappop(self._due)
            if connection in self._decoders:
                with suppress(ConnectionError):  # the next receive tells
                    connection.sendall(frame)


def every(period: int, index: int) -> bool:
    """Whether this is one of every `period` requests, the last of each."""
    return period > 0 and index % period == period - 1


class ReferenceServer:
    """A running one."""

    def __init__(self, process: subprocess.Popen[str], port: int, arrivals: Path) -> None:
        self.process = process
        self.address = f"127.0.0.1:{port}"
        self._arrivals = arrivals

    def arrivals_ns(self) -> npt.NDArray[np.int64]:
        """When each request came, by its own clock, which is the sender's too. Ends the server."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(20) == 0
        return np.fromfile(self._arrivals, np.int64)


@contextmanager
def reference_server(
    folder: Path, behaviour: Behaviour, delays_ns: Sequence[int] | npt.NDArray[np.int64] = ()
) -> Iterator[ReferenceServer]:
    """With the delays of `behaviour`, or `delays_ns` in their place."""
    arrivals = folder / "arrivals"
    behaviour = msgspec.structs.replace(behaviour, arrivals=str(arrivals))
    if len(delays_ns):
        behaviour = msgspec.structs.replace(behaviour, delays_ns=tuple(int(delay_ns) for delay_ns in delays_ns))
    (folder / "behaviour.json").write_bytes(msgspec.json.encode(behaviour))
    command = [sys.executable, "-m", "tests.reference_server", str(folder / "behaviour.json")]
    root = Path(__file__).parents[1]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        try:
            assert process.stdout is not None
            yield ReferenceServer(process, int(process.stdout.readline()), arrivals)
        finally:
            process.kill()


def main() -> None:
    behaviour = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Behaviour)
    stop, stopper = socket.socketpair()
    signal.signal(signal.SIGTERM, lambda *_: stopper.send(b"."))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        _Server(behaviour).serve(listener, stop)


if __name__ == "__main__":
    main()
