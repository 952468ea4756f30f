"""One compile: what goes in, what has come out, and how the two are compared."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from tickpath.engines.compile.options import CompileOptions
from tickpath.engines.compile.sidecar import Recipe
from tickpath.engines.engine import Engine
from tickpath.engines.onnxruntime import load_onnx
from tickpath.engines.passes import TOLERANCES, Parity, measure_parity, refuse
from tickpath.engines.probing import PATTERNS, fill


@dataclass(frozen=True, slots=True)
class Job:
    """One compile, with what has been found out about the model. `reference`: the source in its CPU engine."""

    source: Path
    out: Path
    options: CompileOptions
    reference: Engine
    recipe: Recipe

    def defaults(self) -> tuple[str, ...]:
        """What is to be told of inputs that the builder takes for constants."""
        asked = {entry.name for entry in self.recipe.inputs}
        fixed = [tensor.name for tensor in self.reference.spec.inputs if tensor.name not in asked]
        return tuple(
            f"input {name!r} is fixed to its default, which the builder takes for a constant" for name in fixed
        )

    def patterns(self) -> tuple[int, ...]:
        """For each bucket the place in PATTERNS of the reference's sample."""
        return tuple(_pattern(self.reference, bucket) for bucket in self.options.buckets)


@dataclass(frozen=True, slots=True)
class Made:
    """What a builder has made of a job. `notes` are of the file, for its sidecar; `told` of this compile alone."""

    content: bytes
    parity: Parity
    notes: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


def compare(job: Job, candidate: Engine) -> Parity:
    """How far it is from the source. Closes it. Raises ModelRefusedError where that is too far, EngineFailedError."""
    try:
        parity = measure_parity(job.reference, candidate, job.options.buckets)
    finally:
        candidate.close()
    precision = job.options.precision
    advice = "use another --engine" if precision == "fp32" else "use a wider --precision"
    refuse(parity, TOLERANCES[precision], advice)
    return parity


def compare_graph(job: Job, graph: onnx.ModelProto) -> Parity:
    """The same of an ONNX graph, on the CPU."""
    with tempfile.TemporaryDirectory(prefix="tickpath-compile-") as folder:
        path = Path(folder) / "converted.onnx"
        path.write_bytes(graph.SerializeToString())
        candidate = load_onnx(path, job.options.shapes)
    return compare(job, candidate)


def _pattern(reference: Engine, rows: int) -> int:
    sample: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.generic]]] = reference.sample(rows)
    for place, pattern in enumerate(PATTERNS):
        filled = [fill(tensor, pattern, rows, seed) for seed, tensor in enumerate(reference.spec.inputs)]
        if all(np.array_equal(one, other) for one, other in zip(sample, filled, strict=True)):
            return place
    raise AssertionError("the reference's sample is one of the patterns")
