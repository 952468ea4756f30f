"""Which versions of which models a folder asks for, and the one line that says what is wrong with it."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
import pytest
from tests.repositories import add_version

from tickpath.server.config import ConfigError, ModelConfig, ServerConfig, make_config
from tickpath.server.config_file import read_config
from tickpath.server.repository import (
    add_repository,
    read_model,
    read_repository,
    read_version,
    version_names,
)
from tickpath.server.source import ModelSource

NOBODY: Final = 65534


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """btc in versions 9 and 10."""
    for version in ("9", "10"):
        add_version(tmp_path / "models", "btc", version, b"")
    return tmp_path / "models"


def choose(folder: Path, text: str) -> list[tuple[str, bool]]:
    """The versions of btc to load under this model.toml, and whether each is live."""
    (folder / "btc" / "model.toml").write_text(text)
    return [(config.version, config.live) for config in read_model(folder, "btc")]


def refused(read: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as error:
        read()
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    "ascending",
    [
        ["1", "2", "9", "10", "11"],
        ["v1", "v9", "v10"],
        ["2025-09-17_1h_v1", "2025-10-26_21h_v1", "2025-10-26_21h_v2", "2026-01-06_14h_v1"],
        ["1.2.9", "1.2.10", "1.10.0"],
        ["1", "01", "1a", "2"],
        ["7", "7-rc1", "alpha", "beta"],
    ],
    ids=str,
)
def test_the_newest_is_last_in_natural_order(ascending: list[str], tmp_path: Path) -> None:
    for version in ascending:
        add_version(tmp_path, "m", version, b"")
    assert version_names(tmp_path, "m") == ascending
    assert [config.version for config in read_model(tmp_path, "m")] == ascending[-1:]


@pytest.mark.parametrize(
    ("text", "versions"),
    [
        ("", [("10", True)]),
        ("live = '9'", [("9", True)]),
        ("versions = ['10', '9']", [("9", False), ("10", True)]),
        ("versions = ['9', '10', '9']\nlive = '9'", [("9", True), ("10", False)]),
    ],
)
def test_which_versions(folder: Path, text: str, versions: list[tuple[str, bool]]) -> None:
    assert choose(folder, text) == versions


def test_settings_are_those_of_every_version(folder: Path) -> None:
    (folder / "btc" / "model.toml").write_text(
        "versions = ['9', '10']\nbuckets = [1, 16]\nexecutor = 'thread'\nmax_change = 0.1\n"
        "golden = 'g.npz'\nrtol = 1e-3\n[shapes]\nx = 'N,3'\n"
    )
    older, newer = read_model(folder, "btc")
    assert (newer.path, newer.served_name) == (str(folder / "btc" / "10" / "model.onnx"), "btc")
    assert (newer.buckets, newer.executor, newer.shapes) == ((1, 16), "thread", {"x": ("N", 3)})
    assert (newer.max_change, newer.golden, newer.rtol, newer.atol) == (0.1, "g.npz", 1e-3, None)
    assert msgspec.structs.replace(newer, version="9", live=False, path=older.path) == older


def test_any_version_can_be_read(folder: Path) -> None:
    assert read_version(folder, "btc", "9") == msgspec.structs.replace(
        read_model(folder, "btc")[0], version="9", live=False, path=str(folder / "btc" / "9" / "model.onnx")
    )
    assert "no version '8': there are 9, 10" in refused(lambda: read_version(folder, "btc", "8"))


@pytest.mark.parametrize("name", [".new", "..data", "11.part", "11.tmp", "11~", "#11#"])
def test_half_written_and_hidden_things_are_passed_over(folder: Path, name: str) -> None:
    (folder / "btc" / name).mkdir()
    (folder / name).mkdir()
    (folder / "btc" / "10" / name).write_text("")
    assert [(config.served_name, config.version) for config in read_repository(folder)] == [("btc", "10")]


def test_a_link_to_a_folder_is_a_folder(folder: Path, tmp_path: Path) -> None:
    add_version(tmp_path, "elsewhere", "x", b"")
    (folder / "btc" / "11").symlink_to(tmp_path / "elsewhere" / "x")
    assert [config.version for config in read_repository(folder)] == ["11"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("bucket = [1]", ["unknown key 'bucket'", "there are versions, live, buckets"]),
        ("name = 'eth'", ["unknown key 'name' (its folders say it)"]),
        ("executor = 'process'", ["'process'", "$.executor", "'auto', 'inline', 'thread'"]),
        ("queue_max = 0", ["$.queue_max", ">= 1", "0 came"]),
        ("queue_max = 'x'", ["$.queue_max", "int", "'x' came"]),
        ("buckets = [2, 1]", ["buckets must ascend", "[2, 1] came"]),
        ("versions = []", ["$.versions", ">= 1", "[] came"]),
        ("versions = [9]", ["$.versions[0]", "str", "9 came"]),
        ("versions = ['9', '12']", ["no version '12'", "there are 9, 10"]),
        ("live = '3'", ["no version '3'", "there are 9, 10"]),
        ("versions = ['9']\nlive = '10'", ["live = '10'", "there are 9"]),
        ("golden = '../g.npz'", ["$.golden", "names a file beside the model", "'../g.npz' came"]),
        ("max_change = -0.1", ["$.max_change", ">= 0", "-0.1 came"]),
        ("rtol = nan", ["$.rtol", "nan came"]),
        ("shapes.x = 'N,M'", ["the shape of 'x'", "'M' came"]),
        ("queue_max = ", ["not TOML"]),
    ],
    ids=str,
)
def test_a_broken_model_toml_is_one_line(folder: Path, text: str, says: list[str]) -> None:
    line = refused(lambda: choose(folder, text))
    assert line.startswith(f"{folder / 'btc' / 'model.toml'}: ")
    assert [part for part in says if part not in line] == []


def nothing(folder: Path) -> None:
    (folder / "btc" / "10" / "model.onnx").rename(folder / "btc" / "10" / "btc.onnx")


def two(folder: Path) -> None:
    (folder / "btc" / "10" / "model.plan").write_text("")


def stray_model(folder: Path) -> None:
    (folder / "btc" / "model.onnx").write_text("")


def stray_file(folder: Path) -> None:
    (folder / "notes.txt").write_text("")


def bad_model_name(folder: Path) -> None:
    (folder / "my model").mkdir()


def bad_version_name(folder: Path) -> None:
    (folder / "btc" / "1:2").mkdir()


def no_version(folder: Path) -> None:
    (folder / "eth").mkdir()
    (folder / "eth" / "1.part").mkdir()


def broken_link(folder: Path) -> None:
    (folder / "btc" / "11").symlink_to(folder / "gone")


def pipe(folder: Path) -> None:
    (folder / "btc" / "10" / "model.onnx").unlink()
    os.mkfifo(folder / "btc" / "10" / "model.onnx")


def golden_pipe(folder: Path) -> None:
    os.mkfifo(folder / "btc" / "10" / "golden.npz")


def device(folder: Path) -> None:
    (folder / "btc" / "10" / "model.onnx").unlink()
    (folder / "btc" / "10" / "model.onnx").symlink_to("/dev/zero")


def settings_pipe(folder: Path) -> None:
    os.mkfifo(folder / "btc" / "model.toml")


def settings_folder(folder: Path) -> None:
    (folder / "btc" / "model.toml").mkdir()


@pytest.mark.parametrize(
    ("spoil", "where", "says"),
    [
        (nothing, "btc/10", ["one of model.onnx, model.pt2, model.plan", "it holds btc.onnx"]),
        (two, "btc/10", ["model.onnx and model.plan: leave one"]),
        (stray_model, "btc/model.onnx", ["no folder", "move it to", "btc/1/model.onnx"]),
        (stray_file, "notes.txt", ["no folder", "a model is expected"]),
        (bad_model_name, "my model", ["'my model' can't be a model's name", "letters", "rename"]),
        (bad_version_name, "btc/1:2", ["can't be a version's name", "rename"]),
        (no_version, "eth", ["no versions in it", "eth/1/model.onnx"]),
        (broken_link, "btc/11", ["no folder", "a version is expected"]),
        (pipe, "btc/10/model.onnx", ["neither a file nor a folder"]),
        (golden_pipe, "btc/10/golden.npz", ["neither a file nor a folder"]),
        (device, "btc/10/model.onnx", ["neither a file nor a folder"]),
        (settings_pipe, "btc/model.toml", ["no file", "settings"]),
        (settings_folder, "btc/model.toml", ["no file", "settings"]),
    ],
)
def test_what_is_unexpected_is_named(folder: Path, spoil: Callable[[Path], None], where: str, says: list[str]) -> None:
    spoil(folder)
    line = refused(lambda: read_repository(folder))
    assert line.startswith(f"{folder / where}: ")
    assert [part for part in says if part not in line] == []


@contextmanager
def as_nobody() -> Iterator[None]:
    """As a user whom permissions hold: root may read everything."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.parametrize("mode", [0o000, 0o444])
