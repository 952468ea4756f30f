"""The CPU engine: onnxruntime, with every buffer bound before the first request.

A session is one model; a graph is one IOBinding on one slot's buffers, by address. A replay makes no array.
"""

import hashlib
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime

from tickpath.engines.buffers import check_buffers
from tickpath.engines.engine import EngineFailedError, ModelRefusedError
from tickpath.engines.onnx_file import OnnxFile, read_bytes, read_onnx
from tickpath.engines.onnx_model import read_model
from tickpath.engines.onnx_spec import Shape
from tickpath.engines.probing import Probe, ProbeFailedError, Run, find_outputs, first_run
from tickpath.engines.spec import Array, EngineSpec, KnownModel, TensorSpec

RUNTIME: Final = f"onnxruntime {onnxruntime.__version__}"

LOG_FATAL: Final = 4


class OnnxRuntimeGraph:
    """A model bound to the buffers of one slot. Holds the session and the buffers, whose addresses the runtime has."""

    __slots__ = ("_binding", "_held", "_options", "_run")

    def __init__(
        self, session: onnxruntime.InferenceSession, binding: onnxruntime.IOBinding, buffers: Sequence[Array]
    ) -> None:
        self._run, self._binding = _bound_run(session, binding)
        self._options = _run_options()
        self._held = (session, binding, tuple(buffers))

    def replay(self) -> None:
        """Run the model once on what the input buffers hold. Raises EngineFailedError."""
        try:
            self._run(self._binding, self._options)
        except Exception as error:  # the runtime's exceptions have no base class of their own
            raise EngineFailedError(f"{RUNTIME}: {said(error)}") from None


