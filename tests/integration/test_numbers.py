"""Numbers that are none, or out of bounds, through a real server: what models make of them, and what the server says.

Both clients, inline and on threads; the metrics count what was seen.
"""

import asyncio
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from tests.inputs import SOURCE, inputs_root
from tests.integration.observer.observing import Scrape
from tests.onnx_models import one_node, save, tree
from tests.real_models import SCALARS, SHAPES, served_name
from tests.serving import RunningServer, serve

from tickpath.client import AsyncClient, BadValueError, Client, EngineFailedError, Flag, Prediction
from tickpath.engines import Array
from tickpath.wire import ModelInfo, TensorInfo

EXECUTORS = ("inline", "thread")
# Real models that answer a NaN in this input as if nothing were.
HIDING: Final[Mapping[str, str]] = {
    "deeplob_serve/model_b1.onnx": "lob_window",
    "gonnx/gru.onnx": "data_input",
    "silero_vad/silero_vad.onnx": "input",
    "silero_vad/silero_vad_half.onnx": "state",
    "trading_bot/BTCUSDT/basic/2025-09-17_1h_v1/model.onnx": "input_sequence",
    "trading_bot/ETHUSDT/sentiment/2025-09-16_legacy/model.onnx": "keras_tensor",
}
HIDDEN_IN = {served_name(name): tensor for name, tensor in HIDING.items()} if SOURCE == "real" else {}
HIDDEN_IN["tree"] = "x"


def hiding_models(folder: Path) -> list[dict[str, Any]]:
    root = inputs_root()
    forest = {"path": str(save(tree(), folder, "tree.onnx"))}
    if root is None:
        return [forest]
    real = (
        {"path": str(root / "models" / name), "name": served_name(name), "shapes": SHAPES.get(name, {})}
        for name in HIDING
    )
    return [forest, *real]


def entries(folder: Path) -> list[dict[str, Any]]:
    log = str(save(one_node("Log", np.float32, ["N", 4]), folder, "log.onnx"))
    div = str(save(one_node("Reciprocal", np.float64, [2, "N"]), folder, "div.onnx"))
    half = str(save(one_node("Exp", np.float16, ["N", 3]), folder, "half.onnx"))
    made = [{"non_finite": "flag", **entry} for entry in hiding_models(folder)]
    for executor in EXECUTORS:
        common = {"executor": executor}
        made += [
            {"path": log, "name": f"refused-{executor}", "output_non_finite": "refuse", **common},
            {"path": log, "name": f"flagged-{executor}", "output_non_finite": "flag", **common},
            {"path": log, "name": f"bounded-{executor}", "output_min": -1, "output_max": {"y": 2.0}, **common},
            {"path": log, "name": f"out-{executor}", "output_max": 2, "out_of_bounds": "flag", **common},
            {
                "path": div,
                "name": f"div-{executor}",
                "shapes": {"x": [2, "N"]},
                "output_non_finite": "refuse",
                **common,
            },
            {"path": half, "name": f"half-{executor}", "output_non_finite": "flag", "output_max": 100, **common},
            {"path": log, "name": f"passed-{executor}", "non_finite": "pass", **common},
        ]
    return made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("numbers")
    with serve(folder, entries(folder), observer_port=0) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[Client]:
    with Client(server.address) as client:
        yield client


def counted(server: RunningServer, model: str) -> dict[str, float]:
    """Requests by what was seen of them; all reasons are there from the start."""
    with Client(server.address) as client:
        client.ping()  # behind it, what was answered has been counted
    with urllib.request.urlopen(f"{server.ready.observer}/metrics", timeout=30) as response:
        scrape = Scrape(response.read().decode())
    reasons = ("input_non_finite", "output_non_finite", "output_out_of_bounds")
    return {reason: scrape.value("tickpath_numeric_total", model=model, reason=reason) for reason in reasons}


def test_every_reason_is_there_before_anything_was_seen(server: RunningServer, client: Client) -> None:
    for model in client.models():
        if model.name.startswith("passed"):
            assert counted(server, model.name) == dict.fromkeys(counted(server, model.name), 0)


def row(tensor: TensorInfo) -> Array:
    if tensor.name in SCALARS:
        return np.full(tensor.shape_at(1), SCALARS[tensor.name], tensor.dtype)
    return np.random.default_rng(3).random(tensor.shape_at(1)).astype(tensor.dtype)


def question(info: ModelInfo) -> dict[str, Array]:
    return {tensor.name: row(tensor) for tensor in info.inputs if not tensor.optional}


