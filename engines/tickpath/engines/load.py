"""Loads a model file with the engine for its kind."""

import logging
from collections.abc import Callable, Mapping, Set
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from tickpath.engines.device import DeviceEngine
from tickpath.engines.engine import Engine, ModelRefusedError
from tickpath.engines.model_file import FORMATS, check_file
from tickpath.engines.pt2_file import is_pt2
from tickpath.engines.spec import KnownModel

Shapes = Mapping[str, tuple[int | Literal["N"], ...]]
OnBadPlan = Literal["refuse", "rebuild", "cpu"]

log = logging.getLogger(__name__)


def load(
    path: Path,
    shapes: Shapes | None = None,
    threads: int = 1,
    cpus: Set[int] | None = None,
    trusted: bool = False,
    known: KnownModel | None = None,
) -> Engine:
    """The CPU engine for this file, chosen by what it is: an archive of torch.export, else by its suffix. `shapes`:
    input name -> sizes, `"N"` on the batch axis, where the file leaves them open; `threads`: the cores one prediction
    may use; `cpus`: where threads that the engine starts run (None: where the caller's does); `trusted`: whoever made
    the file may run code here; `known`: what was found of this very content before, which an engine may believe.
    Raises ModelRefusedError, saying what to do."""
    if path.is_dir():
        raise ModelRefusedError(f"{path}: a folder: name the .onnx file in it")
    if path.suffix != ".onnx":  # which is read once, and checked then
        if path.suffix in FORMATS:
            check_file(path)
        if path.suffix == ".ov":
            return _load_openvino(path, threads)
        if is_pt2(path):
            return _load_exported(path, shapes, threads, cpus, trusted)
    if path.suffix != ".onnx":
        if not path.exists():
            raise ModelRefusedError(f"{path}: no such file")
        kind = f"{path.suffix} files" if path.suffix else "files without a suffix"
        raise ModelRefusedError(f"{path}: no engine for {kind}: name an .onnx file, or export the model as one")
    from tickpath.engines.onnxruntime import load_onnx  # a runtime is loaded only with its first model

    return load_onnx(path, shapes, threads, cpus, known)


def load_plan(path: Path, on_bad_plan: OnBadPlan, load_cpu: Callable[[Path], Engine]) -> Engine | DeviceEngine:
    """The engine for a .plan file, on the CUDA device. Where it is damaged or foreign, `on_bad_plan` says what to do,
    from its source beside it, which `load_cpu` loads. Raises ModelRefusedError, saying what to do."""
    from tickpath.engines.compile.fallback import load_or_fall_back
    from tickpath.engines.plan import load_plan as load_on_device

    engine, problem = load_or_fall_back(path, on_bad_plan, load_on_device, load_cpu)
    if problem:
        log.warning("%s", problem)
    return engine


def load_on_device(path: Path, shapes: Shapes | None = None, trusted: bool = False) -> DeviceEngine:
    """The engine for a file that could also run on the CPU, on the CUDA device. Raises ModelRefusedError, saying what
    to do."""
    if not is_pt2(path):
        raise ModelRefusedError(f'{path}: device = "cuda" is for .pt2 files: compile this one to a .plan for a GPU')
    _check_torch(path)
    from tickpath.engines.torch_cuda import load_exported_on_device

    return load_exported_on_device(path, shapes, trusted)


def _check_torch(path: Path) -> None:
    if not find_spec("torch"):
        raise ModelRefusedError(f"{path}: a .pt2 file needs torch: pip install 'tickpath[torch]'")


def _load_exported(path: Path, shapes: Shapes | None, threads: int, cpus: Set[int] | None, trusted: bool) -> Engine:
    _check_torch(path)
    from tickpath.engines.torch_exported import load_exported

    return load_exported(path, shapes, threads, cpus, trusted)


def _load_openvino(path: Path, threads: int) -> Engine:
    if not find_spec("openvino"):
        raise ModelRefusedError(f"{path}: an .ov file needs OpenVINO: pip install 'tickpath[openvino]'")
    from tickpath.engines.openvino import load_openvino

    return load_openvino(path, threads)
