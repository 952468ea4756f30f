"""Targets that are no tickpath server: frames without ids, and a protocol of a user's own."""

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np
from tests.plugged_target import REFUSED

from tickpath.loadtest.run import LOST, OK
from tickpath.loadtest.runner import ClosedLoop, Load, measure
from tickpath.loadtest.schedule import Constant
from tickpath.loadtest.target import Options
from tickpath.loadtest.validity import invalid


@contextmanager
def answering(answer: Callable[[bytes], Iterable[bytes]]) -> Iterator[str]:
    """A server that answers what comes with the parts that `answer` makes of it; one connection after the other."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    while data := connection.recv(65536):
                        for part in answer(data):
                            connection.sendall(part)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    assert not thread.is_alive()


def test_frames_that_come_back_in_order() -> None:
    received = []

    def echo(data: bytes) -> list[bytes]:
        received.append(data)
        return [data]

    with answering(echo) as address:
        run = measure(Load(Options(address, request_bytes=100), Constant(1000, 0.3), "echo", warmup=10))
    assert run.rows["code"].tolist() == [OK] * 300
    assert (np.diff(run.rows["done_ns"]) >= 0).all()
    assert run.stages_ns() == {}
    assert b"".join(received) == ((96).to_bytes(4, "little") + bytes(96)) * 310
    assert (run.target, run.model) == (f"echo at {address}", "")


def test_more_frames_than_were_asked_for_are_told() -> None:
    with answering(lambda data: [data, data]) as address:
        run = measure(Load(Options(address), Constant(200, 0.2), "echo", warmup=0))
    assert run.rows["code"].tolist() == [OK] * 40
    assert run.unasked > 0


def test_one_answer_too_many_is_told_where_answers_have_no_ids() -> None:
    """A second answer to one request comes when the next is in flight: it is taken for the answer to that, and so are
    all that follow. One is over in the end, when nothing is asked any more."""
    count = 0

    def stutter(data: bytes) -> Iterator[bytes]:
        nonlocal count
        count += 1
        if count == 3:
            yield data
        time.sleep(0.01)  # so long it takes for an answer
        yield data

    with answering(stutter) as address:
        run = measure(Load(Options(address), ClosedLoop(1, 0.4), "echo", warmup=0))
    assert (run.ending, run.unasked) == ("complete", 1)
    assert "1 answer came to nothing that was in flight" in invalid(run)[0]


def test_what_is_no_frame_ends_the_run() -> None:
    count = 0

    def late_nonsense(data: bytes) -> list[bytes]:
        nonlocal count
        count += 1
        return [data if count < 20 else b"\xff" * 8]

    with answering(late_nonsense) as address:
        run = measure(Load(Options(address), ClosedLoop(1, 60), "echo", warmup=0))
    assert run.ending == "server lost"
    assert "a frame's length is" in run.reason
    assert run.rows["code"].tolist() == [OK] * 19 + [LOST]


def test_a_target_of_a_users_own() -> None:
    def refuse_sevens(data: bytes) -> list[bytes]:
        return [b"-" * line.endswith(b"7\n") + line for line in data.splitlines(keepends=True)]

    with answering(refuse_sevens) as address:
        plugged = "tests.plugged_target:LineTarget"
        run = measure(Load(Options(address, "mine"), Constant(1000, 0.1), plugged, warmup=0))
        closed = measure(Load(Options(address), ClosedLoop(1, 0.1), plugged))
    assert run.rows["code"].tolist() == [REFUSED if index % 10 == 7 else OK for index in range(100)]
    assert (run.target, run.model) == (f"lines at {address}", "mine")
    assert len(closed.answered) > 0
