"""Every number of the configuration at its least and at its most, all at once: the server starts and answers."""

import hashlib
import json
import urllib.request
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pytest
from msgspec import inspect
from tests.repositories import scale
from tests.serving import serve

from tickpath.client import Client
from tickpath.server.access_config import ClientConfig
from tickpath.server.config import ModelConfig, ServerConfig

TOKEN: Final = "t" * 32
SMALLEST_FLOAT: Final = 5e-324
# Which address, which processor: no amounts.
PLACES: Final = {"cpu", "port", "observer_port", "oip_port", "oip_grpc_port"}
X: Final = np.arange(6, dtype=np.float32).reshape(2, 3)


def limits(kind: type[msgspec.Struct], most: bool) -> dict[str, float]:
    """The fields that are a number within bounds, at the least or at the most."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    found = {}
    for field in info.fields:
        types = field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,)
        for each in types:
            if isinstance(each, inspect.IntType | inspect.FloatType) and field.name not in PLACES:
                found[field.name] = _limit(each, most)
    return found


def _limit(number: inspect.IntType | inspect.FloatType, most: bool) -> float:
    step = 1 if isinstance(number, inspect.IntType) else SMALLEST_FLOAT
    at, beyond = (number.le, number.lt) if most else (number.ge, number.gt)
    assert at is not None or beyond is not None, "whatever is not bounded can't be tried"
    if at is not None:
        return at
    assert beyond is not None
    return beyond - step if most else beyond + step


@pytest.mark.parametrize("most", [False, True], ids=["least", "most"])
def test_it_starts_and_answers(most: bool, tmp_path: Path) -> None:
    (tmp_path / "scale.onnx").write_bytes(scale(2).SerializeToString())
    model: dict[str, Any] = {"path": str(tmp_path / "scale.onnx"), **limits(ModelConfig, most)}
    del model["output_min"], model["output_max"]  # these are of answers
    if most:
        model["buckets"] = [1, 65536]  # which batch_rows_max needs
    client = {"name": "c", "token_sha256": [hashlib.sha256(TOKEN.encode()).hexdigest()], **limits(ClientConfig, most)}
    door = {"oip_port": 0, "oip_grpc_port": 0, "observer_port": 0} if most else {}  # which takes a session of its own
    settings: dict[str, Any] = {**limits(ServerConfig, most), **door, "clients": [client]}
    with serve(tmp_path, [model], **settings) as server:
        with Client(server.address, token=TOKEN, timeout_s=60) as asking:
            assert np.array_equal(asking.infer("scale", {"x": X}).outputs["y"], 2 * X)
        if most:
            assert server.ready.oip is not None
            body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 3], "data": X.ravel().tolist()}]}
            request = urllib.request.Request(
                f"{server.ready.oip}/v2/models/scale/infer",
                json.dumps(body).encode(),
                {"Authorization": f"Bearer {TOKEN}"},
            )
            with urllib.request.urlopen(request, timeout=60) as response:
                assert json.load(response)["outputs"][0]["data"] == (2 * X).ravel().tolist()
