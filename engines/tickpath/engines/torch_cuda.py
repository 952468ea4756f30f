"""The torch engine's execution contexts on a CUDA device: what `graphs.cuda` captures.

A context runs the program on tensors that lie at the addresses it was bound to. What torch allocates on the way comes
from a pool of the context's own, which keeps it: the plain run before a capture fills the pool, so that the captured
run asks the driver for nothing, and no other run is ever given memory that the graph still writes to. So does what
cuBLAS works in, which torch would keep for whoever comes next on a stream of that handle: the stream of a load ends
with it, and another model's load may be given the same handle.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch.export.passes import move_to_device_pass

from tickpath.engines.engine import EngineFailedError, ModelRefusedError
from tickpath.engines.onnx_spec import Shape
from tickpath.engines.probing import Probe, ProbeFailedError, find_outputs, first_run
from tickpath.engines.spec import Array, EngineSpec, TensorSpec
from tickpath.engines.torch_exported import RUNTIME, Program, check_rows, load_program, read_program, said

DEVICE: Final = "cuda:0"


@dataclass(frozen=True, slots=True)
class DeviceArray:
    """Memory at an address as others' libraries take it: see numba's CUDA array interface, version 3."""

    __cuda_array_interface__: Mapping[str, object]


class TorchContext:
    """A program at one bucket."""

    def __init__(self, program: Program, spec: EngineSpec, rows: int) -> None:
        self._forward: Callable[..., Sequence[torch.Tensor]] | None = program.forward
        self._spec = spec
        self._rows = rows
        self._pool: Any = torch.cuda.MemPool()
        self._inputs: list[torch.Tensor] = []
        self._outputs: list[torch.Tensor] = []

    def bind(self, addresses: Sequence[int]) -> None:
        """Device addresses of the inputs and then the outputs, in the order of the spec."""
        assert not self._outputs, "bound once, for ever"
        specs = (*self._spec.inputs, *self._spec.outputs)
        tensors = [_tensor(spec, self._rows, address) for spec, address in zip(specs, addresses, strict=True)]
        self._inputs = tensors[: len(self._spec.inputs)]
        self._outputs = tensors[len(self._spec.inputs) :]

    def enqueue(self, stream: int) -> bool:
        """Put one run onto the stream. Raises EngineFailedError."""
        assert self._forward is not None, "the context is closed"
        try:
            with (
                torch.cuda.stream(torch.cuda.get_stream_from_external(stream, DEVICE)),
                torch.cuda.use_mem_pool(self._pool),
                _workspace_of_its_own(),
                torch.inference_mode(),
            ):
                for buffer, output in zip(self._outputs, self._forward(*self._inputs), strict=True):
                    buffer.copy_(output, non_blocking=True)
        except Exception as error:  # operators raise what they like
            raise EngineFailedError(f"{RUNTIME}: {said(error)}") from None
        return True

    def close(self) -> None:
        """Let go of the program and of the pool."""
        self._forward = self._pool = None
        self._inputs, self._outputs = [], []


class TorchDeviceEngine:
    """A program on the CUDA device."""

    def __init__(self, program: Program, spec: EngineSpec, probe: Probe) -> None:
        self._program: Program | None = program
        self._spec = spec
        self._probe = probe

    @property
    def spec(self) -> EngineSpec:
        return self._spec

    def context(self, rows: int) -> TorchContext:
        """A new execution context for the bucket of so many rows. Raises ModelRefusedError where the program was
        exported for fewer."""
        assert self._program is not None, "the engine is closed"
        check_rows(self._program, rows)
        return TorchContext(self._program, self._spec, rows)

    def sample(self, rows: int) -> list[Array]:
        """As `TorchEngine.sample`."""
        assert self._program is not None, "the engine is closed"
        return first_run(self._probe, rows)[0]

    def close(self) -> None:
        """Let go of the program."""
        self._program = None


def load_exported_on_device(
    path: Path, shapes: Mapping[str, Shape] | None = None, trusted: bool = False
) -> TorchDeviceEngine:
    """The program in this .pt2 file, wherever it was exported, on the CUDA device; else as `load_exported`."""
    if not torch.cuda.is_available():
        raise ModelRefusedError(f"{path}: {RUNTIME} has no CUDA device here: install a build of torch with CUDA")
    try:
        loaded = load_program(path, trusted)
        program = read_program(move_to_device_pass(loaded.exported, DEVICE), shapes or {})
        probe = Probe(_runner(program), program.inputs, program.output_names, program.rows_fixed, program.precision, {})
        outputs = find_outputs(probe)
    except ModelRefusedError as error:
        raise ModelRefusedError(f"{path}: {error}") from None
    spec = EngineSpec(program.inputs, outputs, RUNTIME, program.precision, loaded.sha256, program.rows_fixed)
    return TorchDeviceEngine(program, spec, probe)


@contextmanager
def _workspace_of_its_own() -> Iterator[None]:
    """Memory for cuBLAS is allocated within, and given back to where it was allocated."""
    torch._C._cuda_clearCublasWorkspaces()
    try:
        yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()


def _tensor(spec: TensorSpec, rows: int, address: int) -> torch.Tensor:
    """A tensor over memory that someone else owns."""
    interface = {"shape": spec.shape_at(rows), "typestr": spec.dtype.str, "data": (address, False), "version": 3}
    tensor: torch.Tensor = torch.as_tensor(DeviceArray(interface), device=DEVICE)
    assert tensor.data_ptr() == address, "torch made a copy"
    return tensor


def _runner(program: Program) -> Callable[[Sequence[Array]], list[Array]]:
    def run(arrays: Sequence[Array]) -> list[Array]:
        try:
            with torch.inference_mode():
                tensors = [torch.from_numpy(np.array(array, order="C")).to(DEVICE) for array in arrays]
                return [output.cpu().contiguous().numpy() for output in program.forward(*tensors)]
        except Exception as error:  # operators raise what they like
            raise ProbeFailedError(said(error)) from None

    return run
