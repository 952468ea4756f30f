"""What is scored is what a live server answers, bit for bit, at every number of rows and so in every bucket."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.inputs import inputs_root
from tests.onnx_models import gru, save
from tests.real_models import SCALARS, SHAPES, served_name
from tests.serving import RunningServer, serve, write_zoo

from tickpath.client import Client
from tickpath.engines import Array
from tickpath.score import Scorer, open_scorer, score_table
from tickpath.wire import ModelInfo, TensorInfo

ZOO = ("mlp", "lstm_a", "deeplob")
ROOT = inputs_root()
# Several inputs, states, a batch axis that is not the first, a number for all rows, dtypes other than float32.
REAL = (
    "polygraphy/attention.onnx",
    "silero_vad/silero_vad.onnx",
    "gonnx/gru.onnx",
    "deeplob_serve/model_b8.onnx",
)
TABLE_ROWS = 21  # no whole number of requests of any size but 1, 3 and 7


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("models")
    found: dict[str, dict[str, Any]] = {Path(entry["path"]).stem: dict(entry) for entry in write_zoo(folder, *ZOO)}
    found["gru"] = {"path": str(save(gru(), folder, "gru.onnx"))}
    for name in REAL if ROOT else ():
        assert ROOT is not None
        path = ROOT / "models" / name
        found[served_name(name)] = {"path": str(path), "name": served_name(name), "shapes": SHAPES.get(name, {})}
    return found


@pytest.fixture(scope="module")
def server(entries: dict[str, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with serve(tmp_path_factory.mktemp("server"), list(entries.values())) as running:
        yield running


def rows_of(tensor: TensorInfo, random: np.random.Generator) -> Array:
    """The table's rows of one input, `(rows, *shape of one row)`."""
    shape = (TABLE_ROWS, *tensor.shape)
    if tensor.name in SCALARS:
        return np.full(shape, SCALARS[tensor.name], tensor.dtype)
    return np.asarray(random.standard_normal(shape)).astype(tensor.dtype)


def as_table(arrays: Mapping[str, Array]) -> Any:
    columns = {}
    for name, array in arrays.items():
        flat = pa.array(array.reshape(-1))
        columns[name] = (
            flat if len(flat) == TABLE_ROWS else pa.FixedSizeListArray.from_arrays(flat, len(flat) // TABLE_ROWS)
        )
    return pa.table(columns)


def asked(client: Client, model: ModelInfo, arrays: Mapping[str, Array], rows: int) -> dict[str, Array]:
    """What the server answers to requests of so many rows, as rows of a table."""
    parts: dict[str, list[Array]] = {tensor.name: [] for tensor in model.outputs}
    for start in range(0, TABLE_ROWS, rows):
        count = min(rows, TABLE_ROWS - start)
        request = {}
        for tensor in model.inputs:
            if tensor.name in arrays:
                each = arrays[tensor.name][start : start + count]
                request[tensor.name] = (
                    each[0] if tensor.batch_axis < 0 else np.concatenate(list(each), tensor.batch_axis)
                )
        answer = client.infer(model.name, request, rows=count if all(t.batch_axis < 0 for t in model.inputs) else None)
        for tensor in model.outputs:
            array = answer.outputs[tensor.name]
            parts[tensor.name] += [array] if tensor.batch_axis < 0 else np.split(array, count, tensor.batch_axis)
    return {name: np.stack([part.reshape(-1) for part in found]) for name, found in parts.items()}


def scored(scorer: Scorer, table: Any, inputs: dict[str, str]) -> dict[str, Array]:
    answers = score_table(scorer, table, inputs=inputs)
    return {
        name: np.stack([np.asarray(value.as_py()).reshape(-1) for value in answers[name]])
        for name in answers.column_names
    }


NAMES = [*ZOO, "gru", *(served_name(name) for name in REAL if ROOT)]


@pytest.mark.parametrize("name", NAMES)
def test_scored_as_served(name: str, entries: dict[str, dict[str, Any]], server: RunningServer) -> None:
    entry = entries[name]
    random = np.random.default_rng(0)
    with Client(server.uds) as client:
        model = client.model(name)
        given = [tensor for tensor in model.inputs if not tensor.optional]
        arrays = {tensor.name: rows_of(tensor, random) for tensor in given}
        numbers = {tensor: str(SCALARS[tensor]) for tensor in arrays if tensor in SCALARS}
        table = as_table({tensor: array for tensor, array in arrays.items() if tensor not in numbers})
        whole = any(tensor.batch_axis < 0 for tensor in model.outputs)
        for rows in range(1, 2 if whole else model.buckets[-1] + 1):
            with open_scorer(entry["path"], rows=rows, shapes=entry.get("shapes")) as scorer:
                assert scorer.buckets == model.buckets
                ours = scored(scorer, table, numbers)
            theirs = asked(client, model, arrays, rows)
            assert list(ours) == list(theirs)
            for output, array in theirs.items():
                assert ours[output].astype(array.dtype).tobytes() == array.tobytes(), (output, rows)
