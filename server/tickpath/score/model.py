"""Which model is meant, with the settings that a server would serve it with."""

from pathlib import Path

import msgspec

from tickpath.server.config import ConfigError, ModelConfig, check_model, convert, make_config
from tickpath.server.config_file import read_config
from tickpath.server.repository import MODEL_FILES, SETTINGS_FILE, add_repository, read_model, read_version

Settings = dict[str, object]


def find_model(path: Path, settings: Settings, config: Path | None = None) -> ModelConfig:
    """The model at `path`: a file; a model's folder in a repository, whose live version it then is; one version's
    folder; or, with `config`, a server's TOML file, the NAME or NAME@VERSION of a model there. `settings` win over what
    is configured. Raises ConfigError."""
    found = _in_config(config, str(path)) if config else _on_disk(path)
    values = {name: value for name, value in settings.items() if value is not None}
    typed = convert({"path": found.path, **values}, ModelConfig, "options")
    changes = {name: getattr(typed, name) for name in values}
    # Another answer never stands in for one that is to be the model's own.
    return check_model(msgspec.structs.replace(found, **changes, fallback="none"))


def _on_disk(path: Path) -> ModelConfig:
    if not path.is_dir():
        return ModelConfig(str(path))
    path = path.resolve()
    if any((path / name).is_file() for name in MODEL_FILES):
        return read_version(path.parents[1], path.parent.name, path.name)
    if (path / SETTINGS_FILE).exists() or any(path.glob("*/model.*")):
        return next(version for version in read_model(path.parent, path.name) if version.live)
    raise ConfigError(f"{path}: no model: name a file, or a model's or a version's folder in a repository")


def _in_config(config: Path, asked: str) -> ModelConfig:
    models = add_repository(make_config(read_config(config), str(config))).models
    name, _, version = asked.partition("@")
    for model in models:
        if model.served_name == name and (model.version == version if version else model.live):
            return model
    told = ", ".join(f"{model.served_name}@{model.version}" for model in models)
    raise ConfigError(f"{config}: no model {asked!r}: there are {told}")
