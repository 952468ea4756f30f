"""A model repository on disk, through `tickpath models check` and `tickpath serve`: what is sound is proven and served,
and everything else is refused with its cause while the rest goes on."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import external_data_helper, helper
from tests.inputs import inputs_root
from tests.onnx_models import constant, model, one_node, value
from tests.processes import serve_until_end
from tests.real_models import REFUSED
from tests.repositories import add_version, killer, scale
from tests.serving import serve

from tickpath.client import Client
from tickpath.engines.zoo import build
from tickpath.server.golden import GOLDEN_FILE

COMMAND: Final = (sys.executable, "-m", "tickpath.cli")
HTML: Final = b"<!DOCTYPE html><html>not found</html>"
LFS: Final = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
ANYWHERE: Final = ("--port", "0", "--no-observer")
Version = Mapping[str, Any]


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=110, check=False, cwd=cwd)


def check(folder: Path, *flags: str) -> tuple[int, dict[str, Version]]:
    """The exit code of `models check --json`, and what it says of each version, by `model/version`."""
    done = run("models", "check", str(folder), "--nice", "0", "--json", *flags)
    found = json.loads(done.stdout)
    refused = sum(version["refused"] is not None for version in found)
    expected = f"tickpath: {folder}: {refused} of {len(found)} can't be served\n" if refused else ""
    assert done.stderr == expected
    return done.returncode, {f"{version['model']}/{version['version']}": version for version in found}


def mlp() -> bytes:
    content: bytes = build("mlp").SerializeToString()
    return content


def newer(opset: int = 18, ir: int = 9) -> onnx.ModelProto:
    proto = scale(2)
    proto.opset_import[0].version, proto.ir_version = opset, ir
    return proto


def two_inputs_of_one_name() -> onnx.ModelProto:
    proto = scale(2)
    proto.graph.input.append(proto.graph.input[0])
    return proto


def with_weights_at(location: str) -> onnx.ModelProto:
    weights = constant("bias", [1, 2])
    external_data_helper.set_external_data(weights, location, length=8)
    weights.ClearField("raw_data")
    sides = [value("x", "f4", ["N", 2])], [value("y", "f4", ["N", 2])]
    return model([helper.make_node("Add", ["x", "bias"], ["y"])], *sides, [weights])


BAD: Final[Mapping[str, tuple[bytes | onnx.ModelProto, str]]] = {
    "empty": (b"", "the file is empty"),
    "lfs": (LFS, "a Git LFS pointer"),
    "html": (HTML, "a web page"),
    "zip": (b"PK\x03\x04" + bytes(100), "a zip archive: unpack it"),
    "cut-25": (mlp()[: len(mlp()) // 4], "the file is truncated"),
    "cut-50": (mlp()[: len(mlp()) // 2], "the file is truncated"),
    "cut-99": (mlp()[: len(mlp()) * 99 // 100], "the file is truncated"),
    "opset": (newer(opset=99), "it needs opset 99 of ai.onnx"),
    "ir": (newer(ir=99), "it has IR version 99"),
    "twice": (two_inputs_of_one_name(), "two inputs are named 'x'"),
    "operator": (one_node("Foo", np.float32, ["N", 3]), "No Op registered for Foo"),
    "missing": (with_weights_at("gone.bin"), "'gone.bin', which is not beside the model"),
    "escape": (with_weights_at("../../../secret.bin"), "outside the model's folder"),
    "absolute": (with_weights_at("/secret.bin"), "outside the model's folder"),
    "link": (with_weights_at("link.bin"), "'link.bin', outside the model's folder"),
    "killer": (killer(), "the runtime died with signal 6 on it"),
    "golden": (mlp(), "golden.npz: no array for input 'x'"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A version of each way to be bad, and sound ones: two versions of mlp, of which the older has a golden sample
    that the newer one's copy belies, and a model with its weights beside it."""
    root = tmp_path_factory.mktemp("repository")
    (root / "secret.bin").write_bytes(bytes(8))
    models = root / "models"
    for name, (content, _) in BAD.items():
        add_version(models, name, "1", content)
    (models / "link" / "1" / "link.bin").symlink_to(root / "secret.bin")
    np.savez(models / "golden" / "1" / GOLDEN_FILE, y=np.zeros((1, 3), np.float32))
    for factor in ("2", "3"):
        add_version(models, "scale", factor, scale(float(factor)))
    done = run("golden", str(models / "scale" / "2" / "model.onnx"), "--rows", "5")
    assert (done.returncode, done.stderr) == (0, "")
    shutil.copy(models / "scale" / "2" / GOLDEN_FILE, models / "scale" / "3" / GOLDEN_FILE)
    weights = add_version(models, "weights", "1", with_weights_at("bias.bin"))
    (weights / "bias.bin").write_bytes(np.array([1, 2], np.float32).tobytes())
    add_version(models, "weights", "2.part", b"half")
    (models / "settings").mkdir()
    (models / "settings" / "model.toml").write_text("bucket = [1]")
    return models


