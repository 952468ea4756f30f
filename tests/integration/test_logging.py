"""What a real server writes to stderr, and that it doesn't wait until somebody has read it."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.onnx_models import picky, save
from tests.processes import WAIT_S_MAX, children, free_port, wait_until_ended
from tests.serving import RunningServer, serve, write_zoo
from tests.waiting import wait_until

from tickpath.client import BadValueError, Client, EngineFailedError
from tickpath.server.ready import Ready

SERVE = (sys.executable, "-m", "tickpath.cli", "serve", "--port", "0", "--no-observer", "--json")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    write_zoo(folder, "mlp")
    return folder / "mlp.onnx"


@pytest.fixture
def full_pipe() -> Iterator[int]:
    """The writing end of a pipe that takes nothing more, and that nobody reads."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 65536)
    except BlockingIOError:
        os.set_blocking(writer, True)
    yield writer
    os.close(writer)
    os.close(reader)


def test_json_lines_tell_of_the_start_and_the_end(model: Path) -> None:
    with subprocess.Popen(
        [*SERVE, str(model), "--log-format", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        server.stdout.readline()
        server.terminate()
        _, said = server.communicate(timeout=WAIT_S_MAX)
    told = [json.loads(line) for line in said.splitlines()]
    assert [line["message"].split()[0] for line in told] == ["serving", "ready", "draining:", "stopped"]
    assert {line["level"] for line in told} == {"info"}
    assert {line["pid"] for line in told} == {server.pid}


def test_a_server_whose_stderr_nobody_reads_starts_answers_and_ends(model: Path, full_pipe: int) -> None:
    with subprocess.Popen([*SERVE, str(model)], stdout=subprocess.PIPE, stderr=full_pipe) as server:
        assert server.stdout is not None
        ready = msgspec.json.decode(server.stdout.readline(), type=Ready)
        with Client(ready.address) as client:
            inputs = client.model("mlp").inputs
            assert len(inputs) == 1
            client.ping()
        server.terminate()
        assert server.wait(WAIT_S_MAX) == 0


def test_nothing_that_clients_do_floods_the_log(tmp_path: Path) -> None:
    """Answers, refusals, requests on which the runtime fails, garbage, and connections that come and go: the start and
    the end have their lines, and nothing between them has one."""
    picky_model = {"path": str(save(picky(), tmp_path, "picky.onnx"))}
    with serve(tmp_path, [picky_model], observer_port=False) as server:
        with Client(server.address) as client:
            for number in range(200):
                client.infer("picky", np.array([[number % 64]], np.float32))
                with pytest.raises(EngineFailedError):
                    client.infer("picky", np.array([[1000]], np.float32))
                with pytest.raises(BadValueError):
                    client.infer("picky", np.array([[np.nan]], np.float32))
        for garbage in (b"", b"\xff" * 20, b"GET / HTTP/1.1\r\n\r\n") * 100:
            with server.connect() as connection:
                connection.sendall(garbage)
        with Client(server.address) as client:
            client.ping()
    told = [line.split(maxsplit=3)[3].split()[0] for line in server.log.read_text().splitlines()]
    assert told == ["serving", "ready", "draining:", "stopped"]


def beside(server: RunningServer, module: str) -> int:
    """The process id of the observer, the door or the recorder."""
    (pid,) = (pid for pid in children(server.ready.pid) if module.encode() in command_of(pid))
    return pid


def command_of(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def test_json_lines_are_all_that_a_server_and_those_beside_it_say_also_where_they_fail(
    model: Path, tmp_path: Path
) -> None:
    """Each is killed; the observer and the door then find their address taken by another."""
    ports = {"tickpath.observe": free_port(), "tickpath.door": free_port()}
    endpoint = f"http://127.0.0.1:{free_port()}/v1/traces"
    with serve(
        tmp_path,
        [{"path": str(model)}],
        log_format="json",
        observer_port=ports["tickpath.observe"],
        oip_port=ports["tickpath.door"],
        record={"dir": str(tmp_path / "recording")},
        trace={"endpoint": endpoint, "sample": 1.0, "slow": "off"},
    ) as server:

        def wait_for(*words: str) -> None:
            wait_until(lambda: all(word in server.log.read_text() for word in words), " and ".join(words))

        with Client(server.address) as client:
            client.infer("mlp", np.zeros((1, *client.model("mlp").inputs[0].shape[1:]), np.float32))
        wait_for("requests dropped so far")
        for module, port in ports.items():
            pid = beside(server, module)
            os.kill(pid, signal.SIGKILL)
            wait_until_ended(pid)
            with socket.create_server(("127.0.0.1", port)):
                wait_for(f"can't listen on 127.0.0.1:{port}")
        os.kill(beside(server, "tickpath.recorder"), signal.SIGKILL)
        wait_for("the recorder ended with exit code -9", "the door ended with exit code 4")
        wait_for("the observer ended with exit code 4")
    told = [json.loads(line) for line in server.log.read_text().splitlines()]
    assert all({"time", "level", "logger", "pid", "message"} <= line.keys() for line in told)
    assert len({line["pid"] for line in told}) >= 4
