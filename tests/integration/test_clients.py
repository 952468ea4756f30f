"""Every client against a real server, over TCP and a Unix socket: answers, refusals, and a server that goes."""

import asyncio
import itertools
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import numpy as np
import onnxruntime
import pytest
from tests.serving import RunningServer, serve, write_zoo
from tests.unit.client.callers import CALLERS, MakeCaller

from tickpath.client import (
    AsyncClient,
    BadShapeError,
    BadValueError,
    Client,
    ConnectError,
    ConnectionLostError,
    DeadlineError,
    NotReadyError,
    Prediction,
    UnknownModelError,
)

TraceFunction: TypeAlias = Callable[[FrameType, str, Any], Any]


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


def test_each_of_many_is_asked_as_one_is(make_caller: MakeCaller, address: str) -> None:
    with make_caller(address) as client:
        [tensor] = client.model("mlp").inputs
        x = np.zeros(tensor.shape, np.float32)
        lowest = client.limits.priority_levels - 1
        outcomes = client.infer_many("mlp", [x, np.repeat(x, 2, axis=0)], rows=1, event_time_ns=1, priority=lowest)
        assert [type(outcome) for outcome in outcomes] == [Prediction, BadShapeError]
        for refused in client.infer_many("mlp", [x, x], priority=lowest + 1):
            assert isinstance(refused, BadValueError)


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


def test_a_forked_child_has_a_connection_of_its_own(server: RunningServer) -> None:
    """On one connection each would take the other's answers: both number their requests alike."""
    with Client(server.address) as client:
        ours = client.infer("mlp", np.ones((1, 64), np.float32))["y"]
        child = os.fork()
        try:
            theirs = client.infer("mlp", np.full((1, 64), 1 if child else 2, np.float32))["y"]
            assert np.array_equal(theirs, ours) is bool(child)
            client.close()  # the child's Goodbye is not the parent's
        finally:
            if not child:
                os._exit(sys.exc_info()[0] is not None)
        assert os.waitpid(child, 0)[1] == 0


class InterruptedCallError(Exception):
    pass


def _interrupt_at(moment: int) -> TraceFunction:
    """Raises in the client's code at this beginning or end of a function, which is where Python looks for signals."""
    left = [moment]

    def trace(frame: FrameType, event: str, _argument: object) -> TraceFunction | None:
        if "/tickpath/client/" not in frame.f_code.co_filename:
            return None
        left[0] -= event in ("call", "return")
        if left[0] == 0:
            raise InterruptedCallError
        return trace

    return trace


def test_a_call_may_be_interrupted_anywhere(server: RunningServer) -> None:
    """What Ctrl-C stops must not stop the next call."""
    x = np.ones((1, 64), np.float32)
    with Client(server.address) as client:
        expected = client.infer("mlp", x)["y"]
    for moment in itertools.count(1):
        with Client(server.address) as client:
            sys.settrace(_interrupt_at(moment))
            try:
                client.infer("mlp", x)
            except InterruptedCallError:
                pass
            else:
                break
            finally:
                sys.settrace(None)
            np.testing.assert_array_equal(client.infer("mlp", x)["y"], expected)
    assert moment > 20


def test_clients_do_not_wait_for_a_dead_host(server: RunningServer) -> None:
    """What the kernel is told: unacknowledged for ten seconds ends the connection, of either client."""
    with Client(server.address) as client:
        client.ping()
        assert _user_timeouts_ms() == [10_000]

    async def ask() -> None:
        async with AsyncClient(server.address) as client:
            await client.ping()
            assert _user_timeouts_ms() == [10_000]

    asyncio.run(ask())


def _user_timeouts_ms() -> list[int]:
    """TCP_USER_TIMEOUT of this process's connected TCP sockets."""
    timeouts = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            if not entry.readlink().name.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as found:
                if found.family == socket.AF_INET and found.getpeername():
                    timeouts.append(found.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
        except OSError:
            continue
    return timeouts
