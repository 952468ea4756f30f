"""The configuration as a TOML file: its plain values, with paths that count from its folder."""

import tomllib
from pathlib import Path

from tickpath.server.config import ConfigError

# Keys of each table that are paths.
_OF_SERVER = ("repository", "observer_token_file", "oip_token_file")
_OF_CLIENT = ("token_file",)
_OF_TABLES = {"tls": ("certificate", "key", "client_ca"), "record": ("dir",), "trace": ("headers_file", "ca")}


def parse_sizes(text: str) -> tuple[int | str, ...]:
    """A shape as it is typed: `N,120,3` -> ("N", 120, 3), and nothing for a scalar. Raises ValueError."""
    return tuple(size if size == "N" else parse_whole(size) for size in text.split(",")) if text else ()


def parse_whole(text: str) -> int:
    """A number above 0. Raises ValueError."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ValueError(f"expected whole numbers above 0 with commas between, {text!r} came")
    return int(text)


def read_config(path: Path) -> dict[str, object]:
    """The plain values of a TOML file, for `make_config`; a relative path of a model, a repository or of what is secret
    counts from the file's folder, `false` stands for no port, and a shape may be typed as on the command line. Raises
    ConfigError."""
    values = _settle_paths(read_toml(path), _OF_SERVER, path)
    for port in ("port", "observer_port", "oip_port", "oip_grpc_port"):  # TOML has no None
        if values.get(port) is False:
            values[port] = None
    if isinstance(models := values.get("models"), list):
        values["models"] = [settle_model(model, path) if isinstance(model, dict) else model for model in models]
    if isinstance(clients := values.get("clients"), list):
        values["clients"] = [
            _settle_paths(client, _OF_CLIENT, path) if isinstance(client, dict) else client for client in clients
        ]
    for name, keys in _OF_TABLES.items():
        if isinstance(table := values.get(name), dict):
            values[name] = _settle_paths(table, keys, path)
    return values


def _settle_paths(table: dict[str, object], keys: tuple[str, ...], file: Path) -> dict[str, object]:
    paths = {key: str(file.parent / place) for key in keys if isinstance(place := table.get(key), str)}
    return {**table, **paths}


def read_toml(path: Path) -> dict[str, object]:
    """The plain values of a TOML file. Raises ConfigError."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # ValueError: also of a number with thousands of digits
        raise ConfigError(f"{path}: not TOML: {error}") from None


def settle_model(model: dict[str, object], file: Path) -> dict[str, object]:
    """A model's plain values as they are meant in this file: paths count from its folder, shapes may be typed as on the
    command line. Raises ConfigError."""
    settled = dict(model)
    if isinstance(path := model.get("path"), str):
        settled["path"] = str(file.parent / path)
    if isinstance(shapes := model.get("shapes"), dict):
        settled["shapes"] = {name: _settle_shape(name, shape, file) for name, shape in shapes.items()}
    return settled


def _settle_shape(name: str, shape: object, file: Path) -> object:
    try:
        return parse_sizes(shape) if isinstance(shape, str) else shape
    except ValueError as error:
        raise ConfigError(f"{file}: the shape of {name!r}: {error}, or N for the batch axis") from None
