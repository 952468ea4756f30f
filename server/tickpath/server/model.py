"""A model prepared to be served: loaded, checked, captured and warm."""

from collections.abc import Callable, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tickpath.engines import (
    DeviceEngine,
    Engine,
    EngineFailedError,
    EngineSpec,
    KnownModel,
    ModelRefusedError,
    TensorSpec,
)
from tickpath.engines.load import load, load_on_device, load_plan
from tickpath.graphs import BucketError, DeviceOptions, on_device, resolve_buckets
from tickpath.server.admission import ModelRules, model_rules
from tickpath.server.config import ModelConfig
from tickpath.server.cpu_source import SOURCE_FILE, load_source, runs_on_cpu, source_of
from tickpath.server.device_lane import DeviceLane
from tickpath.server.fallback import LAST_BYTES_MAX
from tickpath.server.feed_groups import capture_groups
from tickpath.server.feed_lane import FeedLane
from tickpath.server.feed_spec import FeedSpec, find_feed
from tickpath.server.lane import Lane
from tickpath.server.numeric_policy import misplaced_limits
from tickpath.wire import REPLY_BYTES_MAX, TENSORS_MAX, Flag, TensorInfo


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A model that is loaded, captured and warm: all of a load but the executor that runs it. `lane` belongs to whoever
    runs it next."""

    config: ModelConfig
    engine: Engine
    lane: Lane
    rules: ModelRules
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    buckets: tuple[int, ...]
    feed: FeedSpec | None

    @property
    def feeds(self) -> tuple[str, ...]:
        """The kinds of feeds that it keeps."""
        return () if self.feed is None else (self.feed.mode,)


def prepare_model(
    config: ModelConfig, thread_cpus: Set[int] | None, frame_bytes_max: int, known: KnownModel | None = None
) -> PreparedModel:
    """Read, check (unless this very content is `known`), capture every bucket, and warm. Raises ModelRefusedError,
    DeviceLostError."""
    engine = _load(config, thread_cpus, known)
    with ExitStack() as unless_prepared:
        unless_prepared.callback(engine.close)
        prepared = _prepare(config, engine, thread_cpus, frame_bytes_max)
        unless_prepared.pop_all()
    return prepared


def _prepare(config: ModelConfig, engine: Engine, thread_cpus: Set[int] | None, frame_bytes_max: int) -> PreparedModel:
    spec = engine.spec
    _check_tensor_count(config.path, engine)
    if (why := misplaced_limits(config.numeric, spec.outputs)) is not None:
        raise ModelRefusedError(f"{config.path}: {why}")
    feed = find_feed(config, spec)
    buckets = _buckets(config, engine, feed)
    if config.batch_rows_max:
        _check_batching(config, spec, buckets[-1])
    inputs, outputs = (tuple(map(_tensor_info, side)) for side in (spec.inputs, spec.outputs))
    rules = model_rules(config.served_name, buckets[-1], inputs)
    _check_frame_bytes(rules, frame_bytes_max)
    _check_reply_bytes(rules, outputs)
    if config.fallback == "last":
        _check_last_bytes(rules, outputs)
    standby = capture_standby(config, spec, buckets, thread_cpus) if config.fallback == "cpu" else None
    lane = capture_lane(config, engine, buckets, standby, feed=feed)
    _warm(config, engine, lane, feed)
    return PreparedModel(config, engine, lane, rules, inputs, outputs, buckets, feed)


def _load(config: ModelConfig, thread_cpus: Set[int] | None, known: KnownModel | None) -> Engine:
    def load_cpu(path: Path) -> Engine:
        return load(path, config.shapes, config.threads, thread_cpus, config.trust, known)

    path = Path(config.path)
    options = DeviceOptions(config.device_wait, config.device_memory, strict=config.device_graphs == "require")
    try:
        return on_device(_engine(path, config, load_cpu), options)
    except EngineFailedError as error:
        raise ModelRefusedError(f"{path}: {error}") from None


def _engine(path: Path, config: ModelConfig, load_cpu: Callable[[Path], Engine]) -> Engine | DeviceEngine:
    if path.suffix == ".plan":
        return load_plan(path, config.on_bad_plan, load_cpu)
    if config.device == "cuda":
        return load_on_device(path, config.shapes, config.trust)
    return load_cpu(path)


def _buckets(config: ModelConfig, engine: Engine, feed: FeedSpec | None) -> tuple[int, ...]:
    spec, asked = engine.spec, config.buckets
    if feed is not None and feed.staggered and asked is None:
        asked = tuple(sorted({1, feed.window - 1}))
    try:
        buckets = resolve_buckets(asked, spec.batched, spec.rows_fixed, spec.buckets)
    except BucketError as error:
        raise ModelRefusedError(f"{config.path}: {error}") from None
    if feed is not None and feed.states and (buckets[0] != 1 or (feed.staggered and buckets[-1] != feed.window - 1)):
        raise ModelRefusedError(
            f"{config.path}: its feeds need bucket 1{f' and, as the largest, {feed.window - 1}' * feed.staggered}; "
            f"it has {','.join(map(str, buckets))}: leave buckets out"
        )
    return buckets


def _check_batching(config: ModelConfig, spec: EngineSpec, rows_max: int) -> None:
    """Requests share a run only where every tensor has rows of its own for each, of which loading has shown that none
    depends on its neighbours."""
    whole = [t.name for t in (*spec.inputs, *spec.outputs) if t.batch_axis is None and not t.optional]
    if whole or spec.rows_fixed is not None:
        why = (
            f"{', '.join(whole)} has no batch axis" if whole else f"it was exported for exactly {spec.rows_fixed} rows"
        )
        raise ModelRefusedError(f"{config.path}: its requests can't share a run, since {why}: leave batch_rows_max out")
    if not 2 <= config.batch_rows_max <= rows_max:
        raise ModelRefusedError(
            f"{config.path}: batch_rows_max is {config.batch_rows_max}, and can be 2 to {rows_max}, the largest bucket"
        )


def _check_tensor_count(path: str, engine: Engine) -> None:
    count = max(len(engine.spec.inputs), len(engine.spec.outputs))
    if count > TENSORS_MAX:
        raise ModelRefusedError(f"{path}: {count} inputs or outputs, the protocol carries {TENSORS_MAX}: join some")


def _check_frame_bytes(rules: ModelRules, frame_bytes_max: int) -> None:
    """Before anything is made for its buckets: the largest could hold a machine up for hours."""
    largest = request_bytes_max(rules)
    if largest > frame_bytes_max:
        raise ModelRefusedError(
            f"{rules.model}: a request of {rules.rows_max} rows is {largest} bytes, frame_bytes_max is "
            f"{frame_bytes_max}: give smaller buckets, or raise it"
        )


def _check_reply_bytes(rules: ModelRules, outputs: Sequence[TensorInfo]) -> None:
    """Before anyone asks: a client ends a session in which more than it takes is announced."""
    largest = reply_bytes_max(outputs, rules.rows_max)
    if largest > REPLY_BYTES_MAX:
        raise ModelRefusedError(
            f"{rules.model}: a reply of {rules.rows_max} rows is {largest} bytes, clients take {REPLY_BYTES_MAX}: "
            "give smaller buckets, or let the model answer with less"
        )


def _check_last_bytes(rules: ModelRules, outputs: Sequence[TensorInfo]) -> None:
    """Before anyone relies on it: what is too large to be kept can't stand in for anything."""
    largest = reply_bytes_max(outputs, rules.rows_max)
    if largest > LAST_BYTES_MAX:
        raise ModelRefusedError(
            f'{rules.model}: fallback = "last" keeps an answer for each session, and one of {rules.rows_max} rows is '
            f"{largest} bytes, {LAST_BYTES_MAX} is the most: give smaller buckets, or no fallback"
        )


