"""A fault of ours, or of a runtime, is an answer: it ends neither a lane nor, in silence, a session."""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import uvloop
from tests.numpy_engine import never_lost
from tests.peer import Peer
from tests.serving import write_zoo
from tests.versions import catalogue_of

from tickpath.engines import Array, DeviceLostError, EngineFailedError, EngineSpec, TensorSpec
from tickpath.observe.records import RecordWriter
from tickpath.server.admission import Refusal
from tickpath.server.config import ModelConfig, make_config
from tickpath.server.executor import InlineExecutor, Outcome, Requester
from tickpath.server.lane import Answer, Lane
from tickpath.server.model import prepare_model
from tickpath.server.polling import Polling
from tickpath.server.service import Service
from tickpath.server.session import Session
from tickpath.server.version import start_version
from tickpath.wire import Code, Failure, Infer, Ping, Pong

X = TensorSpec("x", np.dtype(np.float32), (1, 4), 0)
Y = TensorSpec("y", np.dtype(np.float32), (1, 4), 0)


class FailingOnce:
    """An engine, and its graph, whose first replay raises."""

    spec = EngineSpec((X,), (Y,), "test", "float32", "")

    def __init__(self, error: Exception) -> None:
        self._errors = [error]

    def capture(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> "FailingOnce":
        return self

    def replay(self) -> None:
        if self._errors:
            raise self._errors.pop()

    def sample(self, rows: int) -> list[Array]:
        return [np.zeros(X.shape_at(rows), X.dtype)]

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("error", "code"), [(EngineFailedError("no memory"), Code.ENGINE_FAILED), (KeyError("ours"), Code.INTERNAL)]
)
def test_a_lane_outlives_what_raises(error: Exception, code: Code, caplog: pytest.LogCaptureFixture) -> None:
    lane = Lane(FailingOnce(error), ModelConfig("m.onnx"), (1,))
    infer = Infer(1, 0, 1, [memoryview(bytes(16))])
    refusal = lane.run(infer, 1, 2)
    assert isinstance(refusal, Refusal)
    assert refusal.code is code
    assert ("ours" in caplog.text) == (code is Code.INTERNAL), "what is ours is for the log, and only that"
    assert "ours" not in refusal.message
    assert isinstance(lane.run(infer, 1, 2), Answer)


def test_a_lost_device_is_told_and_the_client_goes_elsewhere() -> None:
    error = DeviceLostError("gone")
    told: list[DeviceLostError] = []
    lane = Lane(FailingOnce(error), ModelConfig("m.onnx"), (1,))
    lane.device_lost = told.append
    infer = Infer(1, 0, 1, [memoryview(bytes(16))])
    refusal = lane.run(infer, 1, 2)
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.NOT_READY
    assert told == [error]


class Faulty(InlineExecutor):
    """Breaks its promise never to raise."""

    def __init__(self) -> None: ...

    def submit(self, requester: Requester, infer: Infer, first_byte_ns: int, received_ns: int) -> Outcome:
        raise KeyError("ours")


async def with_session(service: Callable[[asyncio.AbstractEventLoop], Service], talk: Callable[[Peer], None]) -> None:
    """A session on this loop, and `talk` at its other end on a thread."""
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    near.settimeout(20)
    made = service(loop)
    await loop.connect_accepted_socket(lambda: Session(made), far)
    with Peer(near) as peer:
        await loop.run_in_executor(None, talk, peer)


def test_a_fault_in_a_session_is_told_and_ends_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = make_config({"models": write_zoo(tmp_path, "null")})
    records = RecordWriter()

    def service(loop: asyncio.AbstractEventLoop) -> Service:
        version = start_version(prepare_model(config.models[0], None, 1 << 20), 0, loop, None, never_lost)
        catalogue = catalogue_of(replace(version, executor=Faulty()))
        return Service(config, catalogue, records, loop, 8, Polling(loop, 0))

    def talk(peer: Peer) -> None:
        peer.greet()
        peer.send(Ping(1), Infer(2, 0, 1, [memoryview(bytes(256))]), Ping(3))
        assert isinstance(peer.receive(), Pong)
        failure = peer.receive()
        assert isinstance(failure, Failure)
        assert (failure.id, failure.code) == (0, Code.INTERNAL)
        assert peer.receive() is None

    with caplog.at_level(logging.ERROR):
        uvloop.run(with_session(service, talk))
    assert "KeyError: 'ours'" in caplog.text
    records.close()
