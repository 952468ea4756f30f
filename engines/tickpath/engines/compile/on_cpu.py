"""Builds for the CPU: each runs here, so what is compared with the source is what will serve."""

import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import onnx

from tickpath.engines.compile.job import Job, Made, compare, compare_graph
from tickpath.engines.compile.options import CompileOptions
from tickpath.engines.compile.source import read_graph
from tickpath.engines.engine import ModelRefusedError
from tickpath.engines.onnxruntime import RUNTIME, optimise
from tickpath.engines.passes import int64_constants_that_clamp, to_precision

SERVED_TRUSTED: Final = "it holds machine code, for CPUs like this one: serve it with --trust (trust = true)"


def runtime(source: Path, options: CompileOptions) -> str:
    """The runtime that will build. Raises ModelRefusedError where it is not there or can't do what is asked."""
    if options.engine == "onnxruntime":
        return RUNTIME
    if not find_spec(options.engine):
        raise ModelRefusedError(f"{options.engine} is not installed: pip install 'tickpath[{options.engine}]'")
    if options.engine == "openvino":
        from tickpath.engines import openvino

        openvino.check_precision(options.precision)
        return openvino.RUNTIME
    _check_for_torch(source, options)
    from tickpath.engines.torch_exported import RUNTIME as TORCH

    return TORCH


def build(job: Job) -> Made:
    """What the job's engine makes of its source. Raises ModelRefusedError, EngineFailedError."""
    builders = {"onnxruntime": _optimise, "openvino": _convert, "torch": _package}
    return builders[job.options.engine](job)


def _optimise(job: Job) -> Made:
    """An ONNX file whose graph optimisations are done."""
    content = optimise(to_precision(read_graph(job), job.options.precision).SerializeToString())
    return Made(content, compare_graph(job, onnx.load_model_from_string(content)))


def _convert(job: Job) -> Made:
    """OpenVINO's own form of the model; its precision is chosen as it is loaded."""
    from tickpath.engines.openvino import convert, engine_of

    graph = read_graph(job)
    content = convert(graph.SerializeToString())
    parity = compare(job, engine_of(content, job.recipe, job.patterns()))
    return Made(content, parity, (*job.defaults(), *int64_constants_that_clamp(graph)))


def _package(job: Job) -> Made:
    """The program with machine code beside it."""
    from tickpath.engines.torch_exported import load_exported
    from tickpath.engines.torch_package import package

    # Any number of rows will do, and the exporter's least for an open one is 2.
    rows = job.recipe.rows_fixed or (2 if job.reference.spec.batched else 1)
    content = package(job.source, job.reference.sample(rows), job.options.trusted)
    with tempfile.TemporaryDirectory(prefix="tickpath-compile-") as folder:
        path = Path(folder) / "package.pt2"
        path.write_bytes(content)
        candidate = load_exported(path, job.options.shapes, trusted=True)  # it was made here
        return Made(content, compare(job, candidate), (SERVED_TRUSTED,))


def _check_for_torch(source: Path, options: CompileOptions) -> None:
    if source.suffix != ".pt2":
        raise ModelRefusedError(
            "torch compiles .pt2 files, and nothing makes one of an .onnx file: "
            "use onnxruntime or openvino, or export the model with torch.export.save"
        )
    if options.precision != "fp32":
        raise ModelRefusedError(
            f"torch compiles a program in its own precision, not in {options.precision}: export it in that one"
        )
