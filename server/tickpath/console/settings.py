"""From what was typed, and perhaps a file, to the values of a server configuration. Pure."""

import re

from tickpath.server.config import NAME_PATTERN, NAME_WORDS, ConfigError
from tickpath.server.config_file import parse_sizes, parse_whole

Values = dict[str, object]

MODEL_OPTIONS = ("name", "shapes", "buckets", "executor", "non_finite", "trust")
TLS_OPTIONS = {"tls_cert": "certificate", "tls_key": "key", "tls_client_ca": "client_ca"}
"""And what they are called in the configuration's [tls]."""
TRACE_OPTIONS = {"trace_endpoint": "endpoint", "trace_sample": "sample", "trace_slow": "slow"}
"""And in [trace]."""
OPTIONS = {"shapes": "shape", "non_finite": "non-finite"}
"""How they are typed, where a field has another name."""


def serve_values(file: Values, model_path: str | None, options: Values) -> Values:
    """Plain values for `make_config`. An option that is None was not typed; what was typed wins over the file.

    The models come from one of the two, and an option of a model needs that there is one model only. Raises
    ConfigError."""
    typed = {name: value for name, value in options.items() if value is not None}
    if typed.pop("no_observer", False):
        if "observer_port" in typed:
            raise ConfigError("--observer-port and --no-observer: choose one")
        typed["observer_port"] = None
    tls = {name: typed.pop(option) for option, name in TLS_OPTIONS.items() if option in typed}
    if tls:
        if "tls" in file:
            raise ConfigError("--tls-cert and its like, and the configuration's [tls]: choose one")
        typed["tls"] = tls
    if (folder := typed.pop("record", None)) is not None:
        in_file = file.get("record", {})
        typed["record"] = {**(in_file if isinstance(in_file, dict) else {}), "dir": folder}
    trace = {name: typed.pop(option) for option, name in TRACE_OPTIONS.items() if option in typed}
    if trace:
        in_file = file.get("trace", {})
        typed["trace"] = trace = {**(in_file if isinstance(in_file, dict) else {}), **trace}
        if "endpoint" not in trace:
            raise ConfigError("--trace-sample and --trace-slow: of what --trace-endpoint sends, or [trace]: give one")
    of_model = {name: typed.pop(name) for name in MODEL_OPTIONS if name in typed}
    asked = model_path if model_path is not None else typed.get("repository")
    for key, told in (("models", "[[models]]"), ("repository", "repository")):
        if asked is not None and key in file:
            raise ConfigError(f"{asked} and the configuration's {told}: choose one")
    values = {**file, **typed}
    models = [{"path": model_path}] if model_path is not None else file.get("models", [])
    if of_model and ("repository" in values or models):
        models = [{**_only(models, next(iter(of_model))), **of_model}]
    return {**values, "models": models}


def _only(models: object, option: str) -> Values:
    if isinstance(models, list) and len(models) == 1 and isinstance(models[0], dict):
        return models[0]
    typed = OPTIONS.get(option, option)
    if not models:
        raise ConfigError(f"--{typed} belongs to one model, a repository has several: set {option} in its model.toml")
    raise ConfigError(
        f"--{typed} belongs to one model and the configuration has several: set {option} under [[models]] there"
    )


def parse_shape(text: str) -> tuple[str, tuple[int | str, ...]]:
    """`x=N,120,3` -> ("x", ("N", 120, 3)). Raises ValueError."""
    name, _, sizes = text.rpartition("=")
    if not (name and sizes):
        raise ValueError(f"expected INPUT=SIZES as in x=N,120,3, {text!r} came")
    return name, parse_sizes(sizes)


def parse_buckets(text: str) -> tuple[int, ...]:
    """`1,2,8` -> (1, 2, 8). Raises ValueError."""
    return tuple(map(parse_whole, text.split(",")))


def parse_slow(text: str) -> float | str:
    """`2.5` -> 2.5, and words as they are. Raises ValueError."""
    if text in ("p99.9", "off"):
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"expected a number of ms, p99.9 or off, {text!r} came") from None


def parse_name(text: str) -> str:
    """A model's name. Raises ValueError."""
    if not re.match(NAME_PATTERN, text):
        raise ValueError(f"expected a name {NAME_WORDS}, {text!r} came")
    return text
