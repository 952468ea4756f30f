"""What was typed, and a file, become one configuration."""

from pathlib import Path

import pytest

from tickpath.console.settings import parse_buckets, parse_shape, serve_values
from tickpath.server.config import ConfigError, make_config
from tickpath.server.config_file import read_config

NOTHING_TYPED: dict[str, object] = dict.fromkeys(
    ("name", "host", "port", "uds", "observer_port", "spin", "cpu", "shapes", "buckets", "executor", "non_finite")
) | {"no_observer": False}

FILE = """
port = 7171
spin = true
[[models]]
path = "btc.onnx"
name = "btc"
buckets = [1, 4]
"""


def test_a_model_alone_is_enough() -> None:
    config = make_config(serve_values({}, "models/btc.onnx", NOTHING_TYPED))
    assert [model.served_name for model in config.models] == ["btc"]
    assert (config.port, config.observer_port, config.spin) == (7070, 9090, False)


def test_what_was_typed_wins_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "tickpath.toml").write_text(FILE)
    file = read_config(tmp_path / "tickpath.toml")
    config = make_config(serve_values(file, None, NOTHING_TYPED | {"port": 0, "buckets": (1, 2)}))
    (model,) = config.models
    assert (config.port, config.spin) == (0, True)
    assert (model.path, model.name, model.buckets) == (str(tmp_path / "btc.onnx"), "btc", (1, 2))


def test_models_are_typed_or_in_the_file() -> None:
    with pytest.raises(ConfigError, match=r"c\.onnx.*choose one"):
        serve_values({"models": [{"path": "a.onnx"}]}, "c.onnx", NOTHING_TYPED)
    (model,) = make_config(serve_values({"port": 1}, "c.onnx", NOTHING_TYPED)).models
    assert model.path == "c.onnx"


def test_options_of_a_model_reach_it() -> None:
    typed = {"name": "x", "shapes": {"in": ("N", 3)}, "executor": "thread", "non_finite": "pass"}
    (model,) = make_config(serve_values({}, "c.onnx", NOTHING_TYPED | typed)).models
    assert (model.name, model.shapes, model.executor, model.non_finite) == ("x", {"in": ("N", 3)}, "thread", "pass")


def test_no_observer() -> None:
    assert make_config(serve_values({}, "c.onnx", NOTHING_TYPED | {"no_observer": True})).observer_port is None
    with pytest.raises(ConfigError, match="choose one"):
        serve_values({}, "c.onnx", NOTHING_TYPED | {"no_observer": True, "observer_port": 1})


def test_an_option_of_one_model_does_not_fit_two() -> None:
    models: list[dict[str, str]] = [{"path": "a.onnx"}, {"path": "b.onnx"}]
    with pytest.raises(ConfigError, match=r"--shape belongs to one model.*set shapes under"):
        serve_values({"models": models}, None, NOTHING_TYPED | {"shapes": {"x": (1,)}})


def test_no_model_at_all() -> None:
    with pytest.raises(ConfigError, match="no model to serve"):
        make_config(serve_values({}, None, NOTHING_TYPED | {"name": "x"}))


def test_shapes_and_buckets() -> None:
    assert parse_shape("x=N,120,3") == ("x", ("N", 120, 3))
    assert parse_shape("a=b=4") == ("a=b", (4,))
    assert parse_buckets("1,8") == (1, 8)


@pytest.mark.parametrize("text", ["", "x", "x=", "=1", "x=N,M", "x=1.5", "x=0", "x=N,-1", "x=²"])
def test_shapes_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_shape(text)


def test_a_folder_to_record_in_is_typed_and_the_rest_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "tickpath.toml").write_text(FILE + '[record]\ndir = "there"\nwhen_full = "stop"\n')
    file = read_config(tmp_path / "tickpath.toml")
    config = make_config(serve_values(file, None, NOTHING_TYPED | {"record": "here"}))
    assert config.record is not None
    assert (config.record.dir, config.record.when_full) == ("here", "stop")
