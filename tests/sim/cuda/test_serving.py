"""The server with a model on the simulated device: it serves, and when the device is lost it says so, refuses, and
ends with a code of its own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.sim.cuda.build import ROOT

from tickpath.client import Client, NotReadyError
from tickpath.server.ready import Ready

EXIT_DEVICE_LOST = 6
LAUNCH_FAILED = 719


@contextmanager
def serving(driver: Path, log: Path, *flags: str, inject: str = "") -> Iterator[tuple[subprocess.Popen[str], Ready]]:
    command = [sys.executable, "-m", "tests.sim.cuda.serve", "serve", "stand-in.onnx", "--port", "0", "--json"]
    environment = {"LD_LIBRARY_PATH": str(driver), "TICKPATH_SIM_INJECT": inject, "PATH": ""}
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [*command, "--no-observer", *flags],
            env=environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, log.read_text()
            yield process, msgspec.json.decode(line, type=Ready)
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait(30)


@pytest.mark.parametrize("executor", ["inline", "thread"])
def test_it_serves_from_the_device(simulated_driver: Path, tmp_path: Path, executor: str) -> None:
    log = tmp_path / "log"
    with serving(simulated_driver, log, "--executor", executor) as (process, ready), Client(ready.address) as client:
        whole = np.arange(40, dtype=np.float32).reshape(8, 5) % 7
        answers = client.infer("stand-in", {"x": whole})["y"]
        for row in range(8):
            alone = client.infer("stand-in", {"x": whole[row : row + 1]})["y"]
            assert np.array_equal(alone[0], answers[row])
    assert process.returncode == 0, log.read_text()
    assert "stand-in on simulated" in log.read_text().lower()


@pytest.mark.parametrize("executor", ["inline", "thread"])
def test_a_lost_device_ends_it_with_a_code_of_its_own(simulated_driver: Path, tmp_path: Path, executor: str) -> None:
    log = tmp_path / "log"
    inject = f"work:20000:{LAUNCH_FAILED}"  # far behind what loading and warming take
    with serving(simulated_driver, log, "--executor", executor, inject=inject) as (process, ready):
        with Client(ready.address) as client, pytest.raises(NotReadyError):
            ask_for_long(client)
        assert process.wait(30) == EXIT_DEVICE_LOST, log.read_text()
    assert "CUDA_ERROR_LAUNCH_FAILED" in log.read_text()


def ask_for_long(client: Client) -> None:
    """Until it is refused."""
    for _ in range(20_000):
        client.infer("stand-in", {"x": np.ones((1, 5), np.float32)})
