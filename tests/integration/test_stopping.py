"""How a server stops: nobody who asked is left without an answer, nobody can hold it, and it ends with 0."""

import os
import signal
import socket
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_starting import status
from tests.onnx_models import save, slow, wide
from tests.peer import Peer
from tests.processes import children, free_port, wait_until_ended
from tests.serving import RunningServer, serve, write_zoo

from tickpath.wire import Code, Failure, Goodbye, Infer, Ping, Pong, Result, ServerMessage

NULL, SLOW = 0, 1
FLOAT = memoryview(b"\0\0\x80\x3f")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """`null`, answered at once, and `slow`, which takes many times what a round trip does, on its thread."""
    folder = tmp_path_factory.mktemp("models")
    path = save(slow(100_000), folder, "slow.onnx")
    return [*write_zoo(folder, "null"), {"path": str(path), "buckets": [1], "executor": "thread"}]


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """Connections to close when the test is over."""
    with ExitStack() as stack:
        yield stack


def null(request_id: int) -> Infer:
    return Infer(request_id, NULL, 1, [memoryview(bytes(256))])


def slow_one(request_id: int, budget_ns: int = 0) -> Infer:
    return Infer(request_id, SLOW, 1, [FLOAT], budget_ns)


def to_the_end(peer: Peer) -> list[ServerMessage]:
    """All that still comes, until the server closes."""
    messages = []
    while (message := peer.receive()) is not None:
        messages.append(message)
    return messages


def answers(messages: list[ServerMessage]) -> Counter[int]:
    """How many answers each request has got; a refusal may only be NOT_READY."""
    refused = [message for message in messages if isinstance(message, Failure)]
    assert {message.code for message in refused} <= {Code.NOT_READY}
    return Counter(message.id for message in messages if isinstance(message, Result | Failure))


def once_each(count: int) -> Counter[int]:
    return Counter(range(1, count + 1))


def paused(server: RunningServer) -> None:
    """Stop the process without its knowing, until SIGCONT."""
    server.process.send_signal(signal.SIGSTOP)
    stat = Path(f"/proc/{server.ready.pid}/stat")
    while stat.read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.001)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_whoever_asked_is_answered_once(
    number: signal.Signals, models: list[dict[str, Any]], tmp_path: Path, opened: ExitStack
) -> None:
    with serve(tmp_path, models) as server:
        working, sending, idle = (opened.enter_context(server.peer()) for _ in range(3))
        silent = opened.enter_context(server.connect())
        working.send(*map(slow_one, range(1, 21)))
        working.send(Ping(99))
        assert isinstance(working.receive(), Pong)
        paused(server)
        # These wait in the kernel when the signal is seen, a hundred of them behind one another.
        sending.send(*map(null, range(1, 101)))
        server.process.send_signal(number)
        server.process.send_signal(signal.SIGCONT)

        assert isinstance(idle.receive(), Goodbye)
        with pytest.raises(ConnectionRefusedError):
            server.connect()
        with socket.socket(socket.AF_UNIX) as late, pytest.raises(FileNotFoundError):
            late.connect(str(tmp_path / "s"))

        assert answers(to_the_end(working)) == once_each(20)
        assert answers(to_the_end(sending)) == once_each(100)
        assert to_the_end(idle) == []
        assert silent.recv(1) == b""
        assert server.process.wait(30) == 0
    assert "Traceback" not in server.log.read_text()


def test_what_has_not_begun_when_the_time_is_over_is_refused(
    models: list[dict[str, Any]], tmp_path: Path, opened: ExitStack
) -> None:
    with serve(tmp_path, models, drain_s=0.2) as server:
        peer = opened.enter_context(server.peer())
        peer.send(*map(slow_one, range(1, 32)))
        peer.send(null(100))
        while not (isinstance(message := peer.receive(), Result) and message.id == 100):
            pass
        server.process.send_signal(signal.SIGTERM)
        messages = to_the_end(peer)
        refused = [message.id for message in messages if isinstance(message, Failure)]
        # Those answered before the signal are not among these; no answer came twice.
        assert set(answers(messages).values()) == {1}
        assert refused
        assert refused == list(range(refused[0], 32)), "the last ones, and all of them"
        assert server.process.wait(30) == 0
    assert "Traceback" not in server.log.read_text()