@pytest.fixture(scope="module")
def checked(folder: Path) -> dict[str, Version]:
    code, found = check(folder, "--all")
    assert code == 3
    return found


@pytest.mark.parametrize("name", BAD)
def test_a_bad_version_is_refused_with_its_cause(checked: dict[str, Version], folder: Path, name: str) -> None:
    version = checked[f"{name}/1"]
    assert BAD[name][1] in version["refused"]
    assert version["refused"].startswith(str(folder / name / "1"))
    assert "\n" not in version["refused"]


def test_the_rest_goes_on(checked: dict[str, Version], folder: Path) -> None:
    assert {name for name, version in checked.items() if version["refused"] is None} == {"scale/2", "weights/1"}
    sound = checked["scale/2"]
    assert (sound["live"], sound["buckets"], sound["precision"]) == (False, [1, 2, 4, 8], "float32")
    assert len(sound["compute_ns"]) == 4
    assert (sound["verified"]["against"], sound["verified"]["rows"]) == ("golden.npz", 5)
    assert "unknown key 'bucket'" in checked["settings/"]["refused"]
    assert set(checked) == {*(f"{name}/1" for name in BAD), "scale/2", "scale/3", "weights/1", "settings/"}


def test_answers_that_are_not_right_are_refused(checked: dict[str, Version]) -> None:
    assert "its answers are not right by golden.npz (5): 'y' differs by up to" in checked["scale/3"]["refused"]


def test_the_table(folder: Path, tmp_path: Path) -> None:
    """From another folder, weights beside the model are found all the same."""
    shutil.copytree(folder / "weights", tmp_path / "models" / "weights")
    add_version(tmp_path / "models", "lfs", "1", LFS)
    done = run("models", "check", "models", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (3, "tickpath: models: 1 of 2 can't be served\n")
    for text in ("model", "version", "live", "p50", "verified by", "x float32[N,2]", "1 2 4 8", "proven", "refused"):
        assert text in done.stdout
    assert "lfs 1 is refused: models/lfs/1/model.onnx: this is a Git LFS pointer" in done.stdout


def test_a_file_alone(tmp_path: Path) -> None:
    (tmp_path / "mlp.onnx").write_bytes(mlp())
    code, found = check(tmp_path / "mlp.onnx")
    assert (code, list(found)) == (0, ["mlp/1"])


def test_nothing_to_check_ends_with_2(tmp_path: Path) -> None:
    done = run("models", "check", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"tickpath: {tmp_path}: no models in it: put one at {tmp_path}/NAME/1/model.onnx\n"


def test_a_folder_is_served(tmp_path: Path) -> None:
    """With the live versions answering, by a golden sample each."""
    models = tmp_path / "models"
    for version in ("9", "10"):
        add_version(models, "scale", version, scale(float(version)))
        add_version(models, "pinned", version, scale(float(version)))
    (models / "pinned" / "model.toml").write_text("live = '9'\nbuckets = [1, 3]\n")
    with serve(tmp_path, [], repository="models") as server, Client(server.address) as client:
        assert [(info.name, info.version, info.buckets) for info in client.models()] == [
            ("pinned", "9", (1, 3)),
            ("scale", "10", (1, 2, 4, 8)),
        ]
        ones = {"x": np.ones((1, 3), np.float32)}
        for name, factor in (("pinned", 9), ("scale", 10)):
            answer = client.infer(name, ones)
            assert (answer.version, answer.outputs["y"].tolist()) == (str(factor), [[factor] * 3])


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        (("--buckets", "1,2"), 2, "--buckets belongs to one model, a repository has several: set buckets in its"),
        (("--name", "x"), 2, "--name belongs to one model"),
        ((), 3, "1/model.onnx: the file is empty"),
    ],
)
def test_a_folder_that_is_not_served(tmp_path: Path, flags: tuple[str, ...], code: int, says: str) -> None:
    add_version(tmp_path / "models", "empty", "1", b"")
    returncode, lines = serve_until_end(str(tmp_path / "models"), *ANYWHERE, *flags)
    assert (returncode, len(lines)) == (code, 1)
    assert says in lines[0]


