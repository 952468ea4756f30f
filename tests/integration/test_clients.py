"""Every client against a real server, over TCP and a Unix socket: answers, refusals, and a server that goes."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tests.serving import RunningServer, serve, write_zoo
from tests.unit.client.callers import CALLERS, MakeCaller

from tickpath.client import (
    BadShapeError,
    BadValueError,
    ConnectError,
    ConnectionLostError,
    DeadlineError,
    NotReadyError,
    Prediction,
    UnknownModelError,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    with serve(folder, write_zoo(folder, "mlp")) as running:
        yield running


@pytest.fixture(params=["tcp", "unix"])
def address(request: pytest.FixtureRequest, server: RunningServer) -> str:
    return server.address if request.param == "tcp" else server.uds


@pytest.fixture(params=list(CALLERS))
def make_caller(request: pytest.FixtureRequest) -> MakeCaller:
    return CALLERS[request.param]


def test_answers_are_the_runtimes_own(make_caller: MakeCaller, address: str, folder: Path) -> None:
    session = onnxruntime.InferenceSession(folder / "mlp.onnx", providers=["CPUExecutionProvider"])
    random = np.random.default_rng(3)
    with make_caller(address) as client:
        info = client.model("mlp")
        [tensor] = info.inputs
        windows = [random.random((rows, *tensor.shape[1:]), np.float32) for rows in info.buckets for _ in range(20)]
        # The memory is laid out otherwise than it is sent.
        outcomes = client.infer_many("mlp", [np.asfortranarray(window) for window in windows])
        for window, outcome in zip(windows, outcomes, strict=True):
            assert isinstance(outcome, Prediction)
            [expected] = session.run(None, {tensor.name: window})
            np.testing.assert_array_equal(outcome[info.outputs[0].name], expected)
            assert all(stage_ns >= 0 for stage_ns in outcome.stages.values())


def test_refusals_come_back_typed(make_caller: MakeCaller, address: str) -> None:
    with make_caller(address) as client:
        [tensor] = client.model("mlp").inputs
        x = np.zeros(tensor.shape, np.float32)
        with pytest.raises(UnknownModelError, match="it serves: 'mlp'"):
            client.infer("mlq", x)
        with pytest.raises(BadShapeError):
            client.infer("mlp", x[:, 1:])
        with pytest.raises(BadValueError):
            client.infer("mlp", np.full_like(x, np.nan))
        with pytest.raises(DeadlineError):
            client.infer("mlp", x, budget_ns=1)
        assert client.infer("mlp", x).server_ns > 0
        assert client.ping() > 0


def test_a_server_that_stops_is_noticed(make_caller: MakeCaller, tmp_path: Path) -> None:
    with serve(tmp_path, write_zoo(tmp_path, "mlp")) as running:
        client = make_caller(running.address, reconnect=None)
        with client:
            [tensor] = client.model("mlp").inputs
            x = np.zeros(tensor.shape, np.float32)
            client.infer("mlp", x)
            running.stop()
            # Told in time, in between, or by the end of the connection: never an answer, never a hang.
            with pytest.raises((ConnectError, NotReadyError, ConnectionLostError)):
                client.infer("mlp", x)
