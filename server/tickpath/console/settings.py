"""From what was typed, and perhaps a file, to the values of a server configuration. Pure."""

from tickpath.server.config import ConfigError

Values = dict[str, object]

MODEL_OPTIONS = ("name", "shapes", "buckets", "executor", "non_finite")


def serve_values(file: Values, model_path: str | None, options: Values) -> Values:
    """Plain values for `make_config`. An option that is None was not typed; what was typed wins over the file.

    A model path stands in place of the file's models, and an option of a model needs that there is one model only.
    Raises ConfigError."""
    typed = {name: value for name, value in options.items() if value is not None}
    if typed.pop("no_observer", False):
        if "observer_port" in typed:
            raise ConfigError("--observer-port and --no-observer: choose one")
        typed["observer_port"] = None
    of_model = {name: typed.pop(name) for name in MODEL_OPTIONS if name in typed}
    models = [{"path": model_path}] if model_path is not None else file.get("models", [])
    if of_model and models:
        models = [{**_only(models, next(iter(of_model))), **of_model}]
    return {**file, **typed, "models": models}


def _only(models: object, option: str) -> Values:
    if isinstance(models, list) and len(models) == 1 and isinstance(models[0], dict):
        return models[0]
    raise ConfigError(f"{option} belongs to one model and the configuration has several: set it under [[models]] there")


def parse_shape(text: str) -> tuple[str, tuple[int | str, ...]]:
    """`x=N,120,3` -> ("x", ("N", 120, 3)). Raises ValueError."""
    name, _, sizes = text.rpartition("=")
    if not (name and sizes):
        raise ValueError(f"expected INPUT=SIZES as in x=N,120,3, {text!r} came")
    return name, tuple(size if size == "N" else _whole(size) for size in sizes.split(","))


def parse_buckets(text: str) -> tuple[int, ...]:
    """`1,2,8` -> (1, 2, 8). Raises ValueError."""
    return tuple(_whole(size) for size in text.split(","))


def _whole(size: str) -> int:
    if not (size.isascii() and size.isdigit() and int(size) > 0):
        raise ValueError(f"expected whole numbers above 0 with commas between, {size!r} came")
    return int(size)
