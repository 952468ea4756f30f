"""The .onnx or .pt2 file that a compiled model was made from, on its CPU engine: what it is verified by, and what
stands by for it."""

from collections.abc import Set
from pathlib import Path
from typing import Final

from tickpath.engines import Engine, EngineSpec, ModelRefusedError
from tickpath.engines.load import load
from tickpath.engines.source_file import source_beside
from tickpath.server.config import ModelConfig

# The source of a compiled model, beside it.
SOURCE_FILE: Final = "source.onnx"
CPU_RUNTIME: Final = "onnxruntime"


def runs_on_cpu(spec: EngineSpec) -> bool:
    """Whether a model is on the CPU engine already."""
    return spec.runtime.startswith(CPU_RUNTIME)


def source_of(path: Path) -> Path | None:
    """The source of the model in this file, if there is one: an .onnx file itself, or what stands beside another."""
    if path.suffix == ".onnx":
        return path if path.is_file() else None
    return source_beside(path)


def load_source(source: Path, config: ModelConfig, spec: EngineSpec, cpus: Set[int] | None = None) -> Engine:
    """The source on the CPU engine. `spec`: of the compiled model, which takes and gives the same. Raises
    ModelRefusedError where it does not."""
    engine = load(source, config.shapes, config.threads, cpus, config.trust)
    if [t.describe() for t in engine.spec.inputs] != [t.describe() for t in spec.inputs]:
        raise ModelRefusedError(
            f"{source}: the compiled model is {spec.describe()}, its source {engine.spec.describe()}: compile it again"
        )
    return engine
