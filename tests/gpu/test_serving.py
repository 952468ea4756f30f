"""`tickpath serve` on a GPU: the whole way, from a .pt2 file to answers, through reloads."""

from pathlib import Path
from typing import Final

import numpy as np
import onnxruntime
import pytest
from tests.gpu.engines import MISSING, program_of
from tests.operators import Operator
from tests.serving import serve

from tickpath.client import Client, Prediction
from tickpath.engines import zoo

DEVICE: Final = "cuda"
VERSIONS: Final = 3
pytestmark = pytest.mark.timeout(600)


def add_version(models: Path, version: int) -> None:
    """Whole at once."""
    part = models / "mlp" / f"{version}.part"
    part.mkdir(parents=True)
    (part / "model.pt2").write_bytes(program_of("mlp"))
    part.rename(part.with_name(str(version)))


@pytest.mark.parametrize("wait", ["spin", "block", "poll"])
def test_it_answers_as_the_cpu_does_from_every_version(wait: str, tmp_path: Path) -> None:
    if why := MISSING.get("torch"):
        pytest.skip(why)
    models, admin = tmp_path / "models", tmp_path / "admin"
    add_version(models, 1)
    settings = f'device = "{DEVICE}"\ndevice_wait = "{wait}"\ndevice_graphs = "require"\n'
    (models / "mlp" / "model.toml").write_text(settings)
    rows = np.random.default_rng(0).standard_normal((200, 1, 64), np.float32)
    reference = onnxruntime.InferenceSession(zoo.build("mlp").SerializeToString())
    right = [reference.run(None, {"x": x})[0] for x in rows]
    with serve(tmp_path, [], repository=str(models), admin=str(admin)) as server, Operator(admin) as operator:
        assert "graph: captured" in server.log.read_text()
        with Client(server.address) as client:
            for version in range(1, 1 + VERSIONS):
                if version > 1:
                    add_version(models, version)
                    operator.done("reload")
                answers = client.infer_many("mlp", [{"x": x} for x in rows], in_flight=16)
                for answer, expected in zip(answers, right, strict=True):
                    assert isinstance(answer, Prediction)
                    assert answer.version == str(version)
                    np.testing.assert_allclose(answer["y"], expected, rtol=1e-3, atol=1e-3)
