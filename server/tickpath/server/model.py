"""A model in service: loaded, captured, warm, and run by an executor."""

import asyncio
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

from tickpath.engines import Engine, EngineFailedError, ModelRefusedError, TensorSpec
from tickpath.engines.load import load
from tickpath.graphs import BucketError, resolve_buckets
from tickpath.observe.records import ModelDescription
from tickpath.server.admission import InputRule, ModelRules, model_rules
from tickpath.server.config import ModelConfig
from tickpath.server.executor import Executor, InlineExecutor, ThreadExecutor, pick_kind
from tickpath.server.lane import Lane
from tickpath.wire import TENSORS_MAX, ModelInfo, TensorInfo


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
) -> ServedModel:
    """Read, check, capture every bucket, warm, and start the executor. Raises ModelRefusedError."""
    engine = load(Path(config.path), config.shapes, config.threads, thread_cpus)
    spec = engine.spec
    _check_tensor_count(config.path, engine)
    buckets = _buckets(config, engine)
    name = config.served_name
    rules = model_rules(name, buckets[-1], tuple(map(_input_rule, spec.inputs)))
    _check_frame_bytes(rules, frame_bytes_max)
    lane = _capture(config, engine, buckets)
    _warm(config, engine, lane)
    compute_ns = lane.compute_ns[-1]
    kind = pick_kind(config.executor, compute_ns)
    executor: Executor = (
        InlineExecutor(lane) if kind == "inline" else ThreadExecutor(lane, loop, name, config.queue_max, thread_cpus)
    )
    inputs, outputs = map(_tensor_info, spec.inputs), map(_tensor_info, spec.outputs)
    return ServedModel(
        handle=handle,
        info=ModelInfo(name, config.version, handle, tuple(inputs), tuple(outputs), buckets),
        rules=rules,
        executor=executor,
        description=ModelDescription(name, config.version, spec.runtime, spec.precision, spec.sha256, kind, buckets),
        engine=engine,
        compute_ns=compute_ns,
        locked=all(slot.locked for slot in lane.slots),
    )


def _buckets(config: ModelConfig, engine: Engine) -> tuple[int, ...]:
    try:
        return resolve_buckets(config.buckets, engine.spec.batched, engine.spec.rows_fixed)
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


def _capture(config: ModelConfig, engine: Engine, buckets: tuple[int, ...]) -> Lane:
    try:
        return Lane(engine, config.version, buckets, refuse_bad_values=config.non_finite == "refuse")
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


def _input_rule(spec: TensorSpec) -> InputRule:
    return InputRule(spec.name, spec.describe(), spec.row_bytes, spec.batch_axis is not None, spec.optional)


def request_bytes_max(rules: ModelRules) -> int:
    """The body of the largest request that the model can take: its tensors, and no more than 128 bytes around them
    and 5 each."""
    return sum(rules.bytes_at[rules.rows_max]) + 5 * len(rules.inputs) + 128
