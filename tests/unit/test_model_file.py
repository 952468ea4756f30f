"""Whatever the format should be: what is there instead is named for what it is."""

import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tickpath.engines import ModelRefusedError
from tickpath.engines.load import load
from tickpath.engines.model_file import FORMATS, check_file


def zipped() -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("model", bytes(1000))
    return archive.getvalue()


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty: copy the model again"),
        (LFS, "Git LFS pointer.*git lfs pull"),
        (gzip.compress(zipped(), mtime=0), "gzip"),
        (b"\n<!DOCTYPE html><html>not found</html>", "web page"),
        (b"\x80\x02}q\x00.", "Python pickle"),
        (b"\x89HDF\r\n", "HDF5 file"),
        (b'{"error": "not found"}', "JSON"),
    ],
    ids=["empty", "lfs", "gzip", "html", "pickle", "hdf5", "json"],
)
def test_impostors_of_every_format(tmp_path: Path, suffix: str, content: bytes, reason: str) -> None:
    path = tmp_path / f"model{suffix}"
    path.write_bytes(content)
    with pytest.raises(ModelRefusedError, match=f"^{path}: .*{reason}"):
        load(path)


@pytest.mark.parametrize("suffix", [".onnx", ".plan"])
def test_a_zip_archive_is_no_model(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    path.write_bytes(zipped())
    with pytest.raises(ModelRefusedError, match=f"a zip archive: unpack it and name the {suffix} file inside"):
        load(path)


def test_a_pytorch_program_is_a_whole_zip_archive(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(zipped())
    check_file(path)
    for share in (0.25, 0.5, 0.99):
        path.write_bytes(zipped()[: int(len(zipped()) * share)])
        with pytest.raises(ModelRefusedError, match=f"^{path}: .*truncated"):
            load(path)
    path.write_bytes(np.random.default_rng(0).bytes(100))
    with pytest.raises(ModelRefusedError, match=r"not an exported PyTorch program, which is a zip archive: save it"):
        load(path)


@pytest.mark.parametrize("suffix", FORMATS)
def test_what_cannot_be_read(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(ModelRefusedError, match="no such file"):
        load(tmp_path / f"none{suffix}")
    (tmp_path / f"folder{suffix}").mkdir()
    with pytest.raises(ModelRefusedError, match=r"a folder: name the .onnx file in it"):
        load(tmp_path / f"folder{suffix}")
