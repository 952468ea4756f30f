"""Builds with TensorRT and TensorRT-RTX: the graph straight, in the precision asked for, and looked through for what
hurts on a device; then the builder's process.

What is compared with the CPU engine is the graph that the builder gets, run on the CPU with each tensor rounded as its
precision will have it (the CPU has no kernels in bf16). What the GPU's kernels make of it only a GPU can tell.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx

from tickpath.engines.compile.building import run_build
from tickpath.engines.compile.hazards import check_graph, check_tensors
from tickpath.engines.compile.job import Job, Made, compare_graph
from tickpath.engines.compile.plan_file import whole_file
from tickpath.engines.compile.source import read_graph
from tickpath.engines.compile.timing_cache import TimingCacheError, read_timing_cache, write_timing_cache
from tickpath.engines.compile.worker import BuildJob
from tickpath.engines.engine import ModelRefusedError
from tickpath.engines.passes import rehearse, to_precision, unroll
from tickpath.engines.tensorrt import BuildSettings, Watcher


def build_plan(job: Job, watcher: Watcher, timing_cache: Path | None) -> Made:
    """The plan. What the build learnt goes into the timing cache. Raises ModelRefusedError, BuildStoppedError."""
    straight = unroll(read_graph(job))  # recurrent operators become loops in TensorRT, and loops can't be captured
    graph = to_precision(straight, job.options.precision)
    notes = _check(job, graph)
    parity = compare_graph(job, rehearse(straight, job.options.precision))
    known, told = _timing_cache(job, timing_cache)
    with tempfile.TemporaryDirectory(prefix="tickpath-compile-") as folder, _part(job.out) as plan:
        model = Path(folder) / "network.onnx"
        model.write_bytes(graph.SerializeToString())
        done = run_build(BuildJob(job.options.engine, str(model), str(plan), _settings(job), known), watcher)
        content = plan.read_bytes()
    if timing_cache is not None and done.timing_cache:
        _write_timing_cache(timing_cache, job.recipe.runtime, done.timing_cache)
    return Made(content, parity, (*notes, *done.notes), told)


def _check(job: Job, graph: onnx.ModelProto) -> tuple[str, ...]:
    check_tensors("input", job.reference.spec.inputs)
    check_tensors("output", job.reference.spec.outputs)
    return (*job.defaults(), *check_graph(graph))


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
