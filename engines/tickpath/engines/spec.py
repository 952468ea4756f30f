"""What a model takes and gives, in the terms that every engine and the server share."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.generic]


def declaring(shapes: Mapping[str, Sequence[object]]) -> str:
    """How whoever serves the model declares these shapes of its inputs: on the command line, and in a configuration."""
    texts = {name: ",".join(map(str, shape)) for name, shape in shapes.items()}
    options = " ".join(f"--shape {name}={text}" for name, text in texts.items())
    keys = ", ".join(f'{_toml_key(name)} = "{text}"' for name, text in texts.items())
    return f"{options} (in a configuration shapes = {{ {keys} }})"


def _toml_key(name: str) -> str:
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output.

    `shape` is that of one row; along `batch_axis` a tensor of `rows` rows is `rows` times as long (None: it has no
    batch axis and always has exactly this shape). `default`: what an optional input is when it is left out.
    """

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    batch_axis: int | None = None
    default: Array | None = field(default=None, compare=False)

    @property
    def optional(self) -> bool:
        return self.default is not None

    @property
    def row_bytes(self) -> int:
        """Bytes of the tensor at one row."""
        return prod(self.shape) * self.dtype.itemsize

    def shape_at(self, rows: int) -> tuple[int, ...]:
        """The tensor's shape when a request, or a bucket, has `rows` rows."""
        if self.batch_axis is None:
            return self.shape
        axis = self.batch_axis
        return (*self.shape[:axis], self.shape[axis] * rows, *self.shape[axis + 1 :])

    def bytes_at(self, rows: int) -> int:
        """Bytes of the tensor at `rows` rows."""
        return self.row_bytes if self.batch_axis is None else self.row_bytes * rows

    def describe(self) -> str:
        """For people: `float32[N,100,40]`, where N is the batch axis (`3N` where one row takes three places)."""
        sizes = [str(size) for size in self.shape]
        if self.batch_axis is not None:
            per_row = self.shape[self.batch_axis]
            sizes[self.batch_axis] = "N" if per_row == 1 else f"{per_row}N"
        return f"{self.dtype.name}[{','.join(sizes)}]"


FEED_KEY: Final = "tickpath.feed"
"""The entry of an ONNX file's metadata that says what its feeds are: JSON of FeedHint's fields."""


@dataclass(frozen=True, slots=True)
class FeedHint:
    """What a model's file says of its own feeds: the inputs that take a state, each with the output that gives it, and
    the rows of the window that it stands for, 0 where it says none."""

    window: int
    states: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class KnownModel:
    """What another process found of a file's very content. `unpacked`: that content taken apart, where it was (see
    onnx_unpack.py)."""

    spec: "EngineSpec"
    unpacked: Path | None = None


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """A compiled model: its tensors in the model's own order and where it came from.

    `rows_fixed`: the one batch size the model was exported with, or None where it takes any. A model without a batch
    axis (`batched` false) takes one row, which is the whole of its tensors. `buckets`: the batch sizes it was compiled
    for, ascending; empty where it runs at any. `eager_buckets`: those that a device runs without a graph, since none
    could be captured.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    runtime: str
    precision: str
    sha256: str
    rows_fixed: int | None = None
    buckets: tuple[int, ...] = ()
    feed: FeedHint | None = None
    eager_buckets: tuple[int, ...] = ()

    def describe(self) -> str:
        """For people: `x float32[N,64] -> y float32[N,3]`."""
        inputs, outputs = (
            ", ".join(f"{tensor.name} {tensor.describe()}" for tensor in side) for side in (self.inputs, self.outputs)
        )
        return f"{inputs or 'nothing'} -> {outputs}"

    @property
    def batched(self) -> bool:
        return any(tensor.batch_axis is not None for tensor in self.inputs)

    @property
    def batch_hint(self) -> str:
        """What would make the first axis the batch axis, where the file fixes one size above 1 for it in
        every input that must be given and none is declared; else empty."""
        required = [tensor for tensor in self.inputs if not tensor.optional]
        sizes = {tensor.shape[:1] for tensor in required}
        if self.batched or len(sizes) != 1 or sizes <= {(), (1,)}:
            return ""
        return declaring({tensor.name: ("N", *tensor.shape[1:]) for tensor in required})
