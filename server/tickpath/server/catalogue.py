"""What is served: models, their loaded versions, and the ways to them that clients hold. Pure: no clock, no I/O.

Words
- A route is what a handle leads to: one version for ever (a pinned route), or whichever version of a model is live, as
  long as it takes and gives the same tensors. A handle is a route's index, and is never given to another route.
- live: the version that answers. previous: the one that was live before, kept loaded so that a rollback is a swap.
- canary: a version that answers a share of the clients, the same ones each time. shadow: one that computes what
  another has answered, to be compared, and answers nobody.

One writer: the loop's thread, between two requests. Each change returns the versions that nothing leads to any more.
"""

import hashlib
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

import msgspec

from tickpath.server.admission import Refusal
from tickpath.server.version import Version
from tickpath.wire import Code, Infer, ModelInfo, TensorInfo

KEY_BYTES: Final = 8
KEYS: Final = 2 ** (8 * KEY_BYTES)

Signature = tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]
"""What a version takes and gives."""


class CatalogueError(Exception):
    """The change can't be made. The text says what was expected, what is there and what to do."""


class Shadow(Protocol):
    """Computes again what was answered."""

    @property
    def version(self) -> Version: ...

    def offer(self, infer: Infer, frame: bytes) -> None:
        """`frame` answered `infer`, whose bytes need not outlive the call."""
        ...


@dataclass(frozen=True, slots=True)
class Canary:
    """`version` answers the clients whose keys lie in the first `share` (0 to 1) of all keys."""

    version: Version
    share: float

    def takes(self, key: int) -> bool:
        return key < self.share * KEYS


class Route:
    """Where a handle leads. `gone` says why, where that is nowhere."""

    __slots__ = ("canary", "gone", "handle", "live", "model", "shadow")

    def __init__(self, handle: int, model: str) -> None:
        self.handle = handle
        self.model = model
        self.live: Version | None = None
        self.gone = Refusal(Code.UNKNOWN_MODEL, "")
        self.canary: Canary | None = None
        self.shadow: Shadow | None = None

    def pick(self, key: int) -> Version | None:
        """The version that answers the client of this key."""
        canary = self.canary
        return canary.version if canary is not None and canary.takes(key) else self.live

    def info(self, version: Version) -> ModelInfo:
        return msgspec.structs.replace(version.info, handle=self.handle)


@dataclass(slots=True)
class Model:
    """What is served under one name. `loaded`: its versions by label, in the order in which they came."""

    name: str
    loaded: dict[str, Version] = field(default_factory=dict)
    live: Version | None = None
    previous: Version | None = None
    canary: Canary | None = None
    shadow: Shadow | None = None
    kept: set[str] = field(default_factory=set)  # labels that were asked for by name, and stay until they are unloaded
    listed: set[str] = field(default_factory=set)  # labels that its files ask for, and stay until those say otherwise

    def in_use(self) -> Iterator[Version]:
        """The versions that something leads to."""
        for version in (self.live, self.previous):
            if version is not None:
                yield version
        if self.canary is not None:
            yield self.canary.version
        if self.shadow is not None:
            yield self.shadow.version
        yield from (self.loaded[label] for label in self.kept | self.listed)


