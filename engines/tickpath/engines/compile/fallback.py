"""What to do about a plan that can't be used, as the configuration says."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tickpath.engines.compile.compiling import compile_model
from tickpath.engines.compile.plan_file import BadPlanError, sidecar_path
from tickpath.engines.compile.sidecar import SidecarError, decode_sidecar
from tickpath.engines.load import OnBadPlan
from tickpath.engines.source_file import source_beside

Loaded = TypeVar("Loaded")
OnCpu = TypeVar("OnCpu")


def load_or_fall_back(
    plan: Path, on_bad_plan: OnBadPlan, load: Callable[[Path], Loaded], load_cpu: Callable[[Path], OnCpu]
) -> tuple[Loaded | OnCpu, str]:
    """What `load` makes of the plan, and nothing to say. Where that raises BadPlanError: what is left to do, and what
    was wrong. The source is NAME.onnx or NAME.pt2 beside
    NAME.plan, or source.onnx, source.pt2. Raises BadPlanError where nothing is left."""
    try:
        return load(plan), ""
    except BadPlanError as error:
        problem = error
    if on_bad_plan == "refuse":
        raise problem
    source = source_beside(plan)
    if source is None:
        raise BadPlanError(f"{problem}; there is no {plan.stem}.onnx or source.onnx beside it to {_WORDS[on_bad_plan]}")
    if on_bad_plan == "cpu":
        return load_cpu(source), f"{problem}; {source.name} runs on the CPU"
    _rebuild(plan, source, problem)
    return load(plan), f"{problem}; it was built again from {source.name}"


_WORDS = {"cpu": "run on the CPU", "rebuild": "build it from"}


def _rebuild(plan: Path, source: Path, problem: BadPlanError) -> None:
    """Build it as its sidecar says; without that nobody knows for which buckets, in which precision."""
    try:
        options = decode_sidecar(sidecar_path(plan).read_bytes()).recipe.options
    except (OSError, SidecarError):
        raise BadPlanError(f"{problem}; without its sidecar nobody knows how to build it") from None
    compile_model(source, plan, options, force=True)
