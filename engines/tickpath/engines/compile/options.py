"""What can be asked of a compile. Frozen, so that a plan can say what it was built with and be built again."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Final, Literal, TypeAlias, get_args

import msgspec

from tickpath.engines.engine import ModelRefusedError

Precision: TypeAlias = Literal["fp32", "tf32", "fp16", "bf16"]
CompileEngine: TypeAlias = Literal["tensorrt", "tensorrt-rtx", "onnxruntime", "openvino", "torch"]
PRECISIONS: Final[tuple[str, ...]] = get_args(Precision)
ENGINES: Final[tuple[str, ...]] = get_args(CompileEngine)
TENSORRT: Final = ("tensorrt", "tensorrt-rtx")

# What a compile of each engine writes.
SUFFIXES: Final[Mapping[str, str]] = {
    "tensorrt": ".plan",
    "tensorrt-rtx": ".plan",
    "onnxruntime": ".onnx",
    "openvino": ".ov",
    "torch": ".pt2",
}

TARGET_PATTERN: Final = r"^sm\d{2,3}\Z"


class CompileOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to compile one model. All of it is part of a plan's key: another value is another plan.

    `targets`: compute capabilities such as sm89; empty for those that the runtime builds for by itself. `shapes`: input
    name -> sizes where the file leaves them open, `"N"` on the batch axis.
    """

    engine: CompileEngine
    # One profile each, with one shape: kernels are chosen for it, and a captured graph runs no other.
    buckets: tuple[Annotated[int, msgspec.Meta(gt=0)], ...]
    precision: Precision = "fp32"
    targets: tuple[Annotated[str, msgspec.Meta(pattern=TARGET_PATTERN)], ...] = ()
    shapes: dict[str, tuple[int | Literal["N"], ...]] = {}
    # Whoever made the source may run code here, as in `tickpath serve --trust`.
    trusted: bool = False
    # The most that TensorRT has: it searches longest, once, for what then runs millions of times.
    optimization_level: Annotated[int, msgspec.Meta(ge=0, le=5)] = 5
    # Each candidate kernel is timed so often. TensorRT's own 1 lets one interruption choose the kernel.
    timing_iterations: Annotated[int, msgspec.Meta(ge=1, le=64)] = 8
    # Kernels of one small model side by side save less than the events between their streams cost.
    aux_streams: Annotated[int, msgspec.Meta(ge=0, le=7)] = 0


def parse_targets(text: str) -> tuple[str, ...]:
    """`sm89,sm120` -> ("sm89", "sm120"). Raises ValueError."""
    targets = tuple(text.split(","))
    for target in targets:
        if not re.match(TARGET_PATTERN, target):
            raise ValueError(f"expected compute capabilities as in sm89,sm120, {text!r} came")
    return targets


def check_output(out: PurePath, engine: str) -> None:
    """Raises ModelRefusedError unless the file's suffix is that of what the engine writes: by its suffix it is loaded
    again."""
    if out.suffix != SUFFIXES[engine]:
        raise ModelRefusedError(
            f"{out}: {engine} writes {SUFFIXES[engine]} files: name it {out.stem}{SUFFIXES[engine]}"
        )


def check_targets(targets: Sequence[str], known: Sequence[str], runtime: str) -> None:
    """Raises ModelRefusedError naming a target that the runtime can't build for."""
    if targets and not known:
        raise ModelRefusedError(f"{runtime} builds for the GPU at hand only: leave --gpu out, and build on such a GPU")
    for target in targets:
        if target not in known:
            raise ModelRefusedError(
                f"{runtime} can't build for {target}: it builds for {', '.join(known)}; for other GPUs build with "
                "--engine tensorrt on one of them"
            )
