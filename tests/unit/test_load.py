"""Which engine a file gets, and the refusals that take the runtime to find."""

import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from tests.onnx_models import model, one_node, save, value

from tickpath.engines import ModelRefusedError
from tickpath.engines.load import load
from tickpath.engines.onnxruntime import RUNTIME, said


@pytest.mark.parametrize(("name", "suffix"), [("model.h5", ".h5 files"), ("model", "files without a suffix")])
def test_unknown_suffixes(name: str, suffix: str, tmp_path: Path) -> None:
    with pytest.raises(ModelRefusedError, match=f"{name}: no such file"):
        load(tmp_path / name)
    (tmp_path / name).touch()
    with pytest.raises(ModelRefusedError, match=f"{name}: no engine for {suffix}: name an .onnx file"):
        load(tmp_path / name)


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelRefusedError, match=f"{tmp_path}: a folder: name the .onnx file in it"):
        load(tmp_path)


def test_a_pt2_file_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with zipfile.ZipFile(tmp_path / "model.pt2", "w") as archive:
        archive.writestr("model/archive_format", b"pt2")
    with pytest.raises(ModelRefusedError, match=r"model.pt2: a .pt2 file needs torch: pip install 'tickpath\[torch\]'"):
        load(tmp_path / "model.pt2")


def test_a_zip_archive_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model.onnx", b"")
    with pytest.raises(ModelRefusedError, match="this is a zip archive: unpack it"):
        load(path)


def test_the_spec_says_what_runs_it(tmp_path: Path) -> None:
    spec = load(save(one_node("Neg", np.float32, ["N", 3]), tmp_path)).spec
    assert (spec.runtime, spec.precision) == (RUNTIME, "float32")


def test_a_model_newer_than_the_runtime(tmp_path: Path) -> None:
    proto = one_node("Neg", np.float32, ["N", 3])
    proto.opset_import[0].version = 99
    with pytest.raises(ModelRefusedError, match=r"model.onnx: it needs opset 99 of ai.onnx, .* supports up to \d+"):
        load(save(proto, tmp_path))
    proto = one_node("Neg", np.float32, ["N", 3])
    proto.ir_version = 99
    with pytest.raises(ModelRefusedError, match=r"model.onnx: it has IR version 99, .* supports up to \d+"):
        load(save(proto, tmp_path))


def test_an_operator_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ModelRefusedError, match=r"take this model \(opset ai.onnx 18\): .*No Op registered for Foo"):
        load(save(one_node("Foo", np.float32, ["N", 3]), tmp_path))


def test_an_input_handed_through(tmp_path: Path) -> None:
    proto = model([], [value("x", np.float32, ["N", 3])], [value("x", np.float32, ["N", 3])])
    with pytest.raises(ModelRefusedError, match="does not write output 'x' into its buffer"):
        load(save(proto, tmp_path))


def test_an_output_declared_otherwise_than_it_is(tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["y"])]
    proto = model(nodes, [value("x", np.float32, ["N", 3])], [value("y", np.float32, [1, 3])])
    with pytest.raises(ModelRefusedError, match="does not run with bound outputs"):
        load(save(proto, tmp_path))


def test_what_the_runtime_said_loses_its_source_positions() -> None:
    text = (
        "[ONNXRuntimeError] : 1 : FAIL : /onnxruntime_src/onnxruntime/core/graph/model.cc:256 "
        "onnxruntime::Model::Model(onnx::ModelProto&&, const onnxruntime::ModelOptions&) Unsupported\nmodel (x)"
    )
    assert said(Exception(text)) == "Unsupported model (x)"
