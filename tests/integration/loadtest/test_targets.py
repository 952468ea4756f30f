"""Targets that are no tickpath server: frames without ids, and a protocol of a user's own."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from tests.plugged_target import REFUSED

from tickpath.loadtest.run import OK
from tickpath.loadtest.runner import ClosedLoop, Load, measure
from tickpath.loadtest.schedule import Constant
from tickpath.loadtest.target import Options


@contextmanager
def answering(answer: Callable[[bytes], bytes]) -> Iterator[str]:
    """A server that answers what comes with what `answer` makes of it; one connection after the other."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    while data := connection.recv(65536):
                        connection.sendall(answer(data))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    assert not thread.is_alive()


def test_frames_that_come_back_in_order() -> None:
    received = []

    def echo(data: bytes) -> bytes:
        received.append(data)
        return data

    with answering(echo) as address:
        run = measure(Load(Options(address, request_bytes=100), Constant(1000, 0.3), "echo", warmup=10))
    assert run.rows["code"].tolist() == [OK] * 300
    assert (np.diff(run.rows["done_ns"]) >= 0).all()
    assert run.stages_ns() == {}
    assert b"".join(received) == ((96).to_bytes(4, "little") + bytes(96)) * 310
    assert (run.target, run.model) == (f"echo at {address}", "")


def test_more_frames_than_were_asked_for_are_told() -> None:
    with answering(lambda data: 2 * data) as address:
        run = measure(Load(Options(address), Constant(200, 0.2), "echo", warmup=0))
    assert run.rows["code"].tolist() == [OK] * 40
    assert run.unasked > 0


def test_what_is_no_frame_ends_the_run() -> None:
    count = 0

    def late_nonsense(data: bytes) -> bytes:
        nonlocal count
        count += len(data) // 280
        return data if count < 20 else b"\xff" * 8

    with answering(late_nonsense) as address:
        run = measure(Load(Options(address), Constant(200, 0.5), "echo", warmup=0))
    assert run.ending == "server lost"
    assert "a frame's length is" in run.reason
    assert 0 < len(run.answered) < 20


def test_a_target_of_a_users_own() -> None:
    def refuse_sevens(data: bytes) -> bytes:
        return b"".join(b"-" * line.endswith(b"7\n") + line for line in data.splitlines(keepends=True))

    with answering(refuse_sevens) as address:
        plugged = "tests.plugged_target:LineTarget"
        run = measure(Load(Options(address, "mine"), Constant(1000, 0.1), plugged, warmup=0))
        closed = measure(Load(Options(address), ClosedLoop(1, 0.1), plugged))
    assert run.rows["code"].tolist() == [REFUSED if index % 10 == 7 else OK for index in range(100)]
    assert (run.target, run.model) == (f"lines at {address}", "mine")
    assert len(closed.answered) > 0
