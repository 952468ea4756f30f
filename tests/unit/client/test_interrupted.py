"""Ctrl-C in a blocking call, at every point at which it can come: the next call has its own answer, not an earlier
one's rest."""

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from types import FrameType
from typing import Any

import numpy as np
from tests.unit.client.scripted import Session

from tickpath.client import Client
from tickpath.client.blocking_connection import SocketConnection
from tickpath.wire import Infer


@contextmanager
def echo_server() -> Iterator[tuple[str, int]]:
    """Echoes on as many connections as come, one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener,))
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(listener: socket.socket) -> None:
    while True:
        try:
            connected, _ = listener.accept()
        except OSError:  # the test is over
            return
        with connected, suppress(ConnectionResetError):  # who is interrupted has not read all
            session = Session(connected)
            session.welcome()
            while (message := session.next_message()) is not None:
                if isinstance(message, Infer):
                    session.echo(message)


class Interrupt:
    """Raises KeyboardInterrupt before the `at`-th instruction of `method`, what it calls counted line by line."""

    def __init__(self, method: Any, at: int) -> None:
        self._code = method.__code__
        self._left = at
        self._depth = 0

    @property
    def came(self) -> bool:
        return self._left < 0

    def __enter__(self) -> None:
        sys.settrace(self._called)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, _event: str, _argument: object) -> Any:
        if frame.f_code is not self._code and not self._depth:
            return None
        self._depth += 1
        frame.f_trace_opcodes = frame.f_code is self._code
        return self._stepped

    def _stepped(self, _frame: FrameType, event: str, _argument: object) -> Any:
        if event == "return":
            self._depth -= 1
        elif event in ("line", "opcode"):
            self._left -= 1
            if self._left == -1:
                raise KeyboardInterrupt
        return self._stepped


def test_wherever_it_comes_while_receiving() -> None:
    with echo_server() as address, Client(address) as client:
        for at in count():
            interrupt = Interrupt(SocketConnection._receive, at)
            with suppress(KeyboardInterrupt), interrupt:
                client.infer("echo", np.full((1, 3), -1, np.float32))
            if not interrupt.came:
                break
            x = np.full((1, 3), at, np.float32)
            np.testing.assert_array_equal(client.infer("echo", x)["y"], x)
    assert at > 50
