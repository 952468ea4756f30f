"""The C++ client and a real server: every dtype, a real model, a server that is slow, drains, stops or is killed."""

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest
from tests.cpp.driver import Driver, output
from tests.inputs import inputs_root
from tests.onnx_models import one_node, save, slow
from tests.serving import RunningServer, serve, write_zoo

from tickpath.client import Client
from tickpath.wire import ITEM_BYTES

DTYPES: Final = tuple(ITEM_BYTES)
# Some 50 ms of computing: enough to do something meanwhile.
SLOW_STEPS: Final = 20_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """The zoo's mlp, a slow model, and one that gives back what it gets for each dtype."""
    folder = tmp_path_factory.mktemp("served")
    models: list[dict[str, Any]] = [*write_zoo(folder, "mlp")]
    models.append({"path": str(save(slow(SLOW_STEPS), folder, "slow.onnx")), "buckets": [1]})
    for dtype in DTYPES:
        models.append({"path": str(save(one_node("Identity", dtype, ["N", 5]), folder, f"{dtype}.onnx"))})
    with serve(folder, models) as running:
        yield running


@pytest.fixture
def connected(client: Driver, server: RunningServer) -> Driver:
    assert client.connect(server.address)["status"] == "OK"
    return client


def sample(dtype: str, rows: int) -> npt.NDArray[Any]:
    """Any value a dtype has, but no NaN and no infinity."""
    rng = np.random.default_rng(5)
    if dtype.startswith("float"):
        return rng.standard_normal((rows, 5)).astype(dtype)
    data = np.frombuffer(rng.bytes(rows * 5 * np.dtype(dtype).itemsize), np.uint8)
    return (data % 2).astype(bool).reshape(rows, 5) if dtype == "bool" else data.view(dtype).reshape(rows, 5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_comes_back(connected: Driver, dtype: str) -> None:
    for rows in (1, 3, 8):
        x = sample(dtype, rows)
        said = connected.infer(dtype, x, rows=rows)
        assert said["status"] == "OK", said
        assert bytes.fromhex(said["outputs"][0]) == x.tobytes()
        assert said["stamps"] == sorted(said["stamps"])


@pytest.mark.parametrize("wait", ["block", "spin"])
@pytest.mark.parametrize("way", ["tcp", "unix"])
def test_both_languages_get_the_same(client: Driver, server: RunningServer, way: str, wait: str) -> None:
    address = server.address if way == "tcp" else server.uds
    client.connect(address, wait)
    rng = np.random.default_rng(3)
    windows = [rng.random((1 + number % 8, 64), np.float32) for number in range(24)]
    sent = [client.send("mlp", window, rows=len(window))["id"] for window in windows]
    answers = {said["id"]: said for said in (client.receive() for _ in sent)}
    with Client(address) as python:
        for request_id, window in zip(sent, windows, strict=True):
            np.testing.assert_array_equal(
                output(answers[request_id]).reshape(-1, 3), python.infer("mlp", window)["y"], strict=True
            )


def test_a_real_model(client: Driver, tmp_path: Path) -> None:
    root = inputs_root()
    if root is None:
        pytest.skip("no real models here: set TICKPATH_INPUTS")
    model = {
        "path": str(root / "models" / "silero_vad/silero_vad_op18_ifless.onnx"),
        "name": "vad",
        "shapes": {"input": ["N", 576]},
    }
    with serve(tmp_path, [model]) as server, Client(server.address) as python:
        info = python.model("vad")
        inputs = [np.random.default_rng(1).random(tensor.shape).astype(tensor.dtype) for tensor in info.inputs]
        inputs = [np.full_like(data, 16000) if data.dtype == np.int64 else data for data in inputs]
        expected = python.infer("vad", inputs).outputs.values()
        client.connect(server.address)
        said = client.infer("vad", *inputs)
        for index, array in enumerate(expected):
            np.testing.assert_array_equal(output(said, array.dtype, index), array.ravel())


def test_refusals(connected: Driver) -> None:
    x = np.zeros((1, 64), np.float32)
    assert connected.infer("mlp", np.full_like(x, np.nan))["status"] == "BAD_VALUE"
    assert connected.infer("mlp", x, budget_ns=1)["status"] == "DEADLINE"
    assert connected.infer("mlp", x[:, 1:])["status"] == "BAD_SHAPE"
    assert connected.infer("mlp", x)["status"] == "OK"
    assert connected.say("ping", 5000)["server_ns"] > 0


def test_what_has_not_started_is_cancelled(connected: Driver) -> None:
    x = np.zeros((1, 1), np.float32)
    ids = [connected.send("slow", x)["id"] for _ in range(3)]
    connected.say("cancel", ids[2])
    statuses = {said["id"]: said["status"] for said in (connected.receive() for _ in ids)}
    assert [statuses[request_id] for request_id in ids] == ["OK", "OK", "CANCELLED"]


def test_a_timeout_leaves_the_connection_usable(connected: Driver) -> None:
    x = np.zeros((1, 1), np.float32)
    assert connected.infer("slow", x, timeout_ms=1)["status"] == "TIMED_OUT"
    assert connected.infer("mlp", np.zeros((1, 64), np.float32))["status"] == "OK"


def test_a_drain_answers_what_is_in_flight(client: Driver, tmp_path: Path) -> None:
    model = {"path": str(save(slow(SLOW_STEPS), tmp_path, "slow.onnx")), "buckets": [1]}
    with serve(tmp_path, [model], exit_code=0) as server:
        client.connect(server.address)
        x = np.zeros((1, 1), np.float32)
        for _ in range(4):
            assert client.send("slow", x)["status"] == "OK"
        assert client.receive()["status"] == "OK"  # so the others are in flight there
        server.process.send_signal(signal.SIGTERM)
        assert [client.receive()["status"] for _ in range(3)] == ["OK"] * 3
        assert server.process.wait(30) == 0
        assert client.say("check")["status"] in ("LOST", "NOT_READY")


def test_a_server_that_is_killed(client: Driver, tmp_path: Path) -> None:
    with serve(tmp_path, write_zoo(tmp_path, "mlp"), exit_code=None) as server:
        client.connect(server.address)
        x = np.zeros((1, 64), np.float32)
        assert client.infer("mlp", x)["status"] == "OK"
        server.process.send_signal(signal.SIGSTOP)
        client.send("mlp", x)
        server.process.kill()
        assert client.receive()["status"] == "LOST"
        server.process.wait(30)
        assert client.connect(server.address)["status"] == "UNREACHABLE"


@pytest.mark.parametrize("way", ["tcp", "unix"])
def test_nothing_is_allocated_on_the_way_of_a_request(
    programs: dict[str, Path], server: RunningServer, way: str
) -> None:
    address = server.address if way == "tcp" else server.uds
    done = subprocess.run([programs["allocations"], address], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"predictions +(\d+)", done.stdout) == ["0", "0"]


def test_the_latency_program(programs: dict[str, Path], server: RunningServer, tmp_path: Path) -> None:
    samples = tmp_path / "samples"
    command = [str(programs["latency"]), server.address, "mlp", "--count", "500", "--warmup", "10"]
    command += ["--samples", str(samples)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    taken_ns = np.fromfile(samples, np.uint64)
    assert len(taken_ns) == 500
    [p50, maximum] = map(float, re.findall(r"(?:p50|max) ([\d.]+)", done.stdout))
    assert p50 == pytest.approx(np.percentile(taken_ns, 50, method="higher") / 1e3, abs=0.06)
    assert maximum == pytest.approx(taken_ns.max() / 1e3, abs=0.06)
    assert "(thin)" in done.stdout
    assert subprocess.run([*command, "--spin"], capture_output=True, timeout=60, check=True).stdout


def test_the_example(programs: dict[str, Path], server: RunningServer) -> None:
    done = subprocess.run([programs["predict"], server.address], capture_output=True, text=True, timeout=60, check=True)
    assert len(re.findall(r"request \d+ is answered", done.stdout)) == 8
