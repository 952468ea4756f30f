"""The engine for .plan files: TensorRT or TensorRT-RTX on a CUDA device. Memory, streams and graphs are not its
business; it brings execution contexts (see device.py).

A plan is checked against its sidecar before the runtime sees it, and then the runtime's own view of its inputs, outputs
and profiles against the sidecar's: a bad plan is refused in one line, and what is bound later has the sizes that were
checked here.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tickpath.engines.compile.plan_file import BadPlanError, Plan, read_plan
from tickpath.engines.compile.sidecar import sample_of
from tickpath.engines.device import has_device
from tickpath.engines.engine import EngineFailedError, ModelRefusedError
from tickpath.engines.spec import Array, EngineSpec, TensorSpec
from tickpath.engines.tensorrt import ICudaEngine, IExecutionContext, TensorRT, deserialise, find_tensorrt, new_context

DTYPES: Final = {
    "BOOL": "bool",
    "FLOAT": "float32",
    "HALF": "float16",
    "INT8": "int8",
    "UINT8": "uint8",
    "INT32": "int32",
    "INT64": "int64",
}
"""TensorRT's names of types, and numpy's."""

PRECISIONS: Final = {"fp32": "float32", "tf32": "tf32", "fp16": "float16", "bf16": "bfloat16"}
"""As compile is asked for them, and as other engines tell theirs."""


class PlanContext:
    """One bucket of a plan: an optimisation profile whose only shape is the bucket's."""

    def __init__(
        self, tensorrt: TensorRT, context: IExecutionContext, spec: EngineSpec, profile: int, rows: int
    ) -> None:
        self._tensorrt = tensorrt
        self._context: IExecutionContext | None = context
        self._spec = spec
        self._profile = profile
        self._rows = rows
        self._addresses: tuple[int, ...] = ()
        self._ready = False

    def bind(self, addresses: Sequence[int]) -> None:
        """Device addresses of the inputs and then the outputs, in the order of the spec."""
        assert not self._addresses, "bound once, for ever"
        assert len(addresses) == len(self._spec.inputs) + len(self._spec.outputs)
        self._addresses = tuple(addresses)

    def enqueue(self, stream: int) -> bool:
        """Put one run onto the stream. The first call, which is a plain one, sets profile, shapes and addresses on that
        same stream, so that no other has to be waited for. Raises EngineFailedError where they are refused."""
        assert self._context is not None, "the context is closed"
        if not self._ready:
            self._prepare(self._context, stream)
            self._ready = True
        return self._context.execute_async_v3(stream)

    def close(self) -> None:
        """Let go of the context and its device memory."""
        self._context = None

    def _prepare(self, context: IExecutionContext, stream: int) -> None:
        assert self._addresses, "bind comes first"
        self._expect(context.set_optimization_profile_async(self._profile, stream), f"profile {self._profile}")
        for tensor in self._spec.inputs:
            shape = tensor.shape_at(self._rows)
            self._expect(context.set_input_shape(tensor.name, shape), f"shape {shape} of input {tensor.name!r}")
        for tensor in self._spec.outputs:
            shape, found = tensor.shape_at(self._rows), tuple(context.get_tensor_shape(tensor.name))
            if found != shape:  # it would write past the buffer's end
                raise EngineFailedError(
                    f"{self._tensorrt.runtime} gives output {tensor.name!r} as {found}, not {shape}"
                )
        for tensor, address in zip((*self._spec.inputs, *self._spec.outputs), self._addresses, strict=True):
            self._expect(context.set_tensor_address(tensor.name, address), f"the address of {tensor.name!r}")

    def _expect(self, accepted: bool, what: str) -> None:
        if not accepted:
            raise EngineFailedError(f"{self._tensorrt.runtime} refused {what}: {self._tensorrt.said()}")


