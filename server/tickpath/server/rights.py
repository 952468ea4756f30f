"""What a client may ask, whatever it is known by. Pure."""

from dataclasses import dataclass
from typing import Self

from tickpath.server.access_config import ClientConfig
from tickpath.server.admission import Refusal
from tickpath.wire import Code


@dataclass(frozen=True, slots=True)
class Rights:
    """`models`: those it may ask, in whatever version; None: all. `admin`: it may load and unload through the door."""

    models: frozenset[str] | None = None
    admin: bool = False

    @classmethod
    def of(cls, config: ClientConfig) -> Self:
        return cls(None if config.models is None else frozenset(config.models), config.admin)

    def may_ask(self, model: str) -> bool:
        return self.models is None or model in self.models


def refuse_model(client: str, handle: int) -> Refusal:
    """The refusal of what a client may not ask. It names the handle alone: what else is served is none of its
    business."""
    return Refusal(
        Code.FORBIDDEN,
        f"client {client!r} may not ask what has handle {handle}: use the handles that Welcome or ModelList gives",
    )
