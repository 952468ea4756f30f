"""Requests that share a run, of a real server with real models: whoever shares a run has its stamps."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest
from tests.inputs import inputs_root
from tests.onnx_models import gru, save
from tests.peer import Peer
from tests.processes import serve_until_end
from tests.questions import TRADING_BOT
from tests.real_models import SHAPES
from tests.serving import serve, write_config, write_zoo

from tickpath.wire import Infer, Result

ROOT: Final = inputs_root()
ROWS_MAX = 8
ASKED = 30
SECOND_US = 1_000_000
RUN: Final = slice(2, 6)
"""Of the stamps: those of the run, after the ones of receipt."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Two models' files, whose rows are the first axis of their input."""
    folder = tmp_path_factory.mktemp("models")
    return {"mlp": write_zoo(folder, "mlp")[0]["path"], "gru": str(save(gru(), folder, "gru.onnx"))}


def requests(peer: Peer, count: int) -> list[Infer]:
    """Of one to three rows each, of the one model that is served; the peer has said nothing yet."""
    tensors, random = peer.greet().models[0].inputs, np.random.default_rng(1)
    asked = []
    for number in range(count):
        rows = 1 + number % 3
        arrays = [random.standard_normal(tensor.shape_at(rows)).astype(np.float32) for tensor in tensors]
        asked.append(Infer(number + 1, 0, rows, [memoryview(array.tobytes()) for array in arrays]))
    return asked


def answers(peer: Peer, count: int) -> dict[int, Result]:
    found: dict[int, Result] = {}
    for _ in range(count):
        answer = peer.receive()
        assert isinstance(answer, Result), answer
        found[answer.id] = answer
    return found


def values(result: Result) -> list[npt.NDArray[np.float32]]:
    return [np.frombuffer(data, np.float32) for data in result.outputs]


@pytest.mark.parametrize("name", ["mlp", "gru"])
def test_neighbours_make_no_difference(models: dict[str, str], tmp_path: Path, name: str) -> None:
    check_neighbours({"path": models[name]}, tmp_path)


@pytest.mark.skipif(ROOT is None, reason="the folder of real inputs is absent (TICKPATH_INPUTS)")
@pytest.mark.parametrize("name", ["gonnx/gru.onnx", "silero_vad/silero_vad_half.onnx", TRADING_BOT])
def test_neighbours_of_real_models_make_no_difference(tmp_path: Path, name: str) -> None:
    """Rows of the first two are the second axis of their states, and the first of what else they take."""
    assert ROOT is not None
    path = ROOT / name if name == TRADING_BOT else ROOT / "models" / name
    check_neighbours({"path": str(path), "shapes": SHAPES.get(name, {})}, tmp_path)


@pytest.mark.skipif(ROOT is None, reason="the folder of real inputs is absent (TICKPATH_INPUTS)")
@pytest.mark.parametrize("name", ["deeplob_serve/model_b1.onnx", "silero_vad/silero_vad_16k_op15.onnx"])
def test_real_models_that_cannot_share_a_run_are_refused(tmp_path: Path, name: str) -> None:
    assert ROOT is not None
    model = {"path": str(ROOT / "models" / name), "shapes": SHAPES.get(name, {}), "batch_rows_max": ROWS_MAX}
    config = write_config(tmp_path, [model], port=0)
    code, said = serve_until_end("--config", str(config), "--no-observer")
    assert code == 3
    assert any("can't share a run" in line for line in said), said


def check_neighbours(model: Mapping[str, Any], folder: Path) -> None:
    with (
        serve(folder, [{**model, "batch_rows_max": ROWS_MAX, "batch_us": 20_000}]) as server,
        Peer(server.connect()) as peer,
    ):
        asked = requests(peer, ASKED)
        alone: dict[int, Result] = {}
        for request in asked:
            peer.send(request)
            alone |= answers(peer, 1)
        peer.send(*asked)
        together = answers(peer, ASKED)
    for request in asked:
        for one, other in zip(values(alone[request.id]), values(together[request.id]), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert len({answer.stamps[RUN] for answer in alone.values()}) == ASKED
    rows = Counter[tuple[int, ...]]()
    for request in asked:
        rows[together[request.id].stamps[2:6]] += request.rows
    assert len(rows) < ASKED / 2, "they share runs"
    assert max(rows.values()) <= ROWS_MAX


def test_the_warm_up_waits_for_nobody(models: dict[str, str], tmp_path: Path) -> None:
    """That it starts is the test: it asks each model a hundred times, each time would wait for a second, and no test
    may take so long."""
    model = {"path": models["mlp"], "batch_rows_max": ROWS_MAX, "batch_us": SECOND_US}
    with serve(tmp_path, [{**model, "name": f"mlp-{number}"} for number in range(3)]):
        pass


def test_one_waits_for_another_session(models: dict[str, str], tmp_path: Path) -> None:
    """The model is free, and the first waits for as long as it may, unless the run is full before."""
    model = {"path": models["mlp"], "batch_rows_max": 2, "batch_us": SECOND_US}
    with serve(tmp_path, [model]) as server, Peer(server.connect()) as first, server.peer() as second:
        request = requests(first, 1)[0]
        first.send(request)
        second.send(request)
        one, other = answers(first, 1)[1], answers(second, 1)[1]
        assert one.stamps[RUN] == other.stamps[RUN]
        assert one.outputs == other.outputs


def test_it_waits_no_longer_than_it_may(models: dict[str, str], tmp_path: Path) -> None:
    wait_ns = 50_000_000
    model = {"path": models["mlp"], "batch_rows_max": 2, "batch_us": wait_ns // 1000}
    with serve(tmp_path, [model]) as server, Peer(server.connect()) as peer:
        request = requests(peer, 1)[0]
        peer.send(request)
        stamps = answers(peer, 1)[1].stamps
        assert stamps[2] - stamps[1] >= wait_ns, "nobody came, and it waited for all of its time"


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("mlp", {"batch_rows_max": 9}, "can be 2 to 8, the largest bucket"),
        ("mlp", {"batch_rows_max": 1}, "can be 2 to 8, the largest bucket"),
        ("gru", {"batch_rows_max": 4, "shapes": {"data": [1, 4, 3], "state": [1, 1, 5]}}, "can't share a run"),
    ],
)
def test_what_cannot_share_a_run_is_refused(
    models: dict[str, str], tmp_path: Path, name: str, settings: dict[str, object], expected: str
) -> None:
    config = write_config(tmp_path, [{"path": models[name], **settings}], port=0)
    code, said = serve_until_end("--config", str(config), "--no-observer")
    assert code == 3
    assert any(expected in line for line in said), said
