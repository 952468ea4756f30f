"""`compile_model`: a model file goes in; a plan, or an optimised model, and its sidecar come out.

    read -> settle sizes -> unroll -> convert precision -> name what would hurt -> compare with the CPU engine -> build
    -> publish

What is compared with the CPU engine is the graph that the builder gets, run on the CPU; for TensorRT each tensor is
rounded as its precision will have it (the CPU has no kernels in bf16). What the GPU's kernels make of it only a GPU can
tell.
"""

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import onnx

from tickpath.engines.compile.building import run_build
from tickpath.engines.compile.hazards import check_graph, check_tensors
from tickpath.engines.compile.options import TENSORRT, CompileOptions, check_output, check_targets
from tickpath.engines.compile.plan_file import BadPlanError, publish, read_plan, sidecar_path, whole_file
from tickpath.engines.compile.sidecar import Recipe, Sidecar, TensorEntry
from tickpath.engines.compile.timing_cache import TimingCacheError, read_timing_cache, write_timing_cache
from tickpath.engines.compile.worker import BuildJob
from tickpath.engines.engine import Engine, EngineFailedError, ModelRefusedError
from tickpath.engines.onnx_model import OnnxModel, read_model
from tickpath.engines.onnxruntime import RUNTIME, load_onnx, optimise
from tickpath.engines.passes import TOLERANCES, Parity, measure_parity, refuse, rehearse, settle, to_precision, unroll
from tickpath.engines.probing import PATTERNS, fill
from tickpath.engines.spec import TensorSpec
from tickpath.engines.tensorrt import BuildSettings, Watcher, find_tensorrt


class Unwatched:
    """A Watcher for those who want none."""

    def started(self, phase: str, parent: str | None, steps: int) -> None:
        """A phase began."""

    def stepped(self, phase: str, step: int) -> bool:
        """Always goes on."""
        return True

    def finished(self, phase: str) -> None:
        """A phase is over."""


UNWATCHED: Final = Unwatched()


@dataclass(frozen=True, slots=True)
class Compiled:
    """What stands at `path` now. `fresh`: it was built, and not found there with the same key; `notes` are of this
    compile alone, those of the plan are in its sidecar."""

    path: Path
    sidecar: Sidecar
    fresh: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """One compile, with what has been found out about the model."""

    source: Path
    out: Path
    options: CompileOptions
    model: OnnxModel
    reference: Engine
    recipe: Recipe


def compile_model(
    source: Path,
    out: Path,
    options: CompileOptions,
    reference: Engine | None = None,
    watcher: Watcher = UNWATCHED,
    timing_cache: Path | None = None,
    force: bool = False,
) -> Compiled:
    """Compile `source` to `out`, unless that is there already, whole and of the same recipe. `reference`: the source in
    the CPU engine, where it is loaded already. Raises ModelRefusedError, in one line that begins with the file's name,
    BuildStoppedError."""
    check_output(out, options.engine)
    reference = reference or load_onnx(source, options.shapes)
    try:
        job = _job(source, out, options, reference)
        if timing_cache is not None and not _keeps_timing_cache(options.engine):
            raise ModelRefusedError(f"{job.recipe.runtime} keeps no timing cache: leave --timing-cache out")
        found, notes = _look(job)
        if found is not None and not force:
            return Compiled(out, found, fresh=False)
        sidecar, more = _compile(job, watcher, timing_cache)
    except ModelRefusedError as error:
        raise ModelRefusedError(f"{source}: {error}") from None
    except EngineFailedError as error:
        raise ModelRefusedError(f"{source}: it does not run as converted ({error})") from None
    return Compiled(out, sidecar, fresh=True, notes=(*notes, *more))


