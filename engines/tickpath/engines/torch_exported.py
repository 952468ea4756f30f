"""The torch engine: a program of torch.export, with its weights, on the CPU or captured on a CUDA device.

A replay runs the program's graph, operator by operator, on tensors that are views of a slot's buffers. torch makes its
intermediate tensors anew each time, from memory it keeps; only the outputs are copied into the buffers.

The graph is run flat: its inputs are the program's weights and then the caller's, its outputs the caller's. The guards
that `ExportedProgram.module()` would compile from the file and run are not made: shapes are checked when buffers are
bound, and whether the program is right at a batch size it was not traced with is found by running it (probing.py).
"""

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import get_ident
from typing import Final

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.export.pt2_archive._package import AOTICompiledModel, load_pt2

from tickpath.engines.buffers import check_buffers
from tickpath.engines.engine import EngineFailedError, ModelRefusedError
from tickpath.engines.onnx_spec import Declared, Dimension, Open, Shape, settle_inputs
from tickpath.engines.probing import Probe, ProbeFailedError, find_outputs, first_run
from tickpath.engines.pt2_file import read_pt2
from tickpath.engines.spec import Array, EngineSpec, TensorSpec

RUNTIME: Final = f"torch {torch.__version__}"

DTYPES: Final[Mapping[torch.dtype, np.dtype[np.generic]]] = {
    torch.bool: np.dtype(np.bool_),
    torch.int8: np.dtype(np.int8),
    torch.int16: np.dtype(np.int16),
    torch.int32: np.dtype(np.int32),
    torch.int64: np.dtype(np.int64),
    torch.uint8: np.dtype(np.uint8),
    torch.uint16: np.dtype(np.uint16),
    torch.uint32: np.dtype(np.uint32),
    torch.uint64: np.dtype(np.uint64),
    torch.float16: np.dtype(np.float16),
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
}

# The exporter tells sizes 0 and 1 apart from all others, so an open dimension begins at 2 in most files although the
# program runs on one row as well.
ROWS_MIN_EXPORTED: Final = 2

# The exporter writes "no bound" as infinity or as some number of 63 bits.
ROWS_UNBOUNDED: Final = 2**31

# What is logged by these is said in the exception that follows, or, as by the last, of no interest.
NOISY: Final = ("torch.export", "torch._export", "torch.onnx._internal.exporter._registration")

Forward = Callable[..., Sequence[torch.Tensor]]
"""A program: the caller's tensors -> its outputs."""


@dataclass(frozen=True, slots=True)
class Program:
    """An exported program, read: what it takes and gives, and how many rows it was exported for at most."""

    forward: Forward
    inputs: tuple[TensorSpec, ...]
    output_names: tuple[str, ...]
    rows_fixed: int | None
    rows_max: int | None
    precision: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """A file's program and, where it was compiled by AOTInductor as well, its machine code."""

    exported: ExportedProgram
    compiled: AOTICompiledModel | None
    sha256: str


class TorchGraph:
    """A program bound to the buffers of one slot."""

    __slots__ = ("_forward", "_inputs", "_outputs", "_thread", "_threads")

    def __init__(self, forward: Forward, inputs: Sequence[Array], outputs: Sequence[Array], threads: int) -> None:
        self._forward = forward
        self._threads = threads
        self._thread = 0
        self._inputs = [torch.from_numpy(array) for array in inputs]
        self._outputs = [torch.from_numpy(array) for array in outputs]

    def replay(self) -> None:
        """Run the program once on what the input buffers hold. Raises EngineFailedError."""
        if get_ident() != self._thread:  # how many helpers a thread may have is the thread's own setting
            torch.set_num_threads(self._threads)
            self._thread = get_ident()
        try:
            with torch.inference_mode():
                for buffer, output in zip(self._outputs, self._forward(*self._inputs), strict=True):
                    buffer.copy_(output)
        except Exception as error:  # operators raise what they like
            raise EngineFailedError(f"{RUNTIME}: {said(error)}") from None


