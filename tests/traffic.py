"""Clients that go on asking, whatever the server does: open loop, pipelined, and every answer checked."""

import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
from tests.serving import RunningServer

from tickpath.wire import (
    PROTOCOL_VERSION,
    REPLY_BYTES_MAX,
    Failure,
    FrameDecoder,
    Hello,
    Infer,
    Result,
    Welcome,
    decode_server_message,
    encode_frame,
)

Floats = npt.NDArray[np.float32]
Answering = Callable[[str, Floats], Floats]
"""What the version of this label must answer, bit for bit."""

ROWS_MAX = 8
FLOATS = 3
# After the last request: every answer is there, or never comes.
END_S = 20.0


@dataclass(frozen=True, slots=True)
class Answered:
    """A right answer: who gave it, when it was meant to be asked for and when it was there; `server_ns`: from receipt
    to reply, by the server's own stamps."""

    version: str
    intended_ns: int
    done_ns: int
    server_ns: int


@dataclass
class _Line:
    """A connection, and what it waits for."""

    socket: socket.socket
    handle: int
    decoder: FrameDecoder = field(default_factory=lambda: FrameDecoder(REPLY_BYTES_MAX))
    waiting: dict[int, tuple[int, Floats]] = field(default_factory=dict)


class Traffic:
    """`rate` requests a second to `model`, from a thread, over several connections, while the block lasts.

    `answers` in the order in which they came, `wrong`: what else came. Requests have 1 to 8 rows of three floats.
    """

    def __init__(
        self, server: RunningServer, model: str, answering: Answering, rate: float = 2000.0, connections: int = 4
    ) -> None:
        self.answers: list[Answered] = []
        self.wrong: list[str] = []
        self._answering = answering
        self._period_ns = round(1e9 / rate)
        self._inputs = np.random.default_rng(0).standard_normal((512, ROWS_MAX, FLOATS), np.float32)
        self._lines = [self._connect(server, model, number) for number in range(connections)]
        self._by_socket = {line.socket: line for line in self._lines}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        for line in self._lines:
            line.socket.close()

    def versions(self) -> list[str]:
        """Who has answered, in the order of their first answers."""
        return list(dict.fromkeys(answer.version for answer in self.answers))

    def wait_for(self, count: int) -> None:
        """Returns when so many more have been answered."""
        target = len(self.answers) + count
        while len(self.answers) < target and self._thread.is_alive():
            time.sleep(0.001)

    def _connect(self, server: RunningServer, model: str, number: int) -> _Line:
        connected = server.connect()
        line = _Line(connected, 0)
        connected.sendall(encode_frame(Hello(PROTOCOL_VERSION, f"traffic-{number}")))
        while (frame := line.decoder.next_frame()) is None:
            line.decoder.received(connected.recv_into(line.decoder.get_buffer()))
        welcome = decode_server_message(frame)
        assert isinstance(welcome, Welcome)
        line.handle = next(info.handle for info in welcome.models if info.name == model)
        connected.setblocking(False)
        return line

    def _run(self) -> None:
        start_ns, number = time.monotonic_ns(), 0
        while not self._stop.is_set():
            intended_ns = start_ns + number * self._period_ns
            if (ahead_ns := intended_ns - time.monotonic_ns()) > 0:
                self._read(ahead_ns / 1e9)
                continue
            number += 1
            self._send(self._lines[number % len(self._lines)], number, intended_ns)
        end_s = time.monotonic() + END_S
        while any(line.waiting for line in self._lines) and time.monotonic() < end_s:
            self._read(0.01)
        self.wrong += [f"{len(line.waiting)} never answered" for line in self._lines if line.waiting]

    def _send(self, line: _Line, number: int, intended_ns: int) -> None:
        rows = 1 + number % ROWS_MAX
        inputs = self._inputs[number % len(self._inputs), :rows]
        frame = encode_frame(Infer(number, line.handle, rows, [memoryview(inputs.tobytes())]))
        line.waiting[number] = intended_ns, inputs
        if line.socket.send(frame) < len(frame):
            raise AssertionError("the server does not read")

    def _read(self, wait_s: float) -> None:
        for connected in select.select(list(self._by_socket), [], [], wait_s)[0]:
            line = self._by_socket[connected]
            byte_count = connected.recv_into(line.decoder.get_buffer())
            done_ns = time.monotonic_ns()
            if byte_count == 0:
                self.wrong.append("the server closed a connection")
                del self._by_socket[connected]
                continue
            line.decoder.received(byte_count)
            while (frame := line.decoder.next_frame()) is not None:
                self._take(line, frame, done_ns)

    def _take(self, line: _Line, frame: memoryview, done_ns: int) -> None:
        message = decode_server_message(frame)
        assert isinstance(message, Result | Failure), message
        intended_ns, inputs = line.waiting.pop(message.id)
        if isinstance(message, Failure):
            self.wrong.append(f"{message.code.name}: {message.message}")
        elif bytes(message.outputs[0]) != self._answering(message.version, inputs).tobytes():
            self.wrong.append(f"an answer that version {message.version} does not give")
        else:
            server_ns = message.stamps[-1] - message.stamps[1]
            self.answers.append(Answered(message.version, intended_ns, done_ns, server_ns))
