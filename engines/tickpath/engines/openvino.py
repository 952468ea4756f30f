"""The engine for .ov files: OpenVINO on the CPU. The only file that imports it.

A .ov file is what OpenVINO itself saves, its IR and the weights, in one archive, with a sidecar beside it that is
checked before any of it is read. Each bucket is compiled for its one shape, so that a replay infers no shape; a graph
is one infer request, bound to one slot's buffers.
"""

import io
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import openvino
from openvino._pyopenvino import InferRequest as Request

from tickpath.engines.buffers import check_buffers
from tickpath.engines.compile.plan_file import BadPlanError, Plan, read_plan
from tickpath.engines.compile.sidecar import Recipe, sample_of
from tickpath.engines.engine import EngineFailedError, ModelRefusedError
from tickpath.engines.spec import Array, EngineSpec

RUNTIME: Final = f"openvino {openvino.__version__.partition('-')[0]}"

# As compile is asked for them: OpenVINO's names, and those that other engines tell.
HINTS: Final = {"fp32": "f32", "bf16": "bf16"}
PRECISIONS: Final = {"fp32": "float32", "bf16": "bfloat16"}

ENTRIES: Final = ("model.xml", "model.bin")

# It says where in its sources first, and in which function.
SAID_CHARS_MAX: Final = 300


class OpenVinoGraph:
    """An infer request on the buffers of one slot."""

    __slots__ = ("_held", "_run")

    def __init__(self, request: openvino.InferRequest, buffers: Sequence[Array]) -> None:
        # The method of the C++ class: its Python wrapper looks through what is bound already, at every call.
        self._run: Callable[..., object] = partial(Request.infer, request, {}, share_outputs=True, decode_strings=False)
        self._held = (request, tuple(buffers))

    def replay(self) -> None:
        """Run the model once on what the input buffers hold. Raises EngineFailedError."""
        try:
            self._run()
        except Exception as error:  # the runtime's exceptions have no base class of their own
            raise EngineFailedError(f"{RUNTIME}: {said(error)}") from None


