"""What a plan says of itself, in a file beside it: NAME.plan.json. A plan is opaque and a runtime may die of a bad one,
so this is read and checked first.

- The *recipe* is all that decides what a plan is: its source, the runtime that builds it, what it takes and gives, the
  options. Its hash is the plan's key: a plan with the key that is wanted need not be built again.
- The *sidecar* adds what came out, and a seal over all of its text, so that no damage to it goes unseen.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from tickpath.engines.compile.options import CompileOptions
from tickpath.engines.passes.parity import Parity
from tickpath.engines.probing import PATTERNS, fill
from tickpath.engines.spec import Array, EngineSpec, TensorSpec

FORMAT: Final = 1


class TensorEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A TensorSpec as JSON."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    batch_axis: int | None

    @classmethod
    def of(cls, tensor: TensorSpec) -> "TensorEntry":
        """The entry for a tensor."""
        return cls(tensor.name, tensor.dtype.name, tensor.shape, tensor.batch_axis)

    def spec(self) -> TensorSpec:
        """The tensor of this entry."""
        return TensorSpec(self.name, np.dtype(self.dtype), self.shape, self.batch_axis)


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that decides what a plan is. `rows_fixed` as in EngineSpec."""

    source_sha256: str
    runtime: str
    inputs: tuple[TensorEntry, ...]
    outputs: tuple[TensorEntry, ...]
    rows_fixed: int | None
    options: CompileOptions

    @property
    def key(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()

    def spec(self, precision: str, sha256: str, runtime: str | None = None) -> EngineSpec:
        """What the plan takes and gives. Tensors keep the source's dtypes whatever the precision within. `runtime`:
        what runs it, where that need not be what built it."""
        inputs, outputs = (tuple(entry.spec() for entry in side) for side in (self.inputs, self.outputs))
        buckets = self.options.buckets
        return EngineSpec(inputs, outputs, runtime or self.runtime, precision, sha256, self.rows_fixed, buckets)


class Sidecar(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands beside a plan. `patterns`: for each bucket the place in probing.PATTERNS of inputs on which the model
    runs; `parity`: how far the converted graph is from its source, None where nothing was converted; `notes`: what the
    runtime warned of."""

    recipe: Recipe
    plan_sha256: str
    plan_bytes: int
    patterns: tuple[int, ...]
    parity: Parity | None = None
    notes: tuple[str, ...] = ()
    format: int = FORMAT


def sample_of(spec: EngineSpec, patterns: Sequence[int], rows: int) -> list[Array]:
    """Inputs of `rows` rows on which the source ran when it was compiled: in its bucket, or in the next."""
    place = next((place for place, bucket in enumerate(spec.buckets) if bucket >= rows), -1)
    return [fill(tensor, PATTERNS[patterns[place]], rows, seed) for seed, tensor in enumerate(spec.inputs)]


class SidecarError(Exception):
    """These bytes are no sidecar. The text says what they are instead, to follow a file's name."""


def encode_sidecar(sidecar: Sidecar) -> bytes:
    """The file's content: the seal on a line of its own, then the sidecar, for people too."""
    text = msgspec.json.format(msgspec.json.encode(sidecar), indent=2)
    return b'{"seal": "%s", "sidecar":\n%s}\n' % (_seal(text), text)


def decode_sidecar(content: bytes) -> Sidecar:
    """The sidecar in a file's content. Raises SidecarError."""
    if not content:
        raise SidecarError("is empty")
    seal, _, rest = content.partition(b'", "sidecar":\n')
    text = rest.removesuffix(b"}\n")
    if not rest.endswith(b"}\n"):
        raise SidecarError("is cut short or no sidecar")
    if seal.removeprefix(b'{"seal": "') != _seal(text):
        raise SidecarError("is damaged or was edited: its seal does not fit")
    try:
        return msgspec.json.decode(text, type=Sidecar)
    except msgspec.ValidationError as error:
        raise SidecarError(f"is of another release ({error})") from None


def _seal(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest().encode()
