"""Loads a model file with the engine for its kind."""

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Literal

from tickpath.engines.engine import Engine, ModelRefusedError
from tickpath.engines.model_file import FORMATS, check_file
from tickpath.engines.spec import EngineSpec


def load(
    path: Path,
    shapes: Mapping[str, tuple[int | Literal["N"], ...]] | None = None,
    threads: int = 1,
    cpus: Set[int] | None = None,
    proven: EngineSpec | None = None,
) -> Engine:
    """The engine for this file, chosen by its suffix. `shapes`: input name -> sizes, `"N"` on the batch axis, where the
    file leaves them open; `threads`: the cores one prediction may use; `cpus`: where threads that the engine starts run
    (None: where the caller's does); `proven`: what was found of this very content before, which is then believed.
    Raises ModelRefusedError, saying what to do."""
    if path.is_dir():
        raise ModelRefusedError(f"{path}: a folder: name the .onnx file in it")
    if path.suffix in FORMATS and path.suffix != ".onnx":  # which is read once, and checked then
        check_file(path)
    if path.suffix != ".onnx":
        kind = f"{path.suffix} files" if path.suffix else "files without a suffix"
        raise ModelRefusedError(f"{path}: no engine for {kind}: name an .onnx file, or export the model as one")
    from tickpath.engines.onnxruntime import load_onnx  # a runtime is loaded only with its first model

    return load_onnx(path, shapes, threads, cpus, proven)
