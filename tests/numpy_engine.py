"""An engine whose model is a function of numpy arrays: it runs on the bound buffers as every engine does, and a test
sees what they hold."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tickpath.engines import Array, DeviceLostError, EngineSpec, TensorSpec

Compute = Callable[[Sequence[Array], Sequence[Array]], None]
"""Reads the bound inputs, writes the bound outputs."""


def tensor(
    name: str,
    shape: tuple[int, ...],
    axis: int | None = 0,
    dtype: npt.DTypeLike = np.float32,
    default: Array | None = None,
) -> TensorSpec:
    return TensorSpec(name, np.dtype(dtype), shape, axis, default)


def copy_through(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    """Each output is the input in its place."""
    for source, target in zip(inputs, outputs, strict=True):
        target[...] = source


def never_lost(error: DeviceLostError) -> None:
    """For a lane whose model runs on no device."""
    raise AssertionError(f"there is no device to lose: {error}")


@dataclass(frozen=True)
class NumpyGraph:
    """A function on buffers that never move."""

    compute: Compute
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]

    def replay(self) -> None:
        self.compute(self.inputs, self.outputs)


class NumpyEngine:
    """The model `compute`. Its graphs are in `graphs`, in the order of their capture."""

    def __init__(
        self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], compute: Compute = copy_through
    ) -> None:
        self.spec = EngineSpec(tuple(inputs), tuple(outputs), "numpy", "float32", "0" * 64)
        self.graphs: list[NumpyGraph] = []
        self._compute = compute

    def capture(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> NumpyGraph:
        self.graphs.append(NumpyGraph(self._compute, tuple(inputs), tuple(outputs)))
        return self.graphs[-1]

    def sample(self, rows: int) -> list[Array]:
        return [np.zeros(spec.shape_at(rows), spec.dtype) for spec in self.spec.inputs]

    def close(self) -> None:
        self.graphs.clear()
