"""A model in service: loaded, captured, warm, and run by an executor."""

import asyncio
from collections.abc import Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tickpath.engines import Engine, EngineFailedError, ModelRefusedError, TensorSpec
from tickpath.engines.load import load, load_plan
from tickpath.graphs import BucketError, DeviceOptions, on_device, resolve_buckets
from tickpath.observe.records import ModelDescription
from tickpath.server.admission import ModelRules, model_rules
from tickpath.server.config import ModelConfig
from tickpath.server.executor import Executor, InlineExecutor, ThreadExecutor, pick_kind
from tickpath.server.lane import DeviceLost, Lane
from tickpath.wire import REPLY_BYTES_MAX, TENSORS_MAX, ModelInfo, TensorInfo


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What sessions need of one model. `handle` is its place in the server's list and in the records."""

    handle: int
    info: ModelInfo
    rules: ModelRules
    executor: Executor
    description: ModelDescription
    engine: Engine
    compute_ns: int  # median replay of the largest bucket while warming up
    locked: bool  # whether its buffers are locked in memory


def load_model(
    config: ModelConfig,
    handle: int,
    loop: asyncio.AbstractEventLoop,
    thread_cpus: Set[int] | None,
    frame_bytes_max: int,
    device_lost: DeviceLost,
) -> ServedModel:
    """Read, check, capture every bucket, warm, and start the executor. Raises ModelRefusedError, DeviceLostError."""
    engine = _load(config, thread_cpus)
    with ExitStack() as unless_served:
        unless_served.callback(engine.close)
        model = _serve(engine, config, handle, loop, thread_cpus, frame_bytes_max, device_lost)
        unless_served.pop_all()
    return model


def _serve(
    engine: Engine,
    config: ModelConfig,
    handle: int,
    loop: asyncio.AbstractEventLoop,
    thread_cpus: Set[int] | None,
    frame_bytes_max: int,
    device_lost: DeviceLost,
) -> ServedModel:
    spec = engine.spec
    _check_tensor_count(config.path, engine)
    buckets = _buckets(config, engine)
    name = config.served_name
    inputs, outputs = (tuple(map(_tensor_info, side)) for side in (spec.inputs, spec.outputs))
    rules = model_rules(name, buckets[-1], inputs)
    _check_frame_bytes(rules, frame_bytes_max)
    _check_reply_bytes(rules, outputs)
    lane = _capture(config, engine, buckets, device_lost)
    _warm(config, engine, lane)
    spec = engine.spec  # capturing has told how it runs
    compute_ns = lane.compute_ns[-1]
    kind = pick_kind(config.executor, compute_ns)
    executor: Executor = (
        InlineExecutor(lane) if kind == "inline" else ThreadExecutor(lane, loop, name, config.queue_max, thread_cpus)
    )
    return ServedModel(
        handle=handle,
        info=ModelInfo(name, config.version, handle, inputs, outputs, buckets),
        rules=rules,
        executor=executor,
        description=ModelDescription(name, config.version, spec.runtime, spec.precision, spec.sha256, kind, buckets),
        engine=engine,
        compute_ns=compute_ns,
        locked=all(slot.locked for slot in lane.slots),
    )


def _load(config: ModelConfig, thread_cpus: Set[int] | None) -> Engine:
    def load_cpu(path: Path) -> Engine:
        return load(path, config.shapes, config.threads, thread_cpus, config.trust)

    path = Path(config.path)
    options = DeviceOptions(config.device_wait, config.device_memory, strict=config.device_graphs == "require")
    try:
        engine = load_plan(path, config.on_bad_plan, load_cpu) if path.suffix == ".plan" else load_cpu(path)
        return on_device(engine, options)
    except EngineFailedError as error:
        raise ModelRefusedError(f"{path}: {error}") from None


def _buckets(config: ModelConfig, engine: Engine) -> tuple[int, ...]:
    try:
        spec = engine.spec
        return resolve_buckets(config.buckets, spec.batched, spec.rows_fixed, spec.buckets)
    except BucketError as error:
        raise ModelRefusedError(f"{config.path}: {error}") from None


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


def _capture(config: ModelConfig, engine: Engine, buckets: tuple[int, ...], device_lost: DeviceLost) -> Lane:
    try:
        return Lane(engine, config.version, buckets, config.non_finite == "refuse", device_lost)
    except (EngineFailedError, ModelRefusedError) as error:
        raise ModelRefusedError(f"{config.path}: {error}") from None
    except (OSError, MemoryError):
        raise ModelRefusedError(
            f"{config.path}: no memory for buckets {','.join(map(str, buckets))}: give fewer or smaller ones"
        ) from None


def _warm(config: ModelConfig, engine: Engine, lane: Lane) -> None:
    try:
        lane.warm([[array.tobytes() for array in engine.sample(slot.bucket)] for slot in lane.slots])
    except ModelRefusedError as error:
        raise ModelRefusedError(f"{config.path}: {error}") from None
    except EngineFailedError as error:
        raise ModelRefusedError(f"{config.path}: it does not run on its own sample ({error})") from None


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