def capture_standby(
    config: ModelConfig, spec: EngineSpec, buckets: tuple[int, ...], cpus: Set[int] | None
) -> Lane | None:
    """The source of a model that takes and gives what `spec` says, on the CPU engine, captured and warm. None where the
    model is on the CPU already, since its plan was bad. Raises ModelRefusedError."""
    path = Path(config.path)
    if runs_on_cpu(spec):
        if path.suffix == ".plan":
            return None
        raise ModelRefusedError(
            f'{path}: fallback = "cpu" is for models on another device, this one runs on the CPU engine and would only '
            'fail again: choose "last" or "none"'
        )
    if (source := source_of(path)) is None:
        raise ModelRefusedError(
            f'{path}: fallback = "cpu" needs the .onnx file it was compiled from: put it beside it as {SOURCE_FILE}'
        )
    engine = load_source(source, config, spec, cpus)
    lane = capture_lane(config, engine, buckets, mark=int(Flag.CPU_ANSWER))
    _warm(config, engine, lane, None)
    return lane


def capture_lane(
    config: ModelConfig,
    engine: Engine,
    buckets: tuple[int, ...],
    standby: Lane | None = None,
    mark: int = 0,
    feed: FeedSpec | None = None,
) -> Lane:
    """Buffers and graphs for every bucket; `standby` and `mark` as a Lane's. Raises ModelRefusedError."""
    has_states = feed is not None and bool(feed.states)
    polled = config.device_wait == "poll" and not runs_on_cpu(engine.spec)
    if has_states and polled:
        raise ModelRefusedError(
            f"{config.path}: its feeds have states, which are put in and taken out around each run: choose device_wait "
            '"spin" or "block"'
        )
    try:
        if polled:
            return DeviceLane(engine, config, buckets)
        return (FeedLane if has_states else Lane)(engine, config, buckets, standby, mark)
    except (EngineFailedError, ModelRefusedError) as error:
        raise ModelRefusedError(f"{config.path}: {error}") from None
    except (OSError, MemoryError):
        raise ModelRefusedError(
            f"{config.path}: no memory for buckets {','.join(map(str, buckets))}: give fewer or smaller ones"
        ) from None


def _warm(config: ModelConfig, engine: Engine, lane: Lane, feed: FeedSpec | None) -> None:
    try:
        lane.warm([[array.tobytes() for array in engine.sample(slot.bucket)] for slot in lane.slots])
        if feed is not None and isinstance(lane, FeedLane):
            lane.keep_feeds(feed, capture_groups(engine, feed, lane.slots[-1]))
    except ModelRefusedError as error:
        raise ModelRefusedError(f"{config.path}: {error}") from None
    except EngineFailedError as error:
        raise ModelRefusedError(f"{config.path}: it does not run on its own sample ({error})") from None
    except MemoryError:
        raise ModelRefusedError(f"{config.path}: no memory for its feeds: lower feed.together") from None


def _tensor_info(spec: TensorSpec) -> TensorInfo:
    axis = -1 if spec.batch_axis is None else spec.batch_axis
    return TensorInfo(spec.name, spec.dtype.name, spec.shape, axis, spec.optional)


def request_bytes_max(rules: ModelRules) -> int:
    """The body of the largest request that the model can take: its tensors, and no more than 128 bytes around them
    and 5 each."""
    return sum(rules.bytes_at[rules.rows_max]) + 5 * len(rules.inputs) + 128


def reply_bytes_max(outputs: Sequence[TensorInfo], rows: int) -> int:
    """The body of the reply to a request of so many rows: its tensors, and no more than 192 bytes around them (a
    version has 64) and 5 each."""
    return sum(tensor.bytes_at(rows) + 5 for tensor in outputs) + 192