def _job(source: Path, out: Path, options: CompileOptions, reference: Engine) -> Job:
    model = read_model(source, options.shapes)
    spec = reference.spec
    if model.file.sha256 != spec.sha256:
        raise ModelRefusedError("the file changed while it was read: compile it again")
    runtime = _runtime(options)
    inputs = spec.inputs if options.engine not in TENSORRT else _given(spec.inputs)
    entries = [tuple(map(TensorEntry.of, side)) for side in (inputs, spec.outputs)]
    recipe = Recipe(spec.sha256, runtime, entries[0], entries[1], spec.rows_fixed, options)
    return Job(source, out, options, model, reference, recipe)


def _runtime(options: CompileOptions) -> str:
    """The runtime that will build. Raises ModelRefusedError where it is not there or can't do what is asked."""
    if options.engine not in TENSORRT:
        if options.targets:
            raise ModelRefusedError(f"{options.engine} runs on the CPU: leave --gpu out")
        if options.precision == "tf32":
            raise ModelRefusedError(f"{options.engine} has no TF32, which is a GPU's: use --precision fp32")
        return RUNTIME
    tensorrt = find_tensorrt(options.engine)
    check_targets(options.targets, tensorrt.targets, tensorrt.runtime)
    return tensorrt.runtime


def _given(inputs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """The inputs without those that have a default, which TensorRT takes for constants."""
    return tuple(tensor for tensor in inputs if not tensor.optional)


def _look(job: Job) -> tuple[Sidecar | None, tuple[str, ...]]:
    """What is there with this key; and what is wrong with what is there, if it is."""
    if not job.out.exists() and not sidecar_path(job.out).exists():
        return None, ()
    try:
        plan = read_plan(job.out)
    except BadPlanError as error:
        return None, (f"{error} (which was done)",)
    return (plan.sidecar if plan.sidecar.recipe.key == job.recipe.key else None), ()


def _compile(job: Job, watcher: Watcher, timing_cache: Path | None) -> tuple[Sidecar, tuple[str, ...]]:
    graph = _network(job)
    if job.options.engine in TENSORRT:
        notes = _check_for_tensorrt(job, graph)
        parity = _compare(job, rehearse(_straight(job), job.options.precision))
        return _build_plan(job, graph, parity, notes, watcher, timing_cache)
    content = optimise(graph.SerializeToString())
    parity = _compare(job, onnx.load_model_from_string(content))
    return _publish(job, content, parity, ()), ()


def _network(job: Job) -> onnx.ModelProto:
    """The graph that is compiled: sizes settled, weights within, straight, in the precision asked for."""
    return to_precision(_straight(job), job.options.precision)


def _straight(job: Job) -> onnx.ModelProto:
    """The graph in its own precision. Recurrent operators are the CPU engine's best; TensorRT makes loops of them."""
    model = settle(_whole(job), job.model.inputs.tensors, job.recipe.rows_fixed)
    return unroll(model) if job.options.engine in TENSORRT else model


def _whole(job: Job) -> onnx.ModelProto:
    """The model with its weights in it, which may have been in files beside it."""
    whole = onnx.ModelProto()
    whole.CopyFrom(job.model.file.model)
    onnx.load_external_data_for_model(whole, str(job.source.parent))
    if whole.ByteSize() > onnx.checker.MAXIMUM_PROTOBUF:
        raise ModelRefusedError("over 2 GB with its weights, more than a builder takes: use a smaller model")
    return whole


def _check_for_tensorrt(job: Job, graph: onnx.ModelProto) -> tuple[str, ...]:
    check_tensors("input", job.reference.spec.inputs)
    check_tensors("output", job.reference.spec.outputs)
    fixed = [tensor.name for tensor in job.reference.spec.inputs if tensor.optional]
    notes = [f"input {name!r} is fixed to its default, as TensorRT takes it for a constant" for name in fixed]
    return (*notes, *check_graph(graph))


def _compare(job: Job, graph: onnx.ModelProto) -> Parity:
    """How far the graph is from its source. Raises ModelRefusedError where that is too far."""
    with tempfile.TemporaryDirectory(prefix="tickpath-compile-") as folder:
        path = Path(folder) / "converted.onnx"
        path.write_bytes(graph.SerializeToString())
        candidate = load_onnx(path, job.options.shapes)
    parity = measure_parity(job.reference, candidate, job.options.buckets)
    candidate.close()
    refuse(parity, TOLERANCES[job.options.precision])
    return parity


def _build_plan(
    job: Job,
    graph: onnx.ModelProto,
    parity: Parity,
    notes: tuple[str, ...],
    watcher: Watcher,
    timing_cache: Path | None,
) -> tuple[Sidecar, tuple[str, ...]]:
    """Build, take what the build learnt into the timing cache, publish."""
    known, told = _timing_cache(job, timing_cache)
    with tempfile.TemporaryDirectory(prefix="tickpath-compile-") as folder, _part(job.out) as plan:
        model = Path(folder) / "network.onnx"
        model.write_bytes(graph.SerializeToString())
        build = BuildJob(job.options.engine, str(model), str(plan), _settings(job), known)
        done = run_build(build, watcher)
        content = plan.read_bytes()
    if timing_cache is not None and done.timing_cache:
        _write_timing_cache(timing_cache, job.recipe.runtime, done.timing_cache)
    return _publish(job, content, parity, (*notes, *done.notes)), told


def _keeps_timing_cache(engine: str) -> bool:
    return engine in TENSORRT and find_tensorrt(engine).keeps_timing_cache


def _timing_cache(job: Job, path: Path | None) -> tuple[bytes, tuple[str, ...]]:
    """What the builder may know from before, and what is wrong with the file, if it is."""
    if path is None:
        return b"", ()
    try:
        return read_timing_cache(path, job.recipe.runtime), ()
    except TimingCacheError as error:
        return b"", (f"{error}: it is left aside, and a new one written",)


def _write_timing_cache(path: Path, runtime: str, content: bytes) -> None:
    try:
        write_timing_cache(path, runtime, content)
    except OSError as error:
        raise ModelRefusedError(f"{path}: the timing cache can't be written: {error.strerror}") from None


def _settings(job: Job) -> BuildSettings:
    options = job.options
    inputs = [entry.spec() for entry in job.recipe.inputs]
    profiles = tuple({tensor.name: tensor.shape_at(bucket) for tensor in inputs} for bucket in options.buckets)
    return BuildSettings(
        profiles=profiles,
        tf32=options.precision == "tf32",
        targets=options.targets,
        optimization_level=options.optimization_level,
        timing_iterations=options.timing_iterations,
        aux_streams=options.aux_streams,
    )


@contextmanager
def _part(out: Path) -> Iterator[Path]:
    try:
        with whole_file(out) as name:
            yield name
    except OSError as error:
        raise ModelRefusedError(f"{out}: can't be written: {error.strerror}") from None


def _publish(job: Job, content: bytes, parity: Parity, notes: tuple[str, ...]) -> Sidecar:
    sidecar = Sidecar(
        recipe=job.recipe,
        plan_sha256=hashlib.sha256(content).hexdigest(),
        plan_bytes=len(content),
        patterns=tuple(_pattern(job.reference, bucket) for bucket in job.options.buckets),
        parity=parity,
        notes=notes,
    )
    try:
        publish(job.out, content, sidecar)
    except OSError as error:
        raise ModelRefusedError(f"{job.out}: can't be written: {error.strerror}") from None
    return sidecar


def _pattern(reference: Engine, rows: int) -> int:
    """The place in PATTERNS of the reference's sample."""
    sample = reference.sample(rows)
    for place, pattern in enumerate(PATTERNS):
        filled = [fill(tensor, pattern, rows, seed) for seed, tensor in enumerate(reference.spec.inputs)]
        if all(np.array_equal(one, other) for one, other in zip(sample, filled, strict=True)):
            return place
    raise AssertionError("the reference's sample is one of the patterns")
