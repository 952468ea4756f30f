"""The server with a model on the simulated device: it serves, and when the device is lost it says so, refuses, and
ends with a code of its own."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from onnx import helper
from tests.onnx_models import constant, model, value
from tests.sim.cuda.build import ROOT
from tests.sim.cuda.model import ANSWERS, COLUMNS
from tests.sim.cuda.standin import weights_of

from tickpath.client import Client, NotReadyError, Prediction
from tickpath.server.ready import Ready
from tickpath.wire import Flag

EXIT_DEVICE_LOST = 6
LAUNCH_FAILED = 719
INVALID_VALUE = 1
NOT_SUPPORTED = 801

WHERE = {
    "inline": 'executor = "inline"',
    "thread": 'executor = "thread"',
    "thread, cpu": 'executor = "thread"\nfallback = "cpu"',
    "spin": 'device_wait = "spin"',
    "block": 'device_wait = "block"',
    "mapped": 'device_memory = "mapped"',
    "captured": 'device_graphs = "require"',
    "polled": 'device_wait = "poll"',
    "polled, one slot": 'device_wait = "poll"\ndevice_slots = 1',
}
"""Where the model runs, and what in its configuration says so."""
ON_THE_DEVICE = ["inline", "thread", "block", "mapped", "polled", "polled, one slot"]


@contextmanager
def serving(
    driver: Path, log: Path, where: str, inject: str = "", path: Path = Path("stand-in.onnx")
) -> Iterator[tuple[subprocess.Popen[str], Ready]]:
    config = log.parent / "tickpath.toml"
    config.write_text(f'[[models]]\npath = "{path}"\n{WHERE[where]}\n')
    command = [sys.executable, "-m", "tests.sim.cuda.serve", "serve", "--config", str(config), "--port", "0", "--json"]
    environment = {"LD_LIBRARY_PATH": str(driver), "TICKPATH_SIM_INJECT": inject, "PATH": ""}
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [*command, "--no-observer"],
            env=environment,
            cwd=ROOT,
            stdin=subprocess.PIPE,
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


@pytest.mark.parametrize("where", ON_THE_DEVICE)
def test_it_serves_from_the_device(simulated_driver: Path, tmp_path: Path, where: str) -> None:
    log = tmp_path / "log"
    with serving(simulated_driver, log, where) as (process, ready), Client(ready.address) as client:
        whole = np.arange(40, dtype=np.float32).reshape(8, 5) % 7
        answers = client.infer("stand-in", {"x": whole})["y"]
        for row in range(8):
            alone = client.infer("stand-in", {"x": whole[row : row + 1]})["y"]
            assert np.array_equal(alone[0], answers[row])
        rows = [{"x": whole[row % 8 : row % 8 + 1]} for row in range(200)]
        for row, prediction in enumerate(client.infer_many("stand-in", rows, in_flight=16)):
            assert isinstance(prediction, Prediction)
            assert np.array_equal(prediction["y"][0], answers[row % 8])
    assert process.returncode == 0, log.read_text()
    assert "stand-in on simulated" in log.read_text().lower()


@pytest.mark.parametrize(
    ("where", "calls"),
    [
        ("spin", {"cuEventQuery", "cuGraphLaunch", "cuMemcpyHtoDAsync"}),
        ("block", {"cuEventSynchronize", "cuGraphLaunch", "cuMemcpyHtoDAsync"}),
        ("mapped", {"cuEventQuery", "cuGraphLaunch"}),
    ],
)
def test_its_configuration_says_how_it_waits_and_where_tensors_lie(
    simulated_driver: Path, tmp_path: Path, where: str, calls: set[str]
) -> None:
    with serving(simulated_driver, tmp_path / "log", where) as (process, ready), Client(ready.address) as client:
        assert len(client.infer("stand-in", {"x": np.ones((3, 5), np.float32)})["y"]) == 3
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        counts = json.loads(process.stdout.readline())
    assert {name for name, count in counts.items() if name.startswith("cu") and count} == calls


def test_a_model_that_cannot_be_captured_is_served_or_refused_as_configured(
    simulated_driver: Path, tmp_path: Path
) -> None:
    inject = f"cuGraphInstantiateWithFlags:1:{NOT_SUPPORTED}"
    with serving(simulated_driver, tmp_path / "log", "inline", inject) as (_, ready), Client(ready.address) as client:
        assert len(client.infer("stand-in", {"x": np.ones((8, 5), np.float32)})["y"]) == 8
    assert "the bucket of 8 rows runs without a graph" in (tmp_path / "log").read_text()
    with (
        pytest.raises(AssertionError, match="the bucket of 8 rows can't be captured"),
        serving(simulated_driver, tmp_path / "log", "captured", inject),
    ):
        pass


@pytest.mark.parametrize("where", ON_THE_DEVICE)
def test_a_lost_device_ends_it_with_a_code_of_its_own(simulated_driver: Path, tmp_path: Path, where: str) -> None:
    log = tmp_path / "log"
    inject = f"work:20000:{LAUNCH_FAILED}"  # far behind what loading and warming take
    with serving(simulated_driver, log, where, inject=inject) as (process, ready):
        with Client(ready.address) as client, pytest.raises(NotReadyError):
            ask_for_long(client)
        assert process.wait(30) == EXIT_DEVICE_LOST, log.read_text()
    assert "CUDA_ERROR_LAUNCH_FAILED" in log.read_text()


def ask_for_long(client: Client) -> None:
    """Until it is refused."""
    for _ in range(20_000):
        client.infer("stand-in", {"x": np.ones((1, 5), np.float32)})


def test_what_fails_on_the_device_is_answered_by_the_cpu(simulated_driver: Path, tmp_path: Path) -> None:
    """A launch that fails now and then: the same answer, and it says where it is from."""
    log, source = tmp_path / "log", tmp_path / "stand-in.onnx"
    source.write_bytes(stand_in_as_onnx().SerializeToString())
    inject = f"cuEventRecord:3000:{INVALID_VALUE}"  # far behind what loading and warming take
    x = np.arange(5, dtype=np.float32).reshape(1, 5)
    with serving(simulated_driver, log, "thread, cpu", inject, source) as (process, ready):
        with Client(ready.address) as client:
            predictions = [client.infer("stand-in", {"x": x}) for _ in range(4000)]
        by_cpu = [Flag.CPU_ANSWER in prediction.flags for prediction in predictions]
        assert sum(by_cpu) == 1
        assert all(np.array_equal(prediction["y"], predictions[0]["y"]) for prediction in predictions)
    assert process.returncode == 0, log.read_text()


def stand_in_as_onnx(seed: int = 0) -> onnx.ModelProto:
    """The stand-in's arithmetic, for the CPU. `seed`: of its weights."""
    names = ("w1", "b1", "w2", "b2")
    weights = [constant(name, each) for name, each in zip(names, weights_of(COLUMNS, ANSWERS, seed=seed), strict=True)]
    nodes = [helper.make_node("Gemm", ["x", "w1", "b1"], ["h"]), helper.make_node("Gemm", ["h", "w2", "b2"], ["y"])]
    return model(nodes, [value("x", np.float32, ("N", COLUMNS))], [value("y", np.float32, ("N", ANSWERS))], weights)
