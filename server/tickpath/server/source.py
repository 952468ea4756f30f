"""Where models come from: the repository's folder, read again each time, or the configuration itself."""

from pathlib import Path

from tickpath.server.config import ConfigError, ModelConfig, ServerConfig
from tickpath.server.repository import is_passed_over, model_names, read_model, read_version


class ModelSource:
    """What a server's configuration names, as it is on disk now. Every method reads files."""

    def __init__(self, config: ServerConfig) -> None:
        self._folder = None if config.repository is None else Path(config.repository)
        # A model of the repository lies in its folder, and is read from there.
        self._configured = tuple(model for model in config.models if not self._in_repository(model))

    def names(self) -> tuple[str, ...]:
        """Every model there is to serve. Raises ConfigError."""
        found = [] if self._folder is None else model_names(self._folder)
        return tuple(dict.fromkeys((*(model.served_name for model in self._configured), *found)))

    def read(self, name: str) -> tuple[ModelConfig, ...]:
        """The versions of this model that are to be loaded; one is live. Raises ConfigError."""
        configured = tuple(model for model in self._configured if model.served_name == name)
        if configured:
            return configured
        return read_model(self._repository(name), name)

    def read_version(self, name: str, label: str) -> ModelConfig:
        """One version of this model, which is not live. Raises ConfigError."""
        return read_version(self._repository(name), name, label)

    def _repository(self, name: str) -> Path:
        if self._folder is None or is_passed_over(name) or not (self._folder / name).is_dir():
            where = "the configuration" if self._folder is None else f"{self._folder} or the configuration"
            raise ConfigError(f"no model {name!r} in {where}; there are: {', '.join(self.names()) or 'none'}")
        return self._folder

    def _in_repository(self, model: ModelConfig) -> bool:
        return self._folder is not None and self._folder in Path(model.path).parents
