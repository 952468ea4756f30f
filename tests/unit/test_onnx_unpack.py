"""A large model taken apart: the same answers from a small file and its weights."""

from pathlib import Path

import numpy as np
import pytest

from tickpath.engines import KnownModel, ModelRefusedError
from tickpath.engines.onnx_unpack import WEIGHTS_FILE, WHOLE_BYTES_MAX, unpack
from tickpath.engines.onnxruntime import OnnxRuntimeEngine, load_onnx
from tickpath.engines.zoo import build
from tickpath.graphs import Slot


def write(name: str, folder: Path) -> Path:
    path = folder / f"{name}.onnx"
    path.write_bytes(build(name).SerializeToString())
    return path


def answer(engine: OnnxRuntimeEngine) -> list[bytes]:
    slot = Slot(engine, 2)
    slot.fill(2, [array.tobytes() for array in engine.sample(2)])
    slot.replay()
    return [bytes(output) for output in slot.read(2)]


def test_a_large_model_answers_the_same_when_its_file_is_gone(tmp_path: Path) -> None:
    path = write("lstm_b", tmp_path)
    whole = load_onnx(path)
    folder = tmp_path / "apart"
    folder.mkdir()
    unpacked = unpack(path, whole.spec.sha256, folder)
    assert unpacked is not None
    assert unpacked.stat().st_size < WHOLE_BYTES_MAX < (folder / WEIGHTS_FILE).stat().st_size
    path.unlink()
    known = load_onnx(path, known=KnownModel(whole.spec, unpacked))
    for file in (unpacked, folder / WEIGHTS_FILE):
        file.unlink()
    assert answer(known) == answer(whole)
    assert known.spec == whole.spec


def test_a_small_model_stays_whole(tmp_path: Path) -> None:
    path = write("mlp", tmp_path)
    assert unpack(path, load_onnx(path).spec.sha256, tmp_path) is None


def test_a_file_that_has_changed_is_refused(tmp_path: Path) -> None:
    path = write("lstm_b", tmp_path)
    assert unpack(path, "0" * 64, tmp_path) is None
    spec = load_onnx(write("mlp", tmp_path)).spec
    path.write_bytes(np.random.default_rng(0).bytes(1000))
    with pytest.raises(ModelRefusedError):
        load_onnx(path, known=KnownModel(spec))
