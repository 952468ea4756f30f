"""What a real server writes to stderr, and that it doesn't wait until somebody has read it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.processes import WAIT_S_MAX
from tests.serving import write_zoo

from tickpath.client import Client
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
