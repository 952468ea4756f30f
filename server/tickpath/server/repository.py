"""The model repository: a folder of models on disk, each with its versions and, if need be, a model.toml.

    models/NAME/VERSION/model.onnx | .pt2 | .plan | .ov       models/NAME/model.toml (optional)

Rules
- A version is a folder that holds one model file and what belongs to it: weights, a sidecar, a golden sample.
- Copying is not atomic and renaming is: whoever adds a version copies it under a name that is passed over (`.new`,
  `7.part`, `7.tmp`) and renames it when it is whole.
- What is hidden, half-written or an editor's is passed over; anything else that is not expected is named, since it may
  be the version that somebody believes is served.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec

from tickpath.server.config import (
    NAME_PATTERN,
    NAME_WORDS,
    ConfigError,
    ModelConfig,
    Name,
    ServerConfig,
    check,
    check_model,
    convert,
)
from tickpath.server.config_file import read_toml, settle_model

MODEL_FILES: Final = ("model.onnx", "model.pt2", "model.plan", "model.ov")
SETTINGS_FILE: Final = "model.toml"

# Hidden, half-written, an editor's backup or lock; and what a file system puts at the root of every volume.
PASSED_OVER: Final = re.compile(r"\..*|.*\.(tmp|part)|.*~|#.*#|lost\+found", re.DOTALL)


class VersionChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which versions of a model are loaded, and which of them is live. None: the newest alone; of several, the newest
    is live."""

    versions: Annotated[tuple[Name, ...], msgspec.Meta(min_length=1)] | None = None
    live: Name | None = None


# What a model's folder says of itself.
_TOLD_BY_PLACE: Final = ("path", "name", "version", "live")
_SETTINGS: Final = tuple(field for field in ModelConfig.__struct_fields__ if field not in _TOLD_BY_PLACE)
_KEYS: Final = (*VersionChoice.__struct_fields__, *_SETTINGS)


@contextmanager
def _as_config_errors() -> Iterator[None]:
    """What this user may not read is named like anything else that is not in order."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from None


def add_repository(config: ServerConfig) -> ServerConfig:
    """The configuration with the models of its repository among its own. Raises ConfigError."""
    if config.repository is None:
        return config
    models = read_repository(Path(config.repository))
    return check(msgspec.structs.replace(config, models=(*config.models, *models)))


def read_repository(folder: Path) -> tuple[ModelConfig, ...]:
    """Every version that is to be loaded, of every model; of each model exactly one is live. Raises ConfigError."""
    return tuple(config for name in model_names(folder) for config in read_model(folder, name))


@_as_config_errors()
def read_model(folder: Path, name: str) -> tuple[ModelConfig, ...]:
    """The versions of one model of the repository `folder` that are to be loaded, oldest first; exactly one is live.
    Raises ConfigError."""
    file, values = _read_settings(folder / name)
    choice = _choice(file, values)
    found = version_names(folder, name)
    wanted = _wanted(choice, found, file)
    live = choice.live or wanted[-1]
    if live not in wanted:
        raise ConfigError(f"{file}: live = {live!r} is none of the versions to load: there are {', '.join(wanted)}")
    return tuple(_version(folder / name, version, version == live, file, values) for version in wanted)


@_as_config_errors()
def read_version(folder: Path, name: str, version: str) -> ModelConfig:
    """One version of a model, whether it is to be loaded or not; it is not live. Raises ConfigError."""
    file, values = _read_settings(folder / name)
    _choice(file, values)
    if version not in version_names(folder, name):
        raise _no_version(folder / name, version, version_names(folder, name))
    return _version(folder / name, version, False, file, values)


@_as_config_errors()
def model_names(folder: Path) -> list[str]:
    """The models of a repository, in alphabetical order. Raises ConfigError."""
    for file in MODEL_FILES:
        if (folder / file).is_file():
            raise ConfigError(
                f"{folder}: holds {file}, so it is no repository: name {folder / file}, or {folder.parent.parent}"
            )
    names = sorted(_folders(folder, "a model", ()))
    if not names:
        raise ConfigError(f"{folder}: no models in it: put one at {folder}/NAME/1/model.onnx")
    return names


@_as_config_errors()
def version_names(folder: Path, name: str) -> list[str]:
    """The versions of a model that are whole, oldest first: in natural order, in which 9 comes before 10, and v9 before
    v10. Raises ConfigError."""
    names = sorted(_folders(folder / name, "a version", (SETTINGS_FILE,)), key=natural_key)
    if not names:
        raise ConfigError(f"{folder / name}: no versions in it: put one at {folder / name}/1/model.onnx")
    return names


def natural_key(name: str) -> tuple[object, ...]:
    """Sorts names by their numbers where they have some: runs of digits count as one number, and come before letters.
    Of two that say the same (1 and 01), the shorter comes first."""
    runs = re.findall(r"[0-9]+|[^0-9]+", name)
    return (*((0, int(run), "") if run[0] in "0123456789" else (1, 0, run) for run in runs), (-1, len(name), name))


def is_passed_over(name: str) -> bool:
    """Whether a file or folder of this name is none of the repository's business."""
    return PASSED_OVER.fullmatch(name) is not None


