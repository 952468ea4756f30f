"""Which versions a running core serves, changed by one operation at a time while requests go on.

A load: read what is to be served -> nothing to do where the content is the same -> prove, capture, warm (loader.py) ->
compare with what the live version answered lately -> warm through a socket -> swap, between two requests. What fails
before the swap changes nothing. What nothing leads to any more is retired when its last request has been answered.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence, Set
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from time import localtime, monotonic_ns
from typing import Final

import msgspec

from tickpath.engines import DeviceLostError, ModelRefusedError
from tickpath.observe.records import VERSIONS_MAX, EventKind, GlobalCell, VersionCell
from tickpath.server.catalogue import Canary, CatalogueError, other_tensors, signature
from tickpath.server.comparison import Change, compare_answers
from tickpath.server.config import ConfigError, ModelConfig
from tickpath.server.content import ContentDigests
from tickpath.server.gap_watch import GapWatch
from tickpath.server.lane import DeviceLost
from tickpath.server.loader import Loader
from tickpath.server.model import PreparedModel, prepare_model
from tickpath.server.places import Place, Places, PlacesFullError
from tickpath.server.quiet import Quiet
from tickpath.server.service import Service
from tickpath.server.shadow import ShadowRun
from tickpath.server.source import ModelSource
from tickpath.server.status import ModelStatus, status_of
from tickpath.server.verification import Tolerance, verify
from tickpath.server.version import Version, start_version
from tickpath.server.warmup import warm_network_path

log = logging.getLogger(__name__)

# How often a retired version is looked at, whether its last request has been answered.
RETIRE_POLL_S: Final = 0.01


class DeploymentError(Exception):
    """The change was not made. The text says why and what to do."""


class QuietError(DeploymentError):
    """It is quiet. The change may be made later."""


REFUSALS: Final = (CatalogueError, ConfigError, DeploymentError, ModelRefusedError, OSError, PlacesFullError)
"""Why a change is not made, each with a text for whoever asked."""


@dataclass(frozen=True, slots=True)
class Loading:
    """A version that is loaded, and what is to be told of it."""

    version: Version
    news: str

    def told(self, what: str) -> str:
        return f"model {self.version.name}: version {self.version.label} {what}; {self.news}"


class Deployment:
    """Changes the catalogue. All on the loop's thread; what takes time is the loader's."""

    def __init__(
        self,
        service: Service,
        source: ModelSource,
        loader: Loader,
        cpus: Set[int] | None,
        device_lost: DeviceLost,
    ) -> None:
        self.quiet = Quiet(service.config.quiet_hours)
        self._service = service
        self._catalogue = service.catalogue
        self._records = service.records
        self._source = source
        self._loader = loader
        self._cpus = cpus
        self._device_lost = device_lost
        self._digests = ContentDigests()
        self._places = Places()
        self._shadows: list[ShadowRun] = []
        self._changing = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()
        self.started_with: dict[str, str] = {}
        """What each model's files held when it was loaded at the start, as `digests` tells it."""

    def start(self, configs: Sequence[ModelConfig]) -> None:
        """Load what is served from the start, before anyone is. Raises one of REFUSALS."""
        for config in configs:
            place = self._places.find(config, self._digests.of(config))
            marks = (self.started_with.get(config.served_name), _mark(config, place.digest))
            self.started_with[config.served_name] = " ".join(filter(None, marks))
            prepared = prepare_model(config, self._cpus, self._service.config.frame_bytes_max)
            verify(config, prepared.engine, prepared.lane.slots)
            version = self._started(prepared, place)
            self._add(version, place)
            log.info("serving %s version %s: %s", version.name, version.label, version.describe())
            if config.live:
                self._catalogue.make_live(version)
            else:
                self._catalogue.list_beside(version)
        self._settle()

    # -- what an operator may ask; each raises one of REFUSALS and says what it did --

    async def reload(self, name: str | None = None) -> list[str]:
        """Serve what the files of this model (None: of each) now hold. Of several models, those that can be are
        reloaded before the others are refused."""
        async with self._change():
            told, refused = [], []
            for each in (name,) if name is not None else await self._loader.run(self._source.names):
                try:
                    told += await self._reload(each)
                except REFUSALS as error:
                    self._failed(error)
                    refused.append(str(error))
            if refused:
                others = ("the others are as their files say",) if told else ()
                raise DeploymentError("; ".join((*refused, *others)))
            return told

    async def load(self, name: str, label: str) -> str:
        """Have this version of a model ready beside the live one, until it is unloaded."""
        async with self._change():
            try:
                config = await self._loader.run(lambda: self._source.read_version(name, label))
                with self._gap_noted(name):
                    loading = await self._load(config)
            except REFUSALS as error:
                self._failed(error)
                raise
            self._catalogue.keep(loading.version)
            unused = self._catalogue.make_live(loading.version) if self._catalogue.live(name) is None else ()
            self._settle(unused)
            return loading.told("is loaded")

    async def unload(self, name: str, label: str | None = None) -> str:
        """Have this version, or the whole model, answer nobody."""
        async with self._change():
            if label is None:
                self._settle(self._catalogue.unload_model(name))
                return f"model {name}: unloaded"
            self._settle(self._catalogue.unload_version(self._catalogue.version(name, label)))
            return f"model {name}: version {label} is unloaded"

    async def rollback(self, name: str) -> str:
        """Have the version that was live before answer again, at once: while another is being loaded, and while it is
        quiet."""
        old = self._catalogue.live(name)
        unused = self._catalogue.rollback(name)
        live = self._catalogue.live(name)
        assert live is not None
        self._records.add_version(live.place, VersionCell.RELOADS)
        self._settle(unused)
        told = f"model {name}: version {live.label} is live again{other_tensors(old, live)}"
        log.info("%s", told)
        return told

    async def canary(self, name: str, label: str | None, share: float) -> str:
        """Have a loaded version answer a share (0 to 1) of the clients; None: the live one answers all. At once."""
        canary = None if label is None else Canary(self._catalogue.version(name, label), share)
        self._settle(self._catalogue.set_canary(name, canary))
        if canary is None:
            return f"model {name}: no canary"
        keys = [session.key for session in self._service.sessions if session.key]
        taken = f"{sum(map(canary.takes, keys))} of {len(keys)} that are connected"
        return f"model {name}: version {label} answers {share * 100:.6g} % of the clients, by their names: {taken}"

    async def shadow(self, name: str, label: str | None) -> str:
        """Have a loaded version compute what is answered, and compare; None: none does."""
        async with self._change():
            if label is None:
                self._settle(self._catalogue.set_shadow(name, None))
                return f"model {name}: no shadow"
            version = self._catalogue.version(name, label)
            run = await self._loader.run(lambda: ShadowRun(version, self._records, self._cpus))
            self._shadows.append(run)
            unused: Sequence[Version] = ()
            try:
                unused = self._catalogue.set_shadow(name, run)
            finally:
                self._settle(unused)
            return f"model {name}: version {label} computes what is answered"

    @property
    def versions(self) -> tuple[Version, ...]:
        """All that are loaded."""
        return self._catalogue.versions

    @property
    def is_changing(self) -> bool:
        """Whether something is being loaded or unloaded."""
        return self._changing.locked()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing may be loaded or unloaded now."""
        now = localtime()
        return self.quiet.holds(now.tm_hour * 60 + now.tm_min)

    def status(self) -> tuple[ModelStatus, ...]:
        """What is served, model by model."""
        return tuple(status_of(self._catalogue.model(name)) for name in self._catalogue.names)

    async def digests(self) -> dict[str, str]:
        """What each model's files hold now: a digest, or why they can't be read. Raises ConfigError where there is no
        telling which models there are."""
        return await self._loader.run(self._read_digests)

    def close(self) -> None:
        """The end: nothing is loaded any more, and what runs ends, all of it even where some of it fails."""
        self._loader.close()
        versions = self._catalogue.versions
        with ExitStack() as stack:  # the last is done first
            for version in versions:
                stack.callback(version.engine.close)
                stack.callback(version.executor.join)
            for version in versions:
                stack.callback(version.executor.close)
            for run in self._shadows:
                stack.callback(run.join)
            for run in self._shadows:
                stack.callback(run.close)

    # -- how it is done --

    @asynccontextmanager
    async def _change(self) -> AsyncIterator[None]:
        """One change at a time, and none while it is quiet."""
        async with self._changing:
            if self.is_quiet:
                raise QuietError(
                    "it is quiet: nothing is loaded or unloaded now (quiet_hours of the configuration, or `tickpath "
                    "quiet on`); lift it with `tickpath quiet off`"
                )
            yield

    async def _reload(self, name: str) -> list[str]:
        """Load what is new of one model, and make live what is to be."""
        told, beside = [], set()
        for config in await self._loader.run(lambda: self._source.read(name)):
            with self._gap_noted(name):
                loading = await self._load(config)
                told.append(self._made_live(loading) if config.live else self._listed(loading))
            if not config.live:
                beside.add(loading.version.label)
        self._settle(self._catalogue.list_only(name, beside))
        return told

    @contextmanager
    def _gap_noted(self, name: str) -> Iterator[None]:
        """Note the longest time that the loop was away during a load, whatever came of it, with the version that is
        live after it."""
        watch, start_ns, kind = GapWatch(self._service.loop), monotonic_ns(), EventKind.LOAD_FAILED
        try:
            yield
            kind = EventKind.RELOAD
        finally:
            gap_ns = watch.stop()
            if (live := self._catalogue.live(name)) is not None:
                self._records.set_version(live.place, VersionCell.RELOAD_GAP_NS, gap_ns)
            self._records.event(kind, start_ns, monotonic_ns(), VERSIONS_MAX if live is None else live.place)

    async def _load(self, config: ModelConfig) -> Loading:
        """The version of this configuration: as it is, where it is loaded already with the same content."""
        place = self._places.find(config, await self._loader.run(lambda: self._digests.of(config)))
        same = next((version for version in self._catalogue.versions if version.place == place.index), None)
        if same is not None:
            return Loading(same, "it was loaded already, with this content")
        try:
            loaded = await self._loader.load(msgspec.structs.replace(config, version=place.label))
        except DeviceLostError as error:
            self._device_lost(error)
            raise DeploymentError(f"the device is lost, so the server ends: {error}") from None
        try:
            await self._check_unchanged(config, place)
            change = await self._compare(loaded.prepared)
        except (DeploymentError, OSError):
            await self._loader.discard(loaded.prepared)
            raise
        version = self._started(loaded.prepared, place)
        try:
            await warm_network_path(self._service, [version])
        except OSError:  # no descriptor is left, say
            await self._loader.retire(version)
            raise
        self._add(version, place)
        news = f"verified by {loaded.proven.verified.describe()}"
        return Loading(version, f"{news}; {change.describe()}" if change else news)

    async def _check_unchanged(self, config: ModelConfig, place: Place) -> None:
        """What was loaded is what the place is for. Raises DeploymentError, OSError."""
        if await self._loader.run(lambda: self._digests.of(config)) != place.digest:
            raise DeploymentError(
                f"{config.path}: its folder changed while it was loaded: reload once it is whole, or add versions by "
                "renaming"
            )

    async def _compare(self, prepared: PreparedModel) -> Change | None:
        """The new version's answers to what the live one answered lately. None: they can't be compared. Raises
        DeploymentError where they differ by more than the model allows."""
        config = prepared.config
        name, max_change = config.served_name, config.max_change if config.live else None
        live = self._catalogue.live(name)
        if live is None:
            return None
        if signature(live) != (prepared.inputs, prepared.outputs):
            if max_change is not None:
                raise DeploymentError(
                    f"model {name!r}: version {config.version} is {prepared.engine.spec.describe()}, the live one "
                    f"{live.engine.spec.describe()}: max_change can't be judged; take it out, or load it beside"
                )
            return None
        answered = live.lane.recent.all()
        tolerance = Tolerance(rtol=max_change or 0.0)
        change = await self._loader.run(
            lambda: compare_answers(prepared.lane, prepared.engine.spec.outputs, answered, tolerance)
        )
        if max_change is not None and change.rel_max > max_change:
            raise DeploymentError(
                f"model {name!r}: version {config.version} answers otherwise than max_change = {max_change:g} allows: "
                f"{change.describe()}"
            )
        return change

    def _started(self, prepared: PreparedModel, place: Place) -> Version:
        return start_version(prepared, place.index, self._service.loop, self._cpus, self._device_lost)

    def _add(self, version: Version, place: Place) -> None:
        self._places.take(place, version)
        self._catalogue.add(version)
        self._service.make_room(version)

    def _listed(self, loading: Loading) -> str:
        self._catalogue.list_beside(loading.version)
        self._settle()
        return loading.told("is loaded")

    def _made_live(self, loading: Loading) -> str:
        """The swap."""
        version, old = loading.version, self._catalogue.live(loading.version.name)
        if old is version:
            return f"model {version.name}: version {version.label} is live, nothing has changed"
        unused = self._catalogue.make_live(version)
        self._records.add_version(version.place, VersionCell.RELOADS)
        self._settle(unused)
        told = loading.told(f"is live, after {old.label}" if old else "is live") + other_tensors(old, version)
        log.info("%s", told)
        return told

    def _settle(self, unused: Sequence[Version] = ()) -> None:
        """After a change: say what there is, and end what nothing leads to."""
        self._places.describe(self._catalogue, self._records)
        wanted = self._catalogue.shadows
        for run in [run for run in self._shadows if run not in wanted]:
            self._shadows.remove(run)
            run.close()
            # On the loader's one thread this comes before its version is freed.
            self._begin(self._loader.run(run.join))
        for version in unused:
            self._begin(self._retire(version))

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = self._service.loop.create_task(work)
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _retire(self, version: Version) -> None:
        while not version.executor.idle():
            await asyncio.sleep(RETIRE_POLL_S)
        await self._loader.retire(version)
        self._digests.forget(version.config)

    def _read_digests(self) -> dict[str, str]:
        return {name: self._read_digest(name) for name in self._source.names()}

    def _read_digest(self, name: str) -> str:
        try:
            return " ".join(_mark(config, self._digests.of(config)) for config in self._source.read(name))
        except (ConfigError, OSError) as error:
            return str(error)

    def _failed(self, error: Exception) -> None:
        self._records.add(GlobalCell.LOADS_FAILED)
        log.warning("%s", error)


def _mark(config: ModelConfig, digest: str) -> str:
    """A version of a model, as far as it decides whether there is something new."""
    return f"{config.live} {digest}"
