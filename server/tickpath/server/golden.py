"""The golden sample: inputs with the answers that are right for them, in one .npz file beside the model.

Its arrays are named as the model's inputs and outputs. A name that is both an input's and an output's is told apart by
`in:` and `out:` before it, which any name may carry. Every required input and every output is in it, all of the same
number of rows; an optional input may be left out.
"""

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np

from tickpath.engines import Array, EngineSpec, ModelRefusedError, TensorSpec

GOLDEN_FILE: Final = "golden.npz"


@dataclass(frozen=True, slots=True)
class GoldenSample:
    """Inputs and the right answers, in the order of the model's spec; None where an optional input is left out."""

    rows: int
    inputs: tuple[Array | None, ...]
    outputs: tuple[Array, ...]


def read_golden(path: Path, spec: EngineSpec) -> GoldenSample:
    """The sample in this file, which fits this model. Raises ModelRefusedError naming the array, what was expected and
    what came."""
    try:
        arrays = read_arrays(path)
        inputs = tuple(_taken(arrays, tensor, "in") for tensor in spec.inputs)
        outputs = tuple(_taken(arrays, tensor, "out") for tensor in spec.outputs)
        _check_all_taken(arrays, spec)
        rows = _rows(spec, (*inputs, *outputs))
    except ModelRefusedError as error:
        raise ModelRefusedError(f"{path}: {error}") from None
    return GoldenSample(rows, inputs, tuple(output for output in outputs if output is not None))


def read_inputs(path: Path, spec: EngineSpec) -> tuple[tuple[Array | None, ...], int]:
    """The model's inputs in a file, which may hold its outputs too, and how many rows they have. Raises
    ModelRefusedError."""
    try:
        arrays = read_arrays(path)
        inputs = tuple(_taken(arrays, tensor, "in") for tensor in spec.inputs)
        _check_all_taken(arrays, spec)
        return inputs, _rows(spec, inputs)
    except ModelRefusedError as error:
        raise ModelRefusedError(f"{path}: {error}") from None


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of an .npz file. Raises ModelRefusedError."""
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.lib.npyio.NpzFile):
                return dict(archive)
    except OSError as error:
        raise ModelRefusedError(f"can't be read: {error.strerror or error}") from None
    except (ValueError, EOFError, RuntimeError, MemoryError, zlib.error, zipfile.BadZipFile):
        pass  # whatever a damaged header may say: encrypted, of another method, larger than any memory
    raise ModelRefusedError("no whole .npz file of plain arrays: copy it again, or write it with savez")


def write_golden(path: Path, spec: EngineSpec, sample: GoldenSample) -> None:
    """The sample as a file. Raises OSError."""
    both = {tensor.name for tensor in spec.inputs} & {tensor.name for tensor in spec.outputs}
    arrays = {}
    for side, tensors, sampled in (("in", spec.inputs, sample.inputs), ("out", spec.outputs, sample.outputs)):
        for tensor, array in zip(tensors, sampled, strict=True):
            if array is not None:
                arrays[f"{side}:{tensor.name}" if tensor.name in both else tensor.name] = array
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:  # savez has parameters that are names too
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def _taken(arrays: dict[str, Array], tensor: TensorSpec, side: Literal["in", "out"]) -> Array | None:
    """The array for an input or output, checked apart from its rows; None for an optional input that is not there."""
    array = arrays.get(f"{side}:{tensor.name}", arrays.get(tensor.name))
    if array is None:
        if side == "in" and tensor.optional:
            return None
        kind = "input" if side == "in" else "output"
        raise ModelRefusedError(
            f"no array for {kind} {tensor.name!r}, {tensor.describe()}: add one; it has {', '.join(arrays) or 'none'}"
        )
    if array.dtype != tensor.dtype or not _fits(array, tensor):
        raise ModelRefusedError(
            f"{tensor.name!r} is {array.dtype.name}{list(array.shape)}, the model has {tensor.describe()}"
        )
    return np.ascontiguousarray(array).reshape(array.shape)


def _fits(array: Array, tensor: TensorSpec) -> bool:
    """Whether some number of rows, at least one, gives this array's shape."""
    if tensor.batch_axis is None or array.ndim != len(tensor.shape):
        return array.shape == tensor.shape
    rows = array.shape[tensor.batch_axis] // tensor.shape[tensor.batch_axis]
    return rows > 0 and array.shape == tensor.shape_at(rows)


def _check_all_taken(arrays: dict[str, Array], spec: EngineSpec) -> None:
    """A name that is nothing of the model's is a mistake, and may be the array that somebody believes in."""
    inputs, outputs = ({tensor.name for tensor in side} for side in (spec.inputs, spec.outputs))
    known = inputs | outputs | {f"in:{name}" for name in inputs} | {f"out:{name}" for name in outputs}
    if strange := sorted(set(arrays) - known):
        raise ModelRefusedError(f"{strange[0]!r} is no input and no output of the model, which is {spec.describe()}")
    both = sorted(name for name in inputs & outputs if name in arrays)
    if both:
        raise ModelRefusedError(f"{both[0]!r} is an input and an output: name them in:{both[0]} and out:{both[0]}")


def _rows(spec: EngineSpec, arrays: Sequence[Array | None]) -> int:
    """The rows that all arrays have."""
    tensors = (*spec.inputs, *spec.outputs)
    rows = {
        tensor.name: array.shape[tensor.batch_axis] // tensor.shape[tensor.batch_axis]
        for tensor, array in zip(tensors, arrays, strict=False)
        if array is not None and tensor.batch_axis is not None
    }
    if len(set(rows.values())) > 1:
        told = ", ".join(f"{name!r} has {count}" for name, count in rows.items())
        raise ModelRefusedError(f"all arrays must have the same number of rows: {told}")
    return next(iter(rows.values()), 1)