def _folders(folder: Path, what: str, files: Sequence[str]) -> list[str]:
    """The folders that hold `what`, beside which only `files` may stand. Raises ConfigError."""
    names = []
    for path in _entries(folder):
        if path.name in files and path.is_file():
            continue
        if not path.is_dir():
            hint = f"move it to {folder}/1/{path.name}" if path.name in MODEL_FILES else "move it elsewhere"
            raise ConfigError(f"{path}: no folder, and the folder of {what} is expected here: {hint}")
        if not re.match(NAME_PATTERN, path.name):
            raise ConfigError(f"{path}: {path.name!r} can't be {what}'s name, which is {NAME_WORDS}: rename the folder")
        names.append(path.name)
    return names


def _entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not is_passed_over(path.name))


def _read_settings(folder: Path) -> tuple[Path, dict[str, object]]:
    """The model's settings, none where it has no file for them, and the file."""
    file = folder / SETTINGS_FILE
    if file.exists() and not file.is_file():
        raise ConfigError(f"{file}: no file, and the model's settings are expected here: move it elsewhere")
    values = read_toml(file) if file.exists() else {}
    for key in values:
        if key not in _KEYS:
            told = " (its folders say it)" if key in ("path", "name", "version") else ""
            raise ConfigError(f"{file}: unknown key {key!r}{told}; there are {', '.join(_KEYS)}")
    return file, settle_model(values, file)


def _choice(file: Path, values: dict[str, object]) -> VersionChoice:
    return convert({key: values[key] for key in VersionChoice.__struct_fields__ if key in values}, VersionChoice, file)


def _wanted(choice: VersionChoice, found: list[str], file: Path) -> list[str]:
    """The versions to load, oldest first."""
    asked = choice.versions or ([choice.live] if choice.live else found[-1:])
    for version in asked:
        if version not in found:
            raise _no_version(file, version, found)
    return sorted(set(asked), key=natural_key)


def _no_version(where: Path, version: str, found: list[str]) -> ConfigError:
    return ConfigError(f"{where}: there is no version {version!r}: there are {', '.join(found)}")


def _version(folder: Path, version: str, live: bool, file: Path, values: dict[str, object]) -> ModelConfig:
    settings = {key: values[key] for key in _SETTINGS if key in values}
    place = {"path": str(_model_file(folder / version)), "name": folder.name, "version": version, "live": live}
    config = convert(settings | place, ModelConfig, file)
    try:
        return check_model(config)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None


def _model_file(folder: Path) -> Path:
    """The one model file of a version."""
    entries = _entries(folder)
    for path in entries:
        # Who reads a pipe or a device waits for ever, or reads without an end.
        if not path.is_file() and not path.is_dir():
            raise ConfigError(f"{path}: neither a file nor a folder, nor a link to one: move it elsewhere")
    names = [path.name for path in entries]
    models = [name for name in names if name in MODEL_FILES]
    if len(models) != 1:
        came = f"{' and '.join(models)}: leave one" if models else f"it holds {', '.join(names) or 'nothing'}"
        raise ConfigError(f"{folder}: a version has one of {', '.join(MODEL_FILES)}; {came}")
    return folder / models[0]
