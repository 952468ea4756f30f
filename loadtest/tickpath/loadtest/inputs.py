"""What a model is asked: the synthetic book in its shape, or real arrays from a file."""

import zipfile
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from tickpath.loadtest.errors import LoadTestError
from tickpath.loadtest.orderbook import windows
from tickpath.wire import ModelInfo, TensorInfo

# Different inputs, which are sent over and over: enough that no branch or value is always the same, and no more bytes
# than a cache of the last level holds, since what is sent should cost what fresh data costs and not a page fault.
DISTINCT_MAX: Final = 512
DISTINCT_BYTES_MAX: Final = 8 * 1024 * 1024

Inputs = dict[str, npt.NDArray[np.generic]]


def book_inputs(model: ModelInfo, seed: int) -> list[Inputs]:
    """Different requests of one row, the same for the same seed. Optional inputs are left out."""
    needed = [tensor for tensor in model.inputs if not tensor.optional]
    row_bytes = sum(int(np.prod(tensor.shape)) * np.dtype(tensor.dtype).itemsize for tensor in needed)
    count = min(DISTINCT_MAX, max(1, DISTINCT_BYTES_MAX // max(row_bytes, 1)))
    books = {tensor.name: windows(count, tensor.shape, tensor.dtype, seed) for tensor in needed}
    return [{name: book[index] for name, book in books.items()} for index in range(count)]


def file_inputs(model: ModelInfo, path: Path) -> list[Inputs]:
    """One request for each place along the first axis of the arrays in an .npz, which are named like the model's
    inputs. Raises LoadTestError; whether an array fits the model is for its codec to say."""
    arrays = _read(path)
    known = {tensor.name: tensor for tensor in model.inputs}
    unknown = [name for name in arrays if name not in known]
    if unknown or not arrays:
        raise LoadTestError(f"{path}: expected arrays named {', '.join(known)}, got {', '.join(arrays) or 'none'}")
    stacked = {name: _stacked(path, known[name], array) for name, array in arrays.items()}
    counts = {len(array) for array in stacked.values()}
    if len(counts) > 1 or 0 in counts:
        told = ", ".join(f"{name}: {len(array)}" for name, array in stacked.items())
        raise LoadTestError(f"{path}: every array holds the same number of requests, at least one; got {told}")
    return [{name: array[index] for name, array in stacked.items()} for index in range(counts.pop())]


def _stacked(path: Path, tensor: TensorInfo, array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """A single request counts as a stack of one."""
    if array.ndim == len(tensor.shape):
        return array[np.newaxis]
    if array.ndim == len(tensor.shape) + 1:
        return array
    raise LoadTestError(
        f"{path}: {tensor.name} is one request of {len(tensor.shape)} dimensions or a stack of them, "
        f"got the shape {array.shape}"
    )


def _read(path: Path) -> Inputs:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except OSError as error:
        raise LoadTestError(f"{path}: {error.strerror or error}") from None
    except (ValueError, zipfile.BadZipFile, AttributeError, TypeError):
        raise LoadTestError(f"{path}: not an .npz of plain arrays: write it with numpy.savez(path, x=...)") from None