class OnnxRuntimeEngine:
    """A model in an onnxruntime session on the CPU. `spec` says what it takes and gives."""

    def __init__(self, session: onnxruntime.InferenceSession, spec: EngineSpec, probe: Probe) -> None:
        self._session: onnxruntime.InferenceSession | None = session
        self._spec = spec
        self._probe: Probe | None = probe

    @property
    def spec(self) -> EngineSpec:
        return self._spec

    def capture(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> OnnxRuntimeGraph:
        """Bind a graph to C-contiguous arrays, in the order of `spec`, all of the same number of rows. The graph keeps
        them alive. Raises ValueError where they do not fit, since the runtime would write past their end."""
        if self._session is None:
            raise ValueError("the engine is closed")
        check_buffers(self._spec, inputs, outputs)
        return _bind(self._session, self._spec, inputs, outputs)

    def sample(self, rows: int) -> list[Array]:
        """The first of the probe's inputs on which the model runs. Raises ModelRefusedError where it runs on none of
        this many rows."""
        if self._probe is None:
            raise ValueError("the engine is closed")
        return first_run(self._probe, rows)[0]

    def close(self) -> None:
        """Let go of the session. Its memory is free once its graphs are gone too."""
        self._session = self._probe = None


def load_onnx(
    path: Path,
    shapes: Mapping[str, Shape] | None = None,
    threads: int = 1,
    cpus: Set[int] | None = None,
    known: KnownModel | None = None,
) -> OnnxRuntimeEngine:
    """The model in this file. `shapes` gives the inputs' sizes where the file leaves them open, `"N"` on the batch
    axis; `threads` is how many cores one prediction may use, `cpus` where the runtime's own threads run (None: where
    the caller's does); `known`: what another process found of this very content, which is then believed. Raises
    ModelRefusedError, saying what to do."""
    try:
        if known is not None:
            return _load_known(path, known, threads, cpus)
        return _load(path, shapes or {}, threads, cpus)
    except ModelRefusedError as error:
        raise ModelRefusedError(f"{path}: {error}") from None


def optimise(content: bytes) -> bytes:
    """The model, whose weights are in it, after the graph optimisations that suit any CPU: what `load_onnx` would do at
    every start. Raises ModelRefusedError."""
    with tempfile.TemporaryDirectory(prefix="tickpath-optimise-") as folder:
        path = Path(folder) / "optimised.onnx"
        options = _session_options(path.parent, threads=1)
        # All of them would choose layouts for this machine's CPU, which another may not have.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(path)
        try:
            onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the runtime's exceptions have no base class of their own
            raise ModelRefusedError(f"{RUNTIME} does not take this model: {said(error)}") from None
        return path.read_bytes()


def said(error: Exception) -> str:
    """What the runtime said, in one line, without its source positions."""
    text = re.sub(r"\[ONNXRuntimeError\] : \d+ : \w+ : ", "", " ".join(str(error).split()))
    return re.sub(r"/onnxruntime_src/\S+ .*?\)(?: const)? ", "", text)


def _load(path: Path, shapes: Mapping[str, Shape], threads: int, cpus: Set[int] | None) -> OnnxRuntimeEngine:
    model = read_model(path, shapes)
    try:
        session = _session(model.file.content, path.parent, threads, cpus)
    except _RuntimeRefusedError as error:
        raise ModelRefusedError(_refusal(model.file, str(error))) from None
    inputs, rows_fixed = model.inputs.tensors, model.inputs.rows_fixed
    run = _runner(session, inputs, model.output_names)
    probe = Probe(run, inputs, model.output_names, rows_fixed, model.precision, model.shaped_by_data)
    spec = EngineSpec(
        inputs, find_outputs(probe), RUNTIME, model.precision, model.file.sha256, rows_fixed, feed=model.feed
    )
    engine = OnnxRuntimeEngine(session, spec, probe)
    _check_bound_outputs(engine, probe)
    return engine


def _load_known(path: Path, known: KnownModel, threads: int, cpus: Set[int] | None) -> OnnxRuntimeEngine:
    spec, unpacked = known.spec, known.unpacked
    content = _same_content(path, spec.sha256) if unpacked is None else read_bytes(unpacked)
    try:
        session = _session(content, (unpacked or path).parent, threads, cpus)
    except _RuntimeRefusedError as error:
        raise ModelRefusedError(str(error)) from None
    names = tuple(tensor.name for tensor in spec.outputs)
    run = _runner(session, spec.inputs, names)
    return OnnxRuntimeEngine(session, spec, Probe(run, spec.inputs, names, spec.rows_fixed, spec.precision, {}))


def _same_content(path: Path, sha256: str) -> bytes:
    """The file's bytes, if it and its weight files are those of this digest."""
    content = read_bytes(path)
    # Only a file with weights beside it has to be parsed for its digest, and then it is a small one.
    if hashlib.sha256(content).hexdigest() != sha256 and read_onnx(path).sha256 != sha256:
        raise ModelRefusedError("it changed while it was loaded: write new files beside the old ones, then rename")
    return content


class _RuntimeRefusedError(Exception):
    """The runtime does not take a model; the text is what it said."""


def _session(content: bytes, folder: Path, threads: int, cpus: Set[int] | None) -> onnxruntime.InferenceSession:
    """The runtime's session. It keeps none of the bytes. Raises _RuntimeRefusedError."""
    options = _session_options(folder, threads)
    if cpus and threads > 1:
        options.add_session_config_entry("session.intra_op_thread_affinities", _affinities(threads, cpus))
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's exceptions have no base class of their own
        raise _RuntimeRefusedError(said(error)) from None
    # Private, and harmless where it is no more: kept for a second try on another device, it doubles a model's memory.
    session._model_bytes = None
    return session


def _session_options(folder: Path, threads: int) -> onnxruntime.SessionOptions:
    """One thread unless more are asked for, and none that spins while idle; all graph optimisations; silent, since what
    matters comes as an exception.

    The memory arena, memory pattern and weight prepacking stay on. Measured on onnxruntime 1.32, medians of seven
    interleaved runs, buffers bound, on / off: arena 6.0 / 5.9 µs for a 64-256-256-3 MLP and 478 / 480 µs for a 100x50,
    2x100 LSTM; pattern 6.0 / 6.25 and 478 / 479 µs; prepacking 6.0 / 6.5 and 478 / 533 µs, and 15.7 / 22.7 µs for the
    MLP at 8 rows.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = LOG_FATAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    # A model that comes as bytes has no place of its own, from which its weight files could be found.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder.absolute()))
    return options


def _affinities(threads: int, cpus: Set[int]) -> str:
    """Each of the runtime's threads on any of `cpus`; the caller's is one of `threads` and not the runtime's to place.
    The runtime counts processors from 1."""
    return ";".join([",".join(str(cpu + 1) for cpu in sorted(cpus))] * (threads - 1))


def _run_options() -> onnxruntime.RunOptions:
    options = onnxruntime.RunOptions()
    # The runtime looks this entry up on every call, and throws and catches a C++ exception where it is missing: 30 µs
    # in onnxruntime 1.32. -1 means no graph, which is what a CPU session has.
    options.add_run_config_entry("gpu_graph_id", "-1")
    return options


def _refusal(file: OnnxFile, text: str) -> str:
    """What to tell a person about a model that the runtime does not take."""
    opset = re.search(r"Opset (\d+) .*official support for domain (\S+) is till opset (\d+)", text)
    if opset:
        version, domain, supported = opset.groups()
        return f"it needs opset {version} of {domain}, {RUNTIME} supports up to {supported}: export it with that opset"
    ir = re.search(r"Unsupported model IR version: (\d+), max supported IR version: (\d+)", text)
    if ir:
        version, supported = ir.groups()
        return (
            f"it has IR version {version}, {RUNTIME} supports up to {supported}: export it with an older onnx package"
        )
    opsets = ", ".join(f"{entry.domain or 'ai.onnx'} {entry.version}" for entry in file.model.opset_import)
    return f"{RUNTIME} does not take this model (opset {opsets}): {text}"


def _runner(session: onnxruntime.InferenceSession, inputs: Sequence[TensorSpec], output_names: Sequence[str]) -> Run:
    names = [tensor.name for tensor in inputs]

    def run(arrays: Sequence[Array]) -> list[Array]:
        assert all(array.size for array in arrays), "an empty tensor ends the process in a recurrent operator"
        try:
            outputs: list[Array] = session.run(output_names, dict(zip(names, arrays, strict=True)))
        except Exception as error:  # the runtime's exceptions have no base class of their own
            raise ProbeFailedError(said(error)) from None
        return [np.asarray(output) for output in outputs]

    return run


def _check_bound_outputs(engine: OnnxRuntimeEngine, probe: Probe) -> None:
    """A bound replay must give what a plain run gives. The runtime leaves a bound buffer alone, without a word, where
    an output is one of the inputs; and it holds a bound output to the shape that the file declares."""
    spec = engine.spec
    rows = spec.rows_fixed or (2 if spec.batched else 1)
    inputs, expected = first_run(probe, rows)
    outputs = [_poisoned(tensor, rows) for tensor in spec.outputs]
    try:
        engine.capture([np.array(array, order="C") for array in inputs], outputs).replay()
    except EngineFailedError as error:
        raise ModelRefusedError(f"it does not run with bound outputs ({error}): declare outputs as they are") from None
    for tensor, output, answer in zip(spec.outputs, outputs, expected, strict=True):
        if output.tobytes() != answer.tobytes():
            raise ModelRefusedError(
                f"{RUNTIME} does not write output {tensor.name!r} into its buffer: "
                "if it is one of the inputs handed through, remove it or put an operator before it"
            )


def _poisoned(tensor: TensorSpec, rows: int) -> Array:
    return np.full(tensor.bytes_at(rows), 0xA5, np.uint8).view(tensor.dtype).reshape(tensor.shape_at(rows))


def _bind(session: Any, spec: EngineSpec, inputs: Sequence[Array], outputs: Sequence[Array]) -> OnnxRuntimeGraph:
    binding = session.io_binding()
    for tensor, array in zip(spec.inputs, inputs, strict=True):
        binding.bind_input(tensor.name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    for tensor, array in zip(spec.outputs, outputs, strict=True):
        binding.bind_output(tensor.name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    return OnnxRuntimeGraph(session, binding, (*inputs, *outputs))


def _bound_run(session: Any, binding: Any) -> tuple[Callable[[Any, Any], None], Any]:
    """What runs a binding, and the binding as it takes it: the runtime's own objects and not their Python wrappers,
    whose checks for other devices cost 0.7 of 2.2 µs. They are private: where a release has them no more, the
    wrappers do."""
    try:
        return session._sess.run_with_iobinding, binding._iobinding
    except AttributeError:
        return session.run_with_iobinding, binding
