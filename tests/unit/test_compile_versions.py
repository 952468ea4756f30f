"""A version of a repository that is compiled to its place appears whole, with its source beside it."""

from pathlib import Path

import onnx
import pytest
from tests.onnx_models import save

from tickpath.engines import ModelRefusedError, zoo
from tickpath.engines.compile import Compiled, CompileOptions, compile_model
from tickpath.engines.onnxruntime import load_onnx
from tickpath.engines.source_file import source_beside
from tickpath.server.repository import read_repository


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return save(zoo.build("null"), tmp_path, "null.onnx")


def compile_(source: Path, out: Path) -> Compiled:
    return compile_model(source, out, CompileOptions("onnxruntime", (1, 2)))


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_new_version_has_its_source(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "models" / "btc" / "8" / "model.onnx"
    assert compile_(source, out).path == out
    assert files(tmp_path / "models") == ["btc/8/model.onnx", "btc/8/model.onnx.json", "btc/8/source.onnx"]
    assert source_beside(out) == out.with_name("source.onnx")
    assert out.with_name("source.onnx").read_bytes() == source.read_bytes()
    (version,) = read_repository(tmp_path / "models")
    assert (version.name, version.version, Path(version.path)) == ("btc", "8", out)
    assert not compile_(source, out).fresh


def test_a_refused_one_leaves_no_folder(source: Path, tmp_path: Path) -> None:
    options = CompileOptions("onnxruntime", (1,), "bf16")  # for which it has no kernels
    source.write_bytes(zoo.build("mlp").SerializeToString())
    with pytest.raises(ModelRefusedError):
        compile_model(source, tmp_path / "models" / "btc" / "8" / "model.onnx", options)
    assert files(tmp_path) == ["null.onnx"]
    assert [path.name for path in tmp_path.iterdir()] == ["null.onnx"]


def test_the_source_that_is_there_already_is_the_new_one_afterwards(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "btc" / "8" / "model.onnx"
    compile_(source, out)
    compile_(save(zoo.build("mlp"), tmp_path, "mlp.onnx"), out)
    assert load_onnx(out.with_name("source.onnx")).spec.describe() == load_onnx(out).spec.describe()


def test_a_source_with_weights_beside_it_becomes_one_file(tmp_path: Path) -> None:
    source = tmp_path / "mlp.onnx"
    onnx.save_model(zoo.build("mlp"), source, save_as_external_data=True, location="weights.bin", size_threshold=0)
    out = tmp_path / "btc" / "8" / "model.onnx"
    compile_(source, out)
    assert load_onnx(out.with_name("source.onnx")).spec.describe() == load_onnx(source).spec.describe()


def test_elsewhere_no_copy_is_made(source: Path, tmp_path: Path) -> None:
    compile_(source, tmp_path / "out.onnx")
    assert files(tmp_path) == ["null.onnx", "out.onnx", "out.onnx.json"]
    with pytest.raises(ModelRefusedError, match="can't be written: No such file or directory"):
        compile_(source, tmp_path / "none" / "out.onnx")


def test_the_model_itself_is_never_overwritten(source: Path) -> None:
    before = source.read_bytes()
    with pytest.raises(ModelRefusedError, match="the model itself is no place"):
        compile_(source, source.parent / "." / "null.onnx")
    assert source.read_bytes() == before
