"""What is served, for whoever asks: `tickpath status`."""

import msgspec

from tickpath.server.catalogue import Model


class ModelStatus(msgspec.Struct, frozen=True):
    """One model: which of its `loaded` versions answers, answered before, answers a share, and computes beside."""

    name: str
    live: str | None
    previous: str | None
    loaded: tuple[str, ...]
    canary: str | None
    canary_share: float
    shadow: str | None


def status_of(model: Model) -> ModelStatus:
    """A model as it is now."""
    return ModelStatus(
        model.name,
        model.live.label if model.live else None,
        model.previous.label if model.previous else None,
        tuple(model.loaded),
        model.canary.version.label if model.canary else None,
        model.canary.share if model.canary else 0.0,
        model.shadow.version.label if model.shadow else None,
    )
