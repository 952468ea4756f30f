"""From a model file to what is served: TensorRT plans, and optimised ONNX for the CPU, each with a sidecar that says
what it is."""

from tickpath.engines.compile.compiling import Compiled, compile_model
from tickpath.engines.compile.options import ENGINES, PRECISIONS, SUFFIXES, CompileOptions, parse_targets
from tickpath.engines.compile.plan_file import BadPlanError, Plan, read_plan, sidecar_path
from tickpath.engines.compile.sidecar import Recipe, Sidecar

__all__ = [
    "ENGINES",
    "PRECISIONS",
    "SUFFIXES",
    "BadPlanError",
    "CompileOptions",
    "Compiled",
    "Plan",
    "Recipe",
    "Sidecar",
    "compile_model",
    "parse_targets",
    "read_plan",
    "sidecar_path",
]