class PlanEngine:
    """A plan on the CUDA device. `spec` says what it takes and gives."""

    def __init__(self, tensorrt: TensorRT, engine: ICudaEngine, plan: Plan) -> None:
        recipe = plan.sidecar.recipe
        self._tensorrt = tensorrt
        self._engine: ICudaEngine | None = engine
        self._patterns = plan.sidecar.patterns
        self._spec = recipe.spec(PRECISIONS[recipe.options.precision], recipe.source_sha256)

    @property
    def spec(self) -> EngineSpec:
        return self._spec

    def context(self, rows: int) -> PlanContext:
        """A new execution context for one of the spec's buckets. Raises EngineFailedError."""
        if self._engine is None:
            raise ValueError("the engine is closed")
        profile = self._profile(rows)
        context = new_context(self._tensorrt, self._engine)
        if context is None:
            raise EngineFailedError(f"{self._tensorrt.runtime} makes no execution context: {self._tensorrt.said()}")
        return PlanContext(self._tensorrt, context, self._spec, profile, rows)

    def sample(self, rows: int) -> list[Array]:
        """Inputs on which the source ran when it was compiled."""
        return sample_of(self._spec, self._patterns, rows)

    def close(self) -> None:
        """Let go of the runtime's engine. All contexts are closed."""
        self._engine = None

    def _profile(self, rows: int) -> int:
        if rows not in self._spec.buckets:
            text = ",".join(map(str, self._spec.buckets))
            raise EngineFailedError(f"the plan was compiled for buckets {text}, not {rows}: compile it for these too")
        return self._spec.buckets.index(rows)


def load_plan(path: Path) -> PlanEngine:
    """The plan in this file. Raises BadPlanError where it is damaged, or of another release or device, and
    ModelRefusedError where its runtime is not installed."""
    plan = read_plan(path)
    name = plan.sidecar.recipe.options.engine
    if name == "onnxruntime":
        raise BadPlanError(f"{path}: its sidecar is of an onnxruntime model: compile the model again")
    tensorrt = find_tensorrt(name)
    if plan.sidecar.recipe.runtime != tensorrt.runtime:
        raise BadPlanError(
            f"{path}: built by {plan.sidecar.recipe.runtime}, and this is {tensorrt.runtime}: compile the model again"
        )
    try:
        engine = deserialise(tensorrt, plan.content)
    except ModelRefusedError as error:
        targets = ", ".join(plan.sidecar.recipe.options.targets) or "the runtime's own choice"
        raise BadPlanError(f"{path}: {error}; built for {targets}: {_remedy()}") from None
    check_engine(path, engine, plan)
    return PlanEngine(tensorrt, engine, plan)


def _remedy() -> str:
    if has_device():
        return "compile it for this GPU"
    return 'there is no GPU here, or no driver for it: serve it where one is, or its source by on_bad_plan = "cpu"'


def check_engine(path: Path, engine: ICudaEngine, plan: Plan) -> None:
    """Raises BadPlanError where the runtime sees other inputs, outputs or profiles than the sidecar."""
    recipe = plan.sidecar.recipe
    found = {name: engine.get_tensor_mode(name).name for name in _names(engine)}
    expected = {entry.name: "INPUT" for entry in recipe.inputs} | {entry.name: "OUTPUT" for entry in recipe.outputs}
    if found != expected:
        raise _differs(path, f"tensors {_text(found.items())}", _text(expected.items()))
    for entry in (*recipe.inputs, *recipe.outputs):
        dtype = DTYPES.get(engine.get_tensor_dtype(entry.name).name, "another type")
        if dtype != entry.dtype:
            raise _differs(path, f"{entry.name!r} as {dtype}", entry.dtype)
    if engine.num_optimization_profiles != len(recipe.options.buckets) and recipe.inputs:
        raise _differs(path, f"{engine.num_optimization_profiles} profiles", f"{len(recipe.options.buckets)}")
    for entry in recipe.inputs:
        _check_profiles(path, engine, entry.spec(), recipe.options.buckets)


def _check_profiles(path: Path, engine: ICudaEngine, tensor: TensorSpec, buckets: Sequence[int]) -> None:
    for profile, rows in enumerate(buckets):
        shapes = {tuple(shape) for shape in engine.get_tensor_profile_shape(tensor.name, profile)}
        if shapes != {tensor.shape_at(rows)}:
            raise _differs(
                path, f"profile {profile} of {tensor.name!r} as {sorted(shapes)}", str(tensor.shape_at(rows))
            )


def _names(engine: ICudaEngine) -> list[str]:
    return [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]


def _text(pairs: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name} ({mode.lower()})" for name, mode in pairs)


def _differs(path: Path, found: str, expected: str) -> BadPlanError:
    return BadPlanError(f"{path}: the plan has {found}, its sidecar says {expected}: compile the model again")