@pytest.mark.parametrize("where", ["btc", "btc/1"])
def test_what_may_not_be_read_is_named(where: str, mode: int) -> None:
    with TemporaryDirectory() as place:  # pytest's own is for its user alone
        Path(place).chmod(0o755)
        folder = Path(place) / "models"
        add_version(folder, "btc", "1", b"")
        (folder / where).chmod(mode)
        with as_nobody():
            line = refused(lambda: read_repository(folder))
        assert line.startswith(str(folder / where))
        assert line.endswith(": Permission denied")
        (folder / where).chmod(0o755)


@pytest.mark.parametrize("name", [".", "..", "btc.part", ".btc"])
def test_only_what_is_a_models_folder_can_be_asked_for(folder: Path, name: str) -> None:
    (folder / "btc").rename(folder / "btc.part")
    add_version(folder, "eth", "1", b"")
    (folder / ".btc").symlink_to(folder / "btc.part")
    source = ModelSource(ServerConfig(repository=str(folder)))
    assert "there are: eth" in refused(lambda: source.read(name))


def test_a_folder_that_is_no_repository(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "no models in it: put one at" in refused(lambda: read_repository(tmp_path / "empty"))
    assert "No such file" in refused(lambda: read_repository(tmp_path / "none"))
    version = folder / "btc" / "10"
    assert f"name {version / 'model.onnx'}, or {folder}" in refused(lambda: read_repository(version))


def test_a_configuration_and_its_repository(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tickpath.toml").write_text("repository = 'models'\n[[models]]\npath = 'eth.onnx'\n")
    config = add_repository(make_config(read_config(tmp_path / "tickpath.toml")))
    assert [model.served_name for model in config.models] == ["eth", "btc"]
    (tmp_path / "btc.onnx").write_text("")
    (tmp_path / "tickpath.toml").write_text("repository = 'models'\n[[models]]\npath = 'btc.onnx'\n")
    clash = make_config(read_config(tmp_path / "tickpath.toml"))
    assert "model 'btc': 2 of its 2 versions are live" in refused(lambda: add_repository(clash))
    assert add_repository(ServerConfig((ModelConfig("a.onnx"),))).models == (ModelConfig("a.onnx"),)
