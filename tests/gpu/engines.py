"""The engines that a GPU machine can prove, and for each where its answers can be had without a captured graph."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from warnings import catch_warnings

from cuda.bindings import driver
from tests.cuda_checks import BoundSlot, Expected, bind
from tests.gpu.ptx_engine import PtxEngine, checked, ptx_expected

from tickpath.engines import Array, DeviceEngine, EngineSpec, ExecutionContext, ModelRefusedError, zoo
from tickpath.engines.compile import CompileOptions, Plan, compile_model, read_plan
from tickpath.engines.compile.options import CompileEngine
from tickpath.engines.compile.plan_file import publish
from tickpath.engines.plan import load_plan
from tickpath.engines.tensorrt import find_tensorrt
from tickpath.graphs.cuda import CudaEngine


@dataclass(frozen=True)
class Candidate:
    """A model on the device: how to load it, and, where it is known, what it must answer."""

    name: str
    make: Callable[[], DeviceEngine]
    expected: Expected | None = None


# All that the tests ask for.
BUCKETS: Final = tuple(range(1, 9))


@cache
def _plan(runtime: CompileEngine, name: str) -> Plan:
    """A zoo model's plan, built once: reading it back is what a reload does."""
    with TemporaryDirectory() as folder:
        source = Path(folder) / f"{name}.onnx"
        source.write_bytes(zoo.build(name).SerializeToString())
        compile_model(source, source.with_suffix(".plan"), CompileOptions(runtime, BUCKETS))
        return read_plan(source.with_suffix(".plan"))


def _load(runtime: CompileEngine, name: str) -> DeviceEngine:
    with TemporaryDirectory() as folder:
        plan = _plan(runtime, name)
        path = Path(folder) / plan.path.name
        publish(path, plan.content, plan.sidecar)
        return load_plan(path)


def _why_no_plans(runtime: CompileEngine) -> str:
    try:
        find_tensorrt(runtime)
    except ModelRefusedError as error:
        return str(error)
    return ""


@cache
def program_of(name: str) -> bytes:
    """A zoo model as a .pt2 file."""
    from tickpath.engines.zoo.exported import export_program

    return export_program(zoo.build(name))


def _load_program(name: str) -> DeviceEngine:
    from tickpath.engines.torch_cuda import load_exported_on_device

    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.pt2"
        path.write_bytes(program_of(name))
        return load_exported_on_device(path)


def _why_no_programs() -> str:
    if not find_spec("torch"):
        return "torch is not installed: pip install 'tickpath[torch]'"
    torch = import_module("torch")
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is a build for the CPU: install one with CUDA"
    with catch_warnings(action="ignore"):
        if torch.cuda.is_available():
            return ""
    return (
        f"torch {torch.__version__} is for CUDA {torch.version.cuda} and finds no device: install the build for this "
        "driver (download.pytorch.org/whl has one for each CUDA)"
    )


MODELS: Final = ("mlp", "deeplob")
"""Of the zoo, those that each engine runs."""
RUNTIMES: Final[tuple[CompileEngine, ...]] = ("tensorrt", "tensorrt-rtx")
MISSING: Final[dict[str, str]] = {
    name: why
    for name, why in {**{runtime: _why_no_plans(runtime) for runtime in RUNTIMES}, "torch": _why_no_programs()}.items()
    if why
}
"""The engines that can't be proven here, and why."""


def _candidates() -> Iterator[Candidate]:
    yield Candidate("ptx", PtxEngine, ptx_expected)
    for runtime in RUNTIMES:
        if runtime not in MISSING:
            yield from (Candidate(f"{runtime} {name}", partial(_load, runtime, name)) for name in MODELS)
    if "torch" not in MISSING:
        yield from (Candidate(f"torch {name}", partial(_load_program, name)) for name in MODELS)


CANDIDATES: Final = tuple(_candidates())


class Uncapturable:
    """An engine that refuses to be captured, so that its model is run piece by piece."""

    def __init__(self, engine: DeviceEngine) -> None:
        self._engine = engine
        self.sample = engine.sample
        self.close = engine.close

    @property
    def spec(self) -> EngineSpec:
        return self._engine.spec

    def context(self, rows: int) -> ExecutionContext:
        return _Refusing(self._engine.context(rows))


class _Refusing:
    """A context that refuses while the stream captures."""

    def __init__(self, context: ExecutionContext) -> None:
        self._context = context
        self.bind = context.bind
        self.close = context.close

    def enqueue(self, stream: int) -> bool:
        status = checked(driver.cuStreamIsCapturing(stream))
        free = status == driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
        return bool(free) and self._context.enqueue(stream)


class Eager:
    """What a model answers without a graph."""

    def __init__(self, candidate: Candidate) -> None:
        self.engine = CudaEngine(Uncapturable(candidate.make()))
        self._slots: dict[int, BoundSlot] = {}

    def __call__(self, arrays: Sequence[Array]) -> list[bytes]:
        tensor = self.engine.spec.inputs[0]
        assert tensor.batch_axis is not None
        rows = arrays[0].shape[tensor.batch_axis] // tensor.shape[tensor.batch_axis]
        if rows not in self._slots:
            self._slots[rows] = bind(self.engine, rows)
        return self._slots[rows](arrays)