class TorchEngine:
    """A program on the CPU. `spec` says what it takes and gives."""

    def __init__(self, program: Program, spec: EngineSpec, probe: Probe, threads: int) -> None:
        self._program: Program | None = program
        self._threads = threads
        self._spec = spec
        self._probe = probe

    @property
    def spec(self) -> EngineSpec:
        return self._spec

    def capture(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> TorchGraph:
        """Bind a graph to C-contiguous arrays, in the order of `spec`, all of the same number of rows. The graph keeps
        them alive. Raises ValueError where they do not fit, ModelRefusedError where the program was exported for
        fewer rows."""
        if self._program is None:
            raise ValueError("the engine is closed")
        check_rows(self._program, check_buffers(self._spec, inputs, outputs))
        return TorchGraph(self._program.forward, inputs, outputs, self._threads)

    def sample(self, rows: int) -> list[Array]:
        """The first of the probe's inputs on which the program runs. Raises ModelRefusedError where it runs on none of
        this many rows."""
        if self._program is None:
            raise ValueError("the engine is closed")
        return first_run(self._probe, rows)[0]

    def close(self) -> None:
        """Let go of the program. Its memory is free once its graphs are gone too."""
        self._program = None


def load_exported(
    path: Path,
    shapes: Mapping[str, Shape] | None = None,
    threads: int = 1,
    cpus: Set[int] | None = None,
    trusted: bool = False,
) -> TorchEngine:
    """The program in this .pt2 file. `shapes` gives the inputs' sizes where the file leaves them open, `"N"` on the
    batch axis; `threads` is how many cores one prediction may use, which is a setting of the thread that replays: of
    models that share one, the last to start there sets it. torch's own threads run where their caller does, so `cpus`
    has nothing to say. `trusted`: the file's maker may run code here. Raises ModelRefusedError, saying what to do."""
    torch.set_num_threads(threads)
    try:
        loaded = load_program(path, trusted)
        program = read_program(loaded.exported, shapes or {})
        if loaded.compiled is not None:
            program = replace(program, forward=_boxed(loaded.compiled))
        probe = Probe(_runner(program), program.inputs, program.output_names, program.rows_fixed, program.precision, {})
        outputs = find_outputs(probe)
    except ModelRefusedError as error:
        raise ModelRefusedError(f"{path}: {error}") from None
    spec = EngineSpec(program.inputs, outputs, RUNTIME, program.precision, loaded.sha256, program.rows_fixed)
    return TorchEngine(program, spec, probe, threads)


def read_program(exported: ExportedProgram, shapes: Mapping[str, Shape]) -> Program:
    """What a program takes and gives, its open dimensions settled by `shapes`. Raises ModelRefusedError."""
    declared = [_declared(exported, name) for name in user_inputs(exported)]
    settled = settle_inputs(declared, shapes)
    _check_outputs(exported)
    return Program(
        _flat(exported),
        settled.tensors,
        output_names(exported),
        settled.rows_fixed,
        _rows_max(exported, declared, settled.tensors),
        _precision(exported),
    )


def said(error: Exception) -> str:
    """The first line of what torch said: its others are a stack trace."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def load_program(path: Path, trusted: bool) -> Loaded:
    """What the file holds. Raises ModelRefusedError."""
    file = read_pt2(path, trusted)
    if not file.programs:
        raise ModelRefusedError(
            "an AOTInductor package does not say what it takes: package the exported program with it (package_pt2)"
        )
    if len(file.programs) > 1 or len(file.compiled) > 1:
        names = ", ".join((*file.programs, *file.compiled))
        raise ModelRefusedError(f"the archive's models are {names}; one is served: save it alone")
    try:
        with silence():
            contents = load_pt2(io.BytesIO(file.content))
            exported = _functional(contents.exported_programs[file.programs[0]])
    except Exception as error:  # a damaged program fails anywhere
        raise ModelRefusedError(f"{RUNTIME} does not take this program ({said(error)}): export it again") from None
    compiled = contents.aoti_runners[file.compiled[0]] if file.compiled else None
    return Loaded(exported, compiled, file.sha256)


def _functional(exported: ExportedProgram) -> ExportedProgram:
    """The program without operators that write into tensors: then those that would change a weight or an input say so
    in the signature."""
    operators = [node.target for node in exported.graph.nodes if node.op == "call_function"]
    if any(isinstance(each, torch._ops.OpOverload) and each._schema.is_mutable for each in operators):
        functional: ExportedProgram = exported.run_decompositions({})
        return functional
    return exported


@contextmanager
def silence() -> Iterator[None]:
    """torch warns, logs and prints stack traces on its way to an exception, which says enough."""
    loggers = [logging.getLogger(name) for name in NOISY]
    before = [logger.disabled for logger in loggers]
    try:
        for logger in loggers:
            logger.disabled = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def user_inputs(exported: ExportedProgram) -> list[str]:
    """The names of the caller's inputs. Raises ModelRefusedError where one of them is no tensor."""
    names = []
    for spec in exported.graph_signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT:
            continue
        if isinstance(spec.arg, ConstantArgument):
            raise ModelRefusedError(
                f"input {spec.arg.name!r} is the constant {spec.arg.value!r}, not a tensor: export the model without it"
            )
        names.append(spec.arg.name)
    return names


def _declared(exported: ExportedProgram, name: str) -> Declared:
    """An input as the file has it."""
    value = next(node.meta["val"] for node in exported.graph.nodes if node.op == "placeholder" and node.name == name)
    if not isinstance(value, torch.Tensor):
        raise ModelRefusedError(f"input {name!r} is no tensor: export the model with tensors alone")
    dtype = DTYPES.get(value.dtype)
    if dtype is None:
        raise ModelRefusedError(
            f"input {name!r} has element type {_name(value.dtype)}, which is not served: "
            "take float32 (or another numpy type) and convert it within the model"
        )
    dimensions: tuple[Dimension, ...] = tuple(
        size if isinstance(size, int) else Open(str(size)) for size in value.shape
    )
    if 0 in dimensions:
        raise ModelRefusedError(
            f"input {name!r} has a dimension of size 0, so there is nothing to send: export it without"
        )
    return Declared(name, dtype, dimensions)


def _rows_max(exported: ExportedProgram, declared: Sequence[Declared], tensors: Sequence[TensorSpec]) -> int | None:
    """The upper bound of the batch axis. Raises ModelRefusedError where the lower one excludes small batches."""
    ranges = {str(symbol): bounds for symbol, bounds in exported.range_constraints.items()}
    largest = None
    for before, tensor in zip(declared, tensors, strict=True):
        size = (before.dimensions or ())[tensor.batch_axis] if tensor.batch_axis is not None else None
        if not isinstance(size, Open) or size.name not in ranges:
            continue
        bounds = ranges[size.name]
        if bounds.lower > ROWS_MIN_EXPORTED:
            raise ModelRefusedError(
                f"the batch axis of {tensor.name!r} was exported for {bounds.lower} rows or more: "
                "export it with torch.export.Dim(name, min=1)"
            )
        if bool(bounds.upper < ROWS_UNBOUNDED):
            largest = min(int(bounds.upper), largest or int(bounds.upper))
    return largest


def check_rows(program: Program, rows: int) -> None:
    """Raises ModelRefusedError where the program was exported for fewer rows."""
    if program.rows_max is not None and rows > program.rows_max:
        raise ModelRefusedError(
            f"a bucket of {rows} rows, and the program was exported for {program.rows_max} at most: "
            "give smaller buckets, or export it with a larger torch.export.Dim"
        )


def _check_outputs(exported: ExportedProgram) -> None:
    for spec in exported.graph_signature.output_specs:
        if spec.kind is not OutputKind.USER_OUTPUT:
            what = f"it changes {spec.target!r}" if spec.target else f"it has an output of kind {spec.kind.name}"
            raise ModelRefusedError(
                f"{what}, so answers depend on those before: pass the state in and out, and export in eval mode"
            )
        if not isinstance(spec.arg, TensorArgument):
            raise ModelRefusedError(f"output {spec.arg.name!r} is no tensor: export the model with tensors alone")
    for node in exported.graph.find_nodes(op="output"):
        for result in node.args[0]:
            if DTYPES.get(result.meta["val"].dtype) is None:
                raise ModelRefusedError(
                    f"output {result.name!r} has element type {_name(result.meta['val'].dtype)}, which is not served: "
                    "convert it to float32 (or another numpy type) within the model"
                )


def output_names(exported: ExportedProgram) -> tuple[str, ...]:
    """The keys of a dictionary; else the names of the operators' results."""
    out_spec = exported.call_spec.out_spec
    count = len(exported.graph_signature.user_outputs)
    if out_spec is not None and out_spec.type and issubclass(out_spec.type, dict) and len(out_spec.context) == count:
        return tuple(map(str, out_spec.context))
    names = [str(name) for name in exported.graph_signature.user_outputs]
    return tuple(f"{name}_{place}" if names.count(name) > 1 else name for place, name in enumerate(names))


def _flat(exported: ExportedProgram) -> Forward:
    """The graph with the program's own tensors in their places, which come first."""
    held = {**exported.state_dict, **exported.constants}
    own = [
        held[spec.target].detach()
        for spec in exported.graph_signature.input_specs
        if spec.kind is not InputKind.USER_INPUT and spec.target is not None
    ]
    forward = exported.graph_module.forward

    def run(*inputs: torch.Tensor) -> Sequence[torch.Tensor]:
        outputs: Sequence[torch.Tensor] = forward(*own, *inputs)
        return outputs

    return run


def _boxed(compiled: AOTICompiledModel) -> Forward:
    """The machine code, called flat as the graph is. It holds weights of its own."""
    run = compiled.loader.boxed_run
    return lambda *inputs: run(list(inputs))


def _runner(program: Program) -> Callable[[Sequence[Array]], list[Array]]:
    def run(arrays: Sequence[Array]) -> list[Array]:
        try:
            with torch.inference_mode():
                outputs = program.forward(*(torch.from_numpy(np.array(array, order="C")) for array in arrays))
                return [output.contiguous().numpy() for output in outputs]
        except Exception as error:  # operators raise what they like
            raise ProbeFailedError(said(error)) from None

    return run


def _precision(exported: ExportedProgram) -> str:
    """The element type that most of the weights have; float32 where there are none."""
    counts: dict[str, int] = {}
    for tensor in exported.state_dict.values():
        name = _name(tensor.dtype)
        counts[name] = counts.get(name, 0) + tensor.numel()
    return max(counts, key=lambda name: counts[name], default="float32")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
