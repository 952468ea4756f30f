"""What is new is decided by content: files, whatever their times, and the settings they are loaded with."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.repositories import add_version, scale

from tickpath.server.config import ModelConfig
from tickpath.server.content import ContentDigests, content_digest
from tickpath.server.repository import read_model

LONG_AGO_NS = 1_000_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The only version of btc, with a weight file in a folder of its own."""
    version = add_version(tmp_path, "btc", "1", scale(2))
    (version / "weights").mkdir()
    (version / "weights" / "a.bin").write_bytes(b"1234")
    return version


def config_of(version: Path) -> ModelConfig:
    return read_model(version.parent.parent, version.parent.name)[0]


def touch(version: Path) -> None:
    os.utime(version / "model.onnx", ns=(LONG_AGO_NS, LONG_AGO_NS))


def copy_in_place(version: Path) -> None:
    shutil.copy(version / "model.onnx", version / "model.onnx.tmp")
    (version / "model.onnx.tmp").rename(version / "model.onnx")


def edit_backup(version: Path) -> None:
    (version / "model.onnx~").write_bytes(b"old")
    (version / ".model.onnx.swp").write_bytes(b"old")


@pytest.mark.parametrize("change", [touch, copy_in_place, edit_backup])
def test_the_same_content_is_nothing_new(folder: Path, change: Callable[[Path], None]) -> None:
    before = content_digest(config_of(folder))
    change(folder)
    assert content_digest(config_of(folder)) == before


def other_model(version: Path) -> None:
    (version / "model.onnx").write_bytes(scale(3).SerializeToString())


def other_weights(version: Path) -> None:
    (version / "weights" / "a.bin").write_bytes(b"1235")


def golden_sample(version: Path) -> None:
    (version / "golden.npz").write_bytes(b"x")


def sidecar(version: Path) -> None:
    (version / "model.onnx.json").write_bytes(b"{}")


def moved_bytes(version: Path) -> None:
    (version / "weights" / "a.bin").rename(version / "weights" / "b.bin")


def setting(version: Path) -> None:
    (version.parent / "model.toml").write_text("buckets = [1]")


CHANGES = [other_model, other_weights, golden_sample, sidecar, moved_bytes, setting]


@pytest.mark.parametrize("change", CHANGES)
def test_other_content_is_new(folder: Path, change: Callable[[Path], None]) -> None:
    digests = ContentDigests()
    before = content_digest(config_of(folder))
    assert digests.of(config_of(folder)) == before
    change(folder)
    after = content_digest(config_of(folder))
    assert after != before
    assert digests.of(config_of(folder)) == after


def test_where_it_lies_and_whether_it_is_live_is_no_content(folder: Path, tmp_path: Path) -> None:
    here = config_of(folder)
    shutil.copytree(folder.parent, tmp_path / "other" / "btc")
    there = config_of(tmp_path / "other" / "btc" / "1")
    assert content_digest(msgspec.structs.replace(there, live=False)) == content_digest(here)


def test_files_that_have_settled_are_remembered(folder: Path) -> None:
    config = config_of(folder)
    now = ContentDigests()
    now.of(config)
    assert not now.remembers(config), "written a moment ago, they may be written again within one tick of the clock"
    later = ContentDigests(clock_ns=lambda: 2**62)
    before = later.of(config)
    assert later.remembers(config)
    other_weights(folder)
    assert later.of(config) != before
    later.forget(config)
    assert not later.remembers(config)


def test_a_model_outside_a_repository_has_the_files_named_after_it(tmp_path: Path) -> None:
    path = tmp_path / "btc.onnx"
    path.write_bytes(b"model")
    config = ModelConfig(str(path))
    before = content_digest(config)
    (tmp_path / "eth.onnx").write_bytes(b"another model")
    assert content_digest(config) == before
    (tmp_path / "btc.onnx.data").write_bytes(b"weights")
    with_weights = content_digest(config)
    (tmp_path / "golden.npz").write_bytes(b"golden")
    assert len({before, with_weights, content_digest(config)}) == 3


def test_what_is_gone_is_an_os_error(folder: Path) -> None:
    config = config_of(folder)
    shutil.rmtree(folder)
    with pytest.raises(FileNotFoundError):
        content_digest(config)
