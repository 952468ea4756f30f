"""Loads a model file with the engine for its kind."""

import logging
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Literal

from tickpath.engines.device import DeviceEngine
from tickpath.engines.engine import Engine, ModelRefusedError

log = logging.getLogger(__name__)


def load(
    path: Path,
    shapes: Mapping[str, tuple[int | Literal["N"], ...]] | None = None,
    threads: int = 1,
    cpus: Set[int] | None = None,
    on_bad_plan: Literal["refuse", "rebuild", "cpu"] = "refuse",
) -> Engine | DeviceEngine:
    """The engine for this file, chosen by its suffix. `shapes`: input name -> sizes, `"N"` on the batch axis, where the
    file leaves them open; `threads`: the cores one prediction may use; `cpus`: where threads that the engine starts run
    (None: where the caller's does); `on_bad_plan`: what to do about a .plan that is damaged or foreign, from the .onnx
    beside it. Raises ModelRefusedError, saying what to do."""
    if path.is_dir():
        raise ModelRefusedError(f"{path}: a folder: name the .onnx file in it")
    if path.suffix == ".plan":
        return _load_plan(path, on_bad_plan, lambda source: _load_cpu(source, shapes, threads, cpus))
    if path.suffix != ".onnx":
        kind = f"{path.suffix} files" if path.suffix else "files without a suffix"
        raise ModelRefusedError(f"{path}: no engine for {kind}: name an .onnx file, or export the model as one")
    return _load_cpu(path, shapes, threads, cpus)


def _load_plan(
    path: Path, on_bad_plan: Literal["refuse", "rebuild", "cpu"], load_cpu: Callable[[Path], Engine]
) -> Engine | DeviceEngine:
    from tickpath.engines.compile.fallback import load_or_fall_back
    from tickpath.engines.plan import load_plan

    engine, problem = load_or_fall_back(path, on_bad_plan, load_plan, load_cpu)
    if problem:
        log.warning("%s", problem)
    return engine


def _load_cpu(
    path: Path, shapes: Mapping[str, tuple[int | Literal["N"], ...]] | None, threads: int, cpus: Set[int] | None
) -> Engine:
    from tickpath.engines.onnxruntime import load_onnx  # a runtime is loaded only with its first model

    return load_onnx(path, shapes, threads, cpus)