class Catalogue:
    """The models of one core."""

    def __init__(self) -> None:
        self.routes: list[Route] = []
        self._models: dict[str, Model] = {}
        self._routes: dict[tuple[str, str | Signature], Route] = {}  # by model, and label or what a live one takes

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._models)

    @property
    def shadows(self) -> tuple[Shadow, ...]:
        return tuple(model.shadow for model in self._models.values() if model.shadow is not None)

    @property
    def versions(self) -> tuple[Version, ...]:
        """All that are loaded."""
        return tuple(version for model in self._models.values() for version in model.loaded.values())

    def live(self, name: str) -> Version | None:
        """The version that answers for this name."""
        model = self._models.get(name)
        return None if model is None else model.live

    def model(self, name: str) -> Model:
        """Raises CatalogueError where there is none of this name."""
        if (model := self._models.get(name)) is None:
            served = ", ".join(self._models) or "none"
            raise CatalogueError(f"no model {name!r} is served; there are: {served}")
        return model

    def version(self, name: str, label: str) -> Version:
        """Raises CatalogueError where it is not loaded."""
        model = self.model(name)
        if (version := model.loaded.get(label)) is None:
            raise CatalogueError(
                f"version {label!r} of model {name!r} is not loaded; there are: {', '.join(model.loaded)}"
            )
        return version

    def role(self, version: Version) -> Literal["live", "loaded"]:
        """What a loaded version is for its model."""
        return "live" if self.model(version.name).live is version else "loaded"

    def infos(self) -> tuple[ModelInfo, ...]:
        """The models as a client is told of them: those that answer, by name."""
        return tuple(
            self._routes[name, signature(model.live)].info(model.live)
            for name, model in self._models.items()
            if model.live is not None
        )

    def version_infos(self) -> tuple[ModelInfo, ...]:
        """Every version that a client may ask for by its label, with the handle that stays with it: made now, where
        nobody has asked for it before."""
        return tuple(self._pinned(version).info(version) for version in self.versions)

    def ways(self) -> Iterator[tuple[Route, str, str]]:
        """Every route, with the name of its model and the label of the version that it is pinned to, "" where it is
        not."""
        for (name, key), route in self._routes.items():
            yield route, name, key if isinstance(key, str) else ""

    def add(self, version: Version, keep: bool = False) -> None:
        """A version is loaded. With `keep`, it stays until it is unloaded; else until nothing leads to it."""
        model = self._models.setdefault(version.name, Model(version.name))
        model.loaded[version.label] = version
        if keep:
            model.kept.add(version.label)
        if (version.name, version.label) in self._routes:  # someone asked for it before it was unloaded
            self._pinned(version)

    def make_live(self, version: Version) -> tuple[Version, ...]:
        """From the next request on, this version answers for its model."""
        model = self.model(version.name)
        if model.live is version:
            return ()
        old, model.live, model.previous = model.live, version, model.live
        if model.canary is not None and model.canary.version is version:
            model.canary = None
        if model.shadow is not None and model.shadow.version is version:
            model.shadow = None
        self._lead(model, old)
        return self._drop_unused(model)

    def rollback(self, name: str) -> tuple[Version, ...]:
        """The version that was live before is live again, and the other one the one before."""
        model = self.model(name)
        if model.previous is None:
            raise CatalogueError(f"model {name!r} has no version to go back to: none was live before")
        return self.make_live(model.previous)

    def set_canary(self, name: str, canary: Canary | None) -> tuple[Version, ...]:
        """Give a share of the clients to another version, or to none."""
        model = self.model(name)
        if canary is not None:
            self._check_alike(model, canary.version, "a canary")
        model.canary = canary
        self._lead(model, model.live)
        return self._drop_unused(model)

    def set_shadow(self, name: str, shadow: Shadow | None) -> tuple[Version, ...]:
        """Have another version compute what is answered, or none."""
        model = self.model(name)
        if shadow is not None:
            self._check_alike(model, shadow.version, "a shadow")
        model.shadow = shadow
        self._lead(model, model.live)
        return self._drop_unused(model)

    def keep(self, version: Version) -> None:
        """It stays until it is unloaded."""
        self.model(version.name).kept.add(version.label)

    def list_beside(self, version: Version) -> None:
        """Its model's files ask for it beside the live one: it stays until they don't."""
        self.model(version.name).listed.add(version.label)

    def list_only(self, name: str, labels: Set[str]) -> tuple[Version, ...]:
        """These are all that the model's files ask for beside the live one."""
        model = self.model(name)
        model.listed &= labels
        return self._drop_unused(model)

    def unload_version(self, version: Version) -> tuple[Version, ...]:
        """It is asked for by name no more. Raises CatalogueError where it is in use."""
        model = self.model(version.name)
        canary, shadow = (None if way is None else way.version for way in (model.canary, model.shadow))
        for role, used, remedy in (
            ("live", model.live, "make another live first"),
            ("the canary", canary, f"`tickpath canary {version.name} --off` first"),
            ("the shadow", shadow, f"`tickpath shadow {version.name} --off` first"),
        ):
            if used is version:
                raise CatalogueError(
                    f"version {version.label!r} of model {version.name!r} is {role}: {remedy}, or unload the whole "
                    "model"
                )
        model.kept.discard(version.label)
        model.listed.discard(version.label)
        if model.previous is version:
            model.previous = None
        return self._drop_unused(model)

    def unload_model(self, name: str) -> tuple[Version, ...]:
        """Nobody answers for this name any more."""
        model = self._models.pop(name, None) or self.model(name)
        for (model_name, _), route in self._routes.items():
            if model_name == name:
                _close(route, f"model {name!r} was unloaded: ask for Models again, or another server")
        return tuple(model.loaded.values())

    def _lead(self, model: Model, old: Version | None) -> None:
        """Point the model's routes where its state says."""
        live = model.live
        if live is None:
            return
        if old is not None and signature(old) != signature(live):
            _close(
                self._routes[model.name, signature(old)],
                f"model {model.name!r} took {old.engine.spec.describe()}; its version {live.label} takes "
                f"{live.engine.spec.describe()}: ask for Models again",
            )
            # They are for a version that is not live any more.
            model.canary = model.shadow = None
        route = self._route(model.name, signature(live))
        route.live, route.canary, route.shadow = live, model.canary, model.shadow

    def _route(self, name: str, key: str | Signature) -> Route:
        if (route := self._routes.get((name, key))) is None:
            route = self._routes[name, key] = Route(len(self.routes), name)
            self.routes.append(route)
        return route

    def _pinned(self, version: Version) -> Route:
        route = self._route(version.name, version.label)
        route.live = version
        return route

    def _check_alike(self, model: Model, version: Version, what: str) -> None:
        """Whether a version can stand beside the live one. Raises CatalogueError."""
        live = model.live
        refusal = f"version {version.label!r} of model {model.name!r} can't be {what}"
        if self.version(model.name, version.label) is not version:
            raise CatalogueError(f"{refusal}: it was unloaded meanwhile: load it again")
        if live is None:
            raise CatalogueError(f"{refusal}: no version is live: reload the model first")
        if live is version:
            raise CatalogueError(f"{refusal}: it is the live one")
        if signature(live) != signature(version):
            raise CatalogueError(
                f"{refusal} of version {live.label}: it takes {version.engine.spec.describe()}, the live one "
                f"{live.engine.spec.describe()}"
            )

    def _drop_unused(self, model: Model) -> tuple[Version, ...]:
        used = set(map(id, model.in_use()))
        unused = tuple(version for version in model.loaded.values() if id(version) not in used)
        for version in unused:
            del model.loaded[version.label]
            if (route := self._routes.get((version.name, version.label))) is not None:
                _close(route, f"version {version.label} of model {version.name!r} was unloaded: ask for Models again")
        return unused


def signature(version: Version) -> Signature:
    """What a version takes and gives, of which a handle is a promise."""
    return version.info.inputs, version.info.outputs


def key_of(client: str) -> int:
    """The key of all clients of this name: the same on every server and at any time."""
    return int.from_bytes(hashlib.blake2b(client.encode(), digest_size=KEY_BYTES).digest(), "big")


def _close(route: Route, why: str) -> None:
    route.live = route.canary = route.shadow = None
    route.gone = Refusal(Code.UNKNOWN_MODEL, why)


def other_tensors(old: Version | None, live: Version) -> str:
    """What clients feel of a swap to a version with other inputs or outputs; nothing where they are the same."""
    if old is None or signature(old) == signature(live):
        return ""
    return (
        f"; it takes {live.engine.spec.describe()}, no more {old.engine.spec.describe()}: clients must send the new "
        "ones, and a canary or a shadow has ended"
    )