def test_a_broken_model_toml_ends_with_2(tmp_path: Path) -> None:
    add_version(tmp_path / "models", "m", "1", scale(2))
    (tmp_path / "models" / "m" / "model.toml").write_text("executor = 'process'")
    returncode, lines = serve_until_end(str(tmp_path / "models"), *ANYWHERE)
    assert (returncode, len(lines)) == (2, 1)
    assert "model.toml: Invalid enum value 'process' - at `$.executor`; there are 'auto', 'inline'" in lines[0]


def test_golden_writes_over_nothing_unless_told(tmp_path: Path) -> None:
    path = add_version(tmp_path, "scale", "2", scale(2)) / "model.onnx"
    np.savez(tmp_path / "rows.npz", x=np.ones((2, 3), np.float32))
    done = run("golden", str(path), "--from", str(tmp_path / "rows.npz"))
    assert done.stdout == f"{path.with_name(GOLDEN_FILE)}: 2 rows of x float32[N,3] -> y float32[N,3]\n"
    with np.load(path.with_name(GOLDEN_FILE)) as sample:
        assert sample["y"].tolist() == [[2.0] * 3] * 2
    again = run("golden", str(path))
    assert (again.returncode, "--force" in again.stderr) == (1, True)
    np.savez(tmp_path / "rows.npz", z=np.ones((2, 3), np.float32))
    done = run("golden", str(path), "--from", str(tmp_path / "rows.npz"), "--force")
    assert (done.returncode, "no array for input 'x'" in done.stderr) == (3, True)


ROOT = inputs_root()


@pytest.mark.skipif(ROOT is None, reason="no real models: set TICKPATH_INPUTS")
def test_real_models(tmp_path: Path) -> None:
    """Versions of one model as they came to be, and graphs that were made to be bad."""
    assert ROOT is not None
    names = [name for name in REFUSED if name.startswith(("polygraphy/", "gonnx/"))]
    for name in names:
        add_version(tmp_path, Path(name).stem, "1", ROOT / "models" / name)
    versions = sorted((ROOT / "models" / "trading_bot" / "BTCUSDT" / "basic").iterdir())
    for version in versions:
        add_version(tmp_path, "btc", version.name, version / "model.onnx")
    (tmp_path / "btc" / "model.toml").write_text(f"versions = {[version.name for version in versions[1:]]}")
    folder = add_version(tmp_path, "weights", "1", ROOT / "models/polygraphy/ext_weights_same_dir/ext_weights.onnx")
    shutil.copy(ROOT / "models/polygraphy/ext_weights_same_dir/ext_weights.data", folder)
    code, found = check(tmp_path)
    assert code == 3
    assert {
        name: found[f"{Path(name).stem}/1"]["refused"]
        for name in names
        if REFUSED[name] not in str(found[f"{Path(name).stem}/1"]["refused"])
    } == {}
    proven = [(name, version["live"]) for name, version in found.items() if version["refused"] is None]
    assert proven == [
        ("btc/2025-10-26_21h_v1", False),
        ("btc/2025-10-27_14h_v1", False),
        ("btc/2025-10-30_12h_v1", True),
        ("weights/1", True),
    ]