def test_any_number_of_signals_ends_it_as_one_does(
    models: list[dict[str, Any]], tmp_path: Path, opened: ExitStack
) -> None:
    with serve(tmp_path, models) as server:
        peer = opened.enter_context(server.peer())
        peer.send(*map(slow_one, range(1, 6)))
        while server.process.poll() is None:
            server.process.send_signal(signal.SIGTERM)
            server.process.send_signal(signal.SIGINT)
            time.sleep(0.001)
        assert server.process.returncode == 0
        assert answers(to_the_end(peer)) == once_each(5)
    assert server.log.read_text().count("draining") == 1


@pytest.fixture(scope="module")
def wide_model(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """A quarter of a megabyte for an answer."""
    return [{"path": str(save(wide(65536), tmp_path_factory.mktemp("models"), "wide.onnx")), "buckets": [1]}]


def wait_until_stuck(metrics: str) -> None:
    """Until the server has stopped answering: nothing between two looks."""
    before = -1
    while (now := answered(metrics)) == 0 or now != before:
        before = now
        time.sleep(0.2)  # ten readings of the observer


def answered(metrics: str) -> int:
    with urllib.request.urlopen(metrics, timeout=20) as reply:
        lines = reply.read().decode().splitlines()
    return int(
        sum(float(line.split()[-1]) for line in lines if line.startswith("tickpath_request_duration_seconds_count"))
    )


def test_a_client_that_never_reads_holds_nobody_longer_than_drain_s(
    wide_model: list[dict[str, Any]], tmp_path: Path, opened: ExitStack
) -> None:
    """Meanwhile it is not ready, and a successor takes over its addresses, which stay the successor's."""
    port, uds, next_folder = free_port(), tmp_path / "s", tmp_path / "next"
    next_folder.mkdir()
    old: dict[str, Any] = {"port": port, "observer_port": 0, "drain_s": 2, "write_stall_s": 60}
    with serve(tmp_path, wide_model, **old) as server:
        stuck, idle = (opened.enter_context(server.peer()) for _ in range(2))
        stuck.send(*(Infer(number, 0, 1, [FLOAT]) for number in range(1, 101)))
        idle.send(Ping(1))
        assert isinstance(idle.receive(), Pong)
        wait_until_stuck(f"{server.ready.observer}/metrics")
        server.process.send_signal(signal.SIGTERM)
        assert isinstance(idle.receive(), Goodbye)
        while (code := status(f"{server.ready.observer}/readyz")) == 200:
            pass  # it reads the state fifty times a second
        assert code == 503
        with serve(next_folder, wide_model, port=port, uds=str(uds)) as successor:
            assert server.process.wait(30) == 0
            with successor.peer(), socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(uds))
                Peer(connection).greet()
        assert 0 < sum(answers(to_the_end(stuck)).values()) < 100
    assert "Traceback" not in server.log.read_text()


def test_ctrl_c_in_a_terminal_ends_server_and_observer(models: list[dict[str, Any]], tmp_path: Path) -> None:
    """It goes to the whole foreground group: the observer is not in it, and is ended by the core in the end."""
    with serve(tmp_path, models, process_group=0, observer_port=0) as server:
        port = int(str(server.ready.observer).rpartition(":")[2])
        before = children(server.ready.pid)
        assert len(before) == 1
        os.killpg(server.process.pid, signal.SIGINT)
        assert server.process.wait(30) == 0
        wait_until_ended(before[0])
        socket.create_server(("127.0.0.1", port)).close()
    log = server.log.read_text()
    assert "Traceback" not in log
    assert "the observer ended" not in log


@pytest.mark.parametrize("way", ["connect", "connect_unix"])
def test_who_does_not_read_is_not_waited_for(tmp_path: Path, models: list[dict[str, Any]], way: str) -> None:
    """What was said to it has reached it: it finds that later."""
    forever_s = 3600
    with (
        serve(tmp_path, models, drain_s=forever_s, write_stall_s=forever_s) as server,
        Peer(getattr(server, way)()) as peer,
    ):
        peer.greet()
        assert server.stop() == 0
        assert [type(message) for message in to_the_end(peer)] == [Goodbye]