@pytest.mark.parametrize(("name", "tensor"), HIDDEN_IN.items())
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_a_model_hides_is_flagged(
    name: str, tensor: str, bad: float, server: RunningServer, client: Client
) -> None:
    info = client.model(name)
    inputs = question(info)
    before = counted(server, name)
    assert client.infer(name, inputs).flags == 0
    inputs[tensor].flat[0] = bad
    answer = client.infer(name, inputs)
    assert answer.flags == Flag.INPUT_NON_FINITE
    if np.isnan(bad):
        assert all(np.isfinite(output).all() for output in answer.outputs.values()), "it does not hide it any more"
    assert counted(server, name) == before | {"input_non_finite": before["input_non_finite"] + 1}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_what_a_model_makes_is_refused_and_names_the_output(
    executor: str, server: RunningServer, client: Client
) -> None:
    name = f"refused-{executor}"
    before = counted(server, name)
    for rows in (1, 3, 8):
        x = np.full((rows, 4), 2.5, np.float32)
        assert client.infer(name, x).flags == 0
        for bad in (0.0, -1.0):
            x[rows - 1, 2] = bad
            with pytest.raises(
                EngineFailedError, match=r"the answer is refused: output 'y' holds a NaN or an infinity"
            ):
                client.infer(name, x)
    assert counted(server, name) == before | {"output_non_finite": before["output_non_finite"] + 6}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_what_a_model_makes_is_flagged_and_given(executor: str, client: Client) -> None:
    x = np.full((3, 4), 1.0, np.float32)
    assert client.infer(f"flagged-{executor}", x).flags == 0
    x[1, 1] = 0
    answer = client.infer(f"flagged-{executor}", x)
    assert answer.flags == Flag.OUTPUT_NON_FINITE
    assert answer["y"][1].tolist() == [0, -np.inf, 0, 0]
    with pytest.raises(BadValueError):
        client.infer(f"flagged-{executor}", x * np.float32(np.nan))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_bounds_refuse_or_flag(executor: str, server: RunningServer, client: Client) -> None:
    bounded, out = f"bounded-{executor}", f"out-{executor}"
    before = counted(server, bounded)
    for value, within in ((0.5, True), (0.3, False), (7.0, True), (8.0, False), (0.0, False)):
        x = np.ones((3, 4), np.float32)
        x[2, 3] = value
        if within:
            assert client.infer(bounded, x).flags == 0
        else:
            with pytest.raises(EngineFailedError, match="output 'y' is not within its bounds"):
                client.infer(bounded, x)
        assert client.infer(out, x).flags == (Flag.OUTPUT_OUT_OF_BOUNDS if value > 7.39 else 0)
    assert counted(server, bounded) == before | {"output_out_of_bounds": before["output_out_of_bounds"] + 3}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_rows_that_do_not_lie_one_behind_the_other(executor: str, rows: int, client: Client) -> None:
    """A division by zero in any place of any row, and never in the padding, which is all zeros."""
    for place in np.ndindex(2, rows):
        x = np.full((2, rows), 4.0)
        assert client.infer(f"div-{executor}", x)["y"].tolist() == [[0.25] * rows] * 2
        x[place] = 0.0
        with pytest.raises(EngineFailedError, match="'y' holds a NaN or an infinity"):
            client.infer(f"div-{executor}", x)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_half_floats(executor: str, client: Client) -> None:
    name = f"half-{executor}"
    x = np.ones((3, 3), np.float16)
    assert client.infer(name, x).flags == 0
    x[2, 0] = 12.0  # overflows to infinity
    with pytest.raises(EngineFailedError, match=r"output 'y' is not within its bounds"):
        client.infer(name, x)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_what_passes_is_not_looked_at(executor: str, client: Client) -> None:
    answer = client.infer(f"passed-{executor}", np.array([[np.nan, -1, 0, np.inf]], np.float32))
    assert answer.flags == 0
    assert not np.isfinite(answer["y"]).any()


def test_the_awaiting_client_sees_the_same(server: RunningServer) -> None:
    async def ask() -> list[Prediction]:
        async with AsyncClient(server.uds) as client:
            x = np.zeros((1, 4), np.float32)
            with pytest.raises(EngineFailedError):
                await client.infer("refused-thread", x)
            return [await client.infer(f"flagged-{executor}", x) for executor in EXECUTORS]

    assert [answer.flags for answer in asyncio.run(ask())] == [Flag.OUTPUT_NON_FINITE] * 2
