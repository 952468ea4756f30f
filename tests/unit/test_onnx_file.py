"""What is not a model is named for what it is."""

import gzip
import hashlib
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from onnx import external_data_helper, helper
from tests.onnx_models import constant, model, one_node, save, value

from tickpath.engines import ModelRefusedError
from tickpath.engines.onnx_file import read_onnx


def zipped() -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("model.onnx", b"")
    return archive.getvalue()


WHOLE = one_node("Neg", np.float32, ["N", 4]).SerializeToString()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS pointer.*git lfs pull"),
        (zipped(), "zip archive"),
        (gzip.compress(WHOLE, mtime=0), "gzip"),
        (b"\n<!DOCTYPE html><html>not found</html>", "web page"),
        (b"\x80\x02}q\x00.", "pickle"),
        (b'{"error": "not found"}', "JSON"),
        (np.random.default_rng(0).bytes(1000), "not ONNX"),
        (bytes(64), "not ONNX"),
        (WHOLE[: len(WHOLE) // 4], "truncated"),
        (WHOLE[: len(WHOLE) // 2], "truncated"),
        (WHOLE[:-1], "truncated"),
        (b"\x08\x09", "no ONNX graph"),
    ],
)
def test_impostors(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelRefusedError, match=reason):
        read_onnx(path)


@pytest.mark.parametrize("length", range(len(WHOLE)))
def test_a_file_cut_anywhere_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(WHOLE[:length])
    with pytest.raises(ModelRefusedError):
        read_onnx(path)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(ModelRefusedError, match="no such file"):
        read_onnx(tmp_path / "none.onnx")
    with pytest.raises(ModelRefusedError, match="can't be read: Is a directory"):
        read_onnx(tmp_path)


def test_names_must_be_unique(tmp_path: Path) -> None:
    proto = one_node("Neg", np.float32, [4])
    proto.graph.input.append(proto.graph.input[0])
    with pytest.raises(ModelRefusedError, match="two inputs are named 'x'"):
        read_onnx(save(proto, tmp_path))
    proto = one_node("Neg", np.float32, [4])
    proto.graph.output.append(proto.graph.output[0])
    with pytest.raises(ModelRefusedError, match="two outputs are named 'y'"):
        read_onnx(save(proto, tmp_path))


def with_external_weights(folder: Path, location: str, length: int = 8) -> Path:
    nodes = [helper.make_node("Add", ["x", "bias"], ["y"])]
    weights = constant("bias", [1, 2])
    (folder / "bias.bin").write_bytes(weights.raw_data)
    external_data_helper.set_external_data(weights, location, length=length)
    weights.ClearField("raw_data")
    return save(model(nodes, [value("x", "f4", ["N", 2])], [value("y", "f4", ["N", 2])], [weights]), folder)


def test_external_weights_belong_to_the_sha256(tmp_path: Path) -> None:
    path = with_external_weights(tmp_path, "bias.bin")
    before = read_onnx(path).sha256
    (tmp_path / "bias.bin").write_bytes(bytes(8))
    assert read_onnx(path).sha256 != before


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("gone.bin", r"weights of 'bias' are in 'gone.bin', which is not beside the model: copy it to "),
        ("../bias.bin", "outside the model's folder"),
        ("sub/../../bias.bin", "outside the model's folder"),
        ("/etc/hostname", "outside the model's folder"),
    ],
)
def test_external_weights_that_are_not_there(tmp_path: Path, location: str, reason: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "bias.bin").write_bytes(bytes(8))
    with pytest.raises(ModelRefusedError, match=reason):
        read_onnx(with_external_weights(folder, location))


def test_sha256_of_one_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    path = save(one_node("Neg", np.float32, [4]), tmp_path)
    assert read_onnx(path).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_link_out_of_the_folder_is_outside_it(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = with_external_weights(folder, "link.bin")
    (folder / "link.bin").symlink_to(folder / "bias.bin")
    read_onnx(path)
    (folder / "link.bin").unlink()
    (folder / "bias.bin").rename(tmp_path / "bias.bin")
    (folder / "link.bin").symlink_to(tmp_path / "bias.bin")
    with pytest.raises(ModelRefusedError, match=r"from 'link.bin', outside the model's folder"):
        read_onnx(path)


def test_the_models_folder_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with_external_weights(tmp_path / "there", "bias.bin")
    (tmp_path / "here").symlink_to(tmp_path / "there")
    read_onnx(tmp_path / "here" / "model.onnx")


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        (bytes(3), "end at byte 8 of 'bias.bin', which has 3: the file is truncated"),
        (b"", "which has 0: the file is truncated"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "it is a Git LFS pointer"),
    ],
)
def test_external_weights_that_are_cut(tmp_path: Path, weights: bytes, reason: str) -> None:
    path = with_external_weights(tmp_path, "bias.bin", length=8 if len(weights) < 8 else 200)
    (tmp_path / "bias.bin").write_bytes(weights)
    with pytest.raises(ModelRefusedError, match=reason):
        read_onnx(path)