class OpenVinoEngine:
    """A model in OpenVINO on the CPU. `spec` says what it takes and gives."""

    def __init__(
        self, model: openvino.Model, spec: EngineSpec, hint: str, patterns: Sequence[int], threads: int
    ) -> None:
        self._core = openvino.Core()
        self._model: openvino.Model | None = model
        self._spec = spec
        self._patterns = patterns
        self._compiled: dict[int, openvino.CompiledModel] = {}
        self._options = {
            "INFERENCE_PRECISION_HINT": hint,
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "ENABLE_CPU_PINNING": False,  # where threads run is the server's to say
        }

    @property
    def spec(self) -> EngineSpec:
        return self._spec

    def capture(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> OpenVinoGraph:
        """Bind a graph to C-contiguous arrays, in the order of `spec`, all of one bucket's rows. The graph keeps them
        alive. Raises ValueError where they do not fit, EngineFailedError."""
        compiled = self._compile(check_buffers(self._spec, inputs, outputs))
        request = compiled.create_infer_request()
        for place, array in enumerate(inputs):
            request.set_input_tensor(place, _shared(array))
        for place, array in enumerate(outputs):
            request.set_output_tensor(place, _shared(array))
        return OpenVinoGraph(request, (*inputs, *outputs))

    def sample(self, rows: int) -> list[Array]:
        """Inputs on which the source ran when it was compiled."""
        if self._model is None:
            raise ValueError("the engine is closed")
        return sample_of(self._spec, self._patterns, rows)

    def close(self) -> None:
        """Let go of the model. Its memory is free once its graphs are gone too."""
        self._model = None
        self._compiled.clear()

    def _compile(self, rows: int) -> openvino.CompiledModel:
        """The model for one bucket, which all of its slots share."""
        if self._model is None:
            raise ValueError("the engine is closed")
        if rows not in self._spec.buckets:
            text = ",".join(map(str, self._spec.buckets))
            raise EngineFailedError(f"the model was compiled for buckets {text}, not {rows}: compile it for these too")
        if rows not in self._compiled:
            self._compiled[rows] = _compile(self._core, self._model, self._spec, rows, self._options)
        return self._compiled[rows]


def check_precision(precision: str) -> None:
    """Raises ModelRefusedError where OpenVINO, or this machine's CPU, has not this precision."""
    if precision not in HINTS:
        raise ModelRefusedError(f"{RUNTIME} computes in {' or '.join(HINTS)} on a CPU, not in {precision}")
    if precision == "bf16" and "BF16" not in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        raise ModelRefusedError("this CPU has no bfloat16 (avx512_bf16, amx_bf16): use --precision fp32")


def convert(model: bytes) -> bytes:
    """The content of a .ov file for an ONNX model whose weights are in it. Raises ModelRefusedError."""
    packed = io.BytesIO()
    try:
        read = openvino.Core().read_model(model)
        with tempfile.TemporaryDirectory(prefix="tickpath-openvino-") as folder:
            path = Path(folder) / ENTRIES[0]
            openvino.save_model(read, path, compress_to_fp16=False)
            with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
                for name in ENTRIES:
                    archive.writestr(zipfile.ZipInfo(name), path.with_name(name).read_bytes())
    except Exception as error:  # the runtime's exceptions have no base class of their own
        raise ModelRefusedError(f"{RUNTIME} does not take this model: {said(error)}") from None
    return packed.getvalue()


def load_openvino(path: Path, threads: int = 1) -> OpenVinoEngine:
    """The model in this .ov file; `threads`: the cores that one prediction may use. Raises BadPlanError where it is
    damaged or of another engine, ModelRefusedError where this CPU can't run it."""
    plan: Plan = read_plan(path)
    if plan.sidecar.recipe.options.engine != "openvino":
        raise BadPlanError(f"{path}: its sidecar is of {plan.sidecar.recipe.runtime}: compile the model again")
    try:
        check_precision(plan.sidecar.recipe.options.precision)
        return engine_of(plan.content, plan.sidecar.recipe, plan.sidecar.patterns, threads)
    except ModelRefusedError as error:
        raise ModelRefusedError(f"{path}: {error}") from None


def engine_of(content: bytes, recipe: Recipe, patterns: Sequence[int], threads: int = 1) -> OpenVinoEngine:
    """The engine for what `convert` gave. Raises ModelRefusedError."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            text, weights = (archive.read(name) for name in ENTRIES)
        model = openvino.Core().read_model(text, openvino.Tensor(np.frombuffer(weights, np.uint8)))
    except Exception as error:  # the runtime's exceptions have no base class of their own
        raise ModelRefusedError(f"{RUNTIME} does not take this model: {said(error)}") from None
    precision = recipe.options.precision
    spec = recipe.spec(PRECISIONS[precision], recipe.source_sha256, RUNTIME)
    return OpenVinoEngine(model, spec, HINTS[precision], patterns, threads)


def said(error: Exception) -> str:
    """What the runtime said, in one line, without its source positions."""
    lines = [line.strip() for line in str(error).splitlines()]
    words = [line for line in lines if line and not line.startswith(("Exception from ", "Check '"))]
    return " ".join(words or lines)[:SAID_CHARS_MAX]


def _shared(array: Array) -> openvino.Tensor:
    """The array's own memory. numpy has two types for 64-bit integers, of which OpenVINO knows the one by this name."""
    return openvino.Tensor(array.view(np.dtype(array.dtype.name)), shared_memory=True)


def _compile(
    core: openvino.Core, model: openvino.Model, spec: EngineSpec, rows: int, options: dict[str, Any]
) -> openvino.CompiledModel:
    try:
        fixed = model.clone()
        if spec.inputs:
            fixed.reshape({place: list(tensor.shape_at(rows)) for place, tensor in enumerate(spec.inputs)})
        compiled = core.compile_model(fixed, "CPU", options)
    except Exception as error:  # the runtime's exceptions have no base class of their own
        raise EngineFailedError(f"{RUNTIME} takes no bucket of {rows} rows: {said(error)}") from None
    for tensor, output in zip(spec.outputs, compiled.outputs, strict=True):
        shape = tuple(output.partial_shape.to_shape()) if output.partial_shape.is_static else "open"
        if shape != tensor.shape_at(rows):  # it would write past the buffer's end
            raise EngineFailedError(f"{RUNTIME} gives output {tensor.name!r} as {shape}, not {tensor.shape_at(rows)}")
    return compiled
