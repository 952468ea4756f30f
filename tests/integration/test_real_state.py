"""Recurrent models whose state goes out with an answer and in again with the next request: a hundred steps through the
server end where a hundred plain runs end, bit for bit at each step, over a hot reload too."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.inputs import SOURCE, inputs_root
from tests.onnx_models import gru, save
from tests.operators import Operator, add_whole_version
from tests.real_models import SCALARS, SHAPES, STATES, served_name
from tests.reference import assert_same_bits, reference_session, run_in_bucket
from tests.serving import RunningServer, serve

from tickpath.client import Client
from tickpath.engines import Array
from tickpath.engines.onnx_spec import Shape
from tickpath.wire import TensorInfo

STEPS = 100


@dataclass(frozen=True)
class Recurrent:
    """A model, and which output becomes which input."""

    path: Path
    name: str
    states: Mapping[str, str]
    shapes: Mapping[str, Shape]

    @property
    def entry(self) -> dict[str, Any]:
        return {"path": str(self.path), "name": self.name, "shapes": self.shapes}


NAMES = [served_name(name) for name in STATES] if SOURCE == "real" else ["gru"]


def recurrent_models(folder: Path) -> dict[str, Recurrent]:
    root = inputs_root()
    if root is None:
        return {"gru": Recurrent(save(gru(), folder), "gru", {"state_out": "state"}, {})}
    return {
        served_name(name): Recurrent(root / "models" / name, served_name(name), states, SHAPES[name])
        for name, states in STATES.items()
    }


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recurrent]:
    return recurrent_models(tmp_path_factory.mktemp("recurrent"))


@pytest.fixture(scope="module")
def server(models: dict[str, Recurrent], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with serve(tmp_path_factory.mktemp("state"), [model.entry for model in models.values()]) as server:
        yield server


def chunk(tensor: TensorInfo, rows: int, step: int) -> Array:
    """The next piece of a signal that swells and fades, other in each row."""
    shape = tensor.shape_at(rows)
    if tensor.name in SCALARS:
        return np.full(shape, SCALARS[tensor.name], tensor.dtype)
    noise = np.random.default_rng(step).standard_normal(shape)
    return np.asarray(noise * (0.2 + 0.2 * np.sin(step / 7))).astype(tensor.dtype)


@pytest.mark.parametrize("rows", [1, 3], ids="{} rows".format)
@pytest.mark.parametrize("name", NAMES)
def test_state_goes_round(name: str, rows: int, models: dict[str, Recurrent], server: RunningServer) -> None:
    """Three rows are padded to four, or are more than a model without a batch axis takes."""
    with Client(server.uds) as client:
        go_round(client, models[name], rows, lambda _: None)


@dataclass(frozen=True)
class Reloading:
    """A server of a repository with all of these models, and who may have it reload them."""

    server: RunningServer
    repository: Path
    operator: Operator


@pytest.fixture(scope="module")
def reloading(models: dict[str, Recurrent], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reloading]:
    folder = tmp_path_factory.mktemp("reloading")
    for name, model in models.items():
        add_whole_version(folder / "models", name, "1", model.path)
        shapes = ", ".join(f"{key} = {json.dumps(shape)}" for key, shape in model.shapes.items())
        (folder / "models" / name / "model.toml").write_text(f"shapes = {{ {shapes} }}\n")
    with (
        serve(folder, [], repository=str(folder / "models"), admin=str(folder / "admin")) as server,
        Operator(folder / "admin") as operator,
    ):
        yield Reloading(server, folder / "models", operator)


@pytest.mark.parametrize("name", NAMES)
def test_state_goes_round_over_a_reload(name: str, models: dict[str, Recurrent], reloading: Reloading) -> None:
    """To an equal model, after half of the steps: no bit of a state is lost between the versions."""
    versions: list[str] = []

    def look(version: str) -> None:
        versions.append(version)
        if len(versions) == STEPS // 2:
            add_whole_version(reloading.repository, name, "2", models[name].path)
            reloading.operator.done("reload", model=name)

    with Client(reloading.server.uds) as client:
        go_round(client, models[name], 1, look)
    assert versions == ["1"] * (STEPS // 2) + ["2"] * (STEPS // 2)


def go_round(client: Client, model: Recurrent, rows: int, look: Callable[[str], None]) -> None:
    """A hundred steps, each compared with the runtime's own; `look` is told the version of each."""
    session = reference_session(model.path)
    info = client.model(model.name)
    rows = min(rows, info.buckets[-1])
    signals = [tensor for tensor in info.inputs if tensor.name not in model.states.values()]
    fed = {tensor.name: tensor for tensor in info.inputs if tensor.name in model.states.values()}
    ours = theirs = {key: np.zeros(tensor.shape_at(rows), tensor.dtype) for key, tensor in fed.items()}
    first = ours
    for step in range(STEPS):
        signal = {tensor.name: chunk(tensor, rows, step) for tensor in signals}
        prediction = client.infer(model.name, signal | ours)
        answer, expected = prediction.outputs, run_in_bucket(session, info, signal | theirs, rows)
        assert_same_bits(list(answer.values()), list(expected.values()))
        ours, theirs = ({into: side[out] for out, into in model.states.items()} for side in (answer, expected))
        look(prediction.version)
    assert all((ours[key] != first[key]).any() for key in ours)
