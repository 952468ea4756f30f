"""A version of a model in service: prepared, and run by an executor."""

import asyncio
from collections.abc import Set
from dataclasses import dataclass
from typing import Final

from tickpath.engines import Engine
from tickpath.observe.records import VersionDescription
from tickpath.server.admission import ModelRules, counted
from tickpath.server.config import ModelConfig
from tickpath.server.device_lane import DeviceLane
from tickpath.server.dispatch import Batching
from tickpath.server.executor import INLINE_COMPUTE_NS_MAX, Executor, InlineExecutor, ThreadExecutor, pick_kind
from tickpath.server.feed_spec import FeedSpec
from tickpath.server.lane import DeviceLost, Lane
from tickpath.server.model import PreparedModel
from tickpath.server.polled_executor import PolledExecutor
from tickpath.wire import ModelInfo

PLACES: Final = {
    "inline": "inline on the loop",
    "thread": "on its own thread",
    "polled": "on the device, launched and polled by the loop",
}
"""How kinds of executors are told."""


@dataclass(frozen=True, slots=True)
class Version:
    """What sessions need of one version. `place` is its own in the records; its `info` has no handle yet, since a
    handle belongs to the way that leads here (see catalogue.py)."""

    place: int
    config: ModelConfig
    info: ModelInfo
    rules: ModelRules
    executor: Executor
    description: VersionDescription
    engine: Engine
    lane: Lane
    # Whether its answers may carry flags, or are kept to stand in for others: then a session looks at each.
    is_watched: bool = False
    feed: FeedSpec | None = None

    @property
    def refuses_non_finite(self) -> bool:
        return self.config.non_finite == "refuse"

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def label(self) -> str:
        """What answers and metrics call this version."""
        return self.info.version

    @property
    def compute_ns(self) -> int:
        """What a replay of the largest bucket takes: the median while warming up."""
        return self.lane.compute_ns[-1]

    @property
    def locked(self) -> bool:
        """Whether its buffers are locked in memory."""
        return all(slot.locked for slot in self.lane.slots)

    def describe(self) -> str:
        """For the log: what it takes and gives, and how it runs."""
        hint, most = self.engine.spec.batch_hint, counted(self.info.buckets[-1], "row")
        return (
            f"{self.engine.spec.describe()}; {self.description.engine}; "
            f"buckets {','.join(map(str, self.info.buckets))}; "
            f"{self.compute_ns / 1e3:.1f} µs at {most}, so it runs {PLACES[self.executor.kind]}"
            f"{'' if self.config.fallback == 'none' else f'; fallback: {self.config.fallback}'}"
            f"{f'; if its first axis is a batch, serve it with {hint}' if hint else ''}"
            f"{'' if self.locked else '; buffers not locked (memlock limit): they could be paged out'}"
        )


def start_version(
    prepared: PreparedModel,
    place: int,
    loop: asyncio.AbstractEventLoop,
    thread_cpus: Set[int] | None,
    device_lost: DeviceLost,
) -> Version:
    """Make the executor; from then on the lane is its own. `device_lost` is called on the lane's thread."""
    config, lane, spec = prepared.config, prepared.lane, prepared.engine.spec
    lane.device_lost = device_lost
    name, buckets = config.served_name, prepared.buckets
    executor = _executor(config, lane, loop, thread_cpus)
    return Version(
        place=place,
        config=config,
        info=ModelInfo(
            name, config.version, 0, prepared.inputs, prepared.outputs, buckets, prepared.feeds, spec.sha256
        ),
        rules=prepared.rules,
        executor=executor,
        description=VersionDescription(
            name,
            config.version,
            spec.runtime,
            spec.precision,
            spec.sha256,
            executor.kind,
            buckets,
            eager_buckets=spec.eager_buckets,
        ),
        engine=prepared.engine,
        lane=lane,
        feed=prepared.feed,
        is_watched=config.numeric.flags or config.fallback != "none",
    )


def _executor(
    config: ModelConfig, lane: Lane, loop: asyncio.AbstractEventLoop, thread_cpus: Set[int] | None
) -> Executor:
    name = config.served_name
    if isinstance(lane, DeviceLane):
        return PolledExecutor(lane, loop, name, config.queue_max)
    # The standby runs where the model does.
    asked = "thread" if config.batch_rows_max else config.executor
    if pick_kind(asked, max(each.compute_ns[-1] for each in (lane, lane.standby) if each is not None)) == "inline":
        return InlineExecutor(lane)
    batching = Batching(config.batch_rows_max, config.batch_us * 1000)
    at_once = asked == "auto" and lane.compute_ns[0] <= INLINE_COMPUTE_NS_MAX
    return ThreadExecutor(lane, loop, name, config.queue_max, thread_cpus, batching, at_once)
