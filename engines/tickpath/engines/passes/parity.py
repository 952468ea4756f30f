"""How far a compiled model's answers are from those of the CPU engine, and whether that is near enough.

Rows are seeded, so that two runs compare the same. At every bucket there are at least ROWS_MIN of them: the engine's
own sample, and rows like it of other values. What is counted, for each output:
- `max_abs`: the largest difference. `max_rel`: that, relative to the largest value of the reference, since an element
  near zero has no relative error worth the name.
- `max_ulp`: the largest difference in units in the last place of the output's own type, for reading.
- `argmax_flips`: rows whose largest element is another one; for integers, elements that differ.
- `nan_count`: elements that are finite in one of the two only, or infinite in another direction.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from tickpath.engines.engine import Engine, ModelRefusedError
from tickpath.engines.passes.precision import Precision
from tickpath.engines.spec import Array, EngineSpec, TensorSpec

Answer: TypeAlias = Callable[[Sequence[Array]], Sequence[Array]]
"""A model: inputs in the order of its spec, of one bucket's rows -> outputs."""

# One near tie is no more than a sixty-fourth of a bucket's rows then.
ROWS_MIN: Final = 64

SEED: Final = 20150


class Tolerance(msgspec.Struct, frozen=True):
    """What is near enough: `max_rel` as above; `flips_share`: of the rows, those that may have another largest element,
    since rows without a clear winner flip with any rounding."""

    max_rel: float
    flips_share: float


# float32 differs in the order of sums alone, and in one row where what saturates is a tie.
# TF32 and float16 keep 11 bits of a number and bfloat16 8: half a unit is
# 5e-4 and 4e-3 for each rounding, of which a model of tens of layers has some on every way through.
TOLERANCES: Final[Mapping[Precision, Tolerance]] = {
    "fp32": Tolerance(max_rel=1e-4, flips_share=1 / 64),
    "tf32": Tolerance(max_rel=1e-2, flips_share=0.05),
    "fp16": Tolerance(max_rel=1e-2, flips_share=0.05),
    "bf16": Tolerance(max_rel=5e-2, flips_share=0.1),
}


class OutputParity(msgspec.Struct, frozen=True):
    """One output at one bucket, over `rows` rows."""

    bucket: int
    output: str
    rows: int
    max_abs: float
    max_rel: float
    max_ulp: int
    argmax_flips: int
    nan_count: int

    def describe(self) -> str:
        """A row of the table under HEADER."""
        return (
            f"{self.bucket:>6}  {self.output:<20}  {self.rows:>5}  {self.max_abs:>9.2e}  {self.max_rel:>9.2e}  "
            f"{self.max_ulp:>10}  {self.argmax_flips:>5}  {self.nan_count:>5}"
        )


HEADER: Final = (
    f"{'bucket':>6}  {'output':<20}  {'rows':>5}  {'max abs':>9}  {'max rel':>9}  "
    f"{'max ulp':>10}  {'flips':>5}  {'nan':>5}"
)


class Parity(msgspec.Struct, frozen=True):
    """A candidate beside a reference, every output at every bucket."""

    outputs: tuple[OutputParity, ...]

    def describe(self) -> str:
        """A table for people."""
        return "\n".join((HEADER, *(output.describe() for output in self.outputs)))


def measure_parity(reference: Engine, candidate: Engine | Answer, buckets: Sequence[int]) -> Parity:
    """`candidate` beside `reference` at every bucket. Raises EngineFailedError where one of them does not run."""
    measured = []
    for bucket in buckets:
        answers = [_answering(model, reference.spec, bucket) for model in (reference, candidate)]
        sums = [_Sum(tensor, bucket) for tensor in reference.spec.outputs]
        for inputs in rows_like_sample(reference, bucket):
            for total, one, other in zip(sums, *(answer(inputs) for answer in answers), strict=True):
                total.add(one, other)
        measured += [total.parity() for total in sums]
    return Parity(tuple(measured))


def refuse(parity: Parity, tolerance: Tolerance, advice: str = "use a wider --precision") -> None:
    """Raises ModelRefusedError naming the first bucket and output that is not near enough, by which figure, and what to
    do."""
    for each in parity.outputs:
        where = f"at bucket {each.bucket} output {each.output!r}"
        if each.nan_count:
            raise ModelRefusedError(
                f"{where} has {each.nan_count} elements that are not finite and should be: {advice}"
            )
        if not each.max_rel <= tolerance.max_rel:
            raise ModelRefusedError(
                f"{where} is off by {each.max_rel:.2e} of its largest value, {tolerance.max_rel:.0e} is tolerated: "
                f"{advice}"
            )
        if each.argmax_flips > tolerance.flips_share * each.rows:
            raise ModelRefusedError(
                f"{where} has another largest element in {each.argmax_flips} of {each.rows} rows, "
                f"{tolerance.flips_share:.0%} are tolerated: {advice}"
            )


def rows_like_sample(engine: Engine, bucket: int) -> Iterator[list[Array]]:
    """Inputs of `bucket` rows, ROWS_MIN rows in all or more: the engine's sample, then others like it. Integers, and
    what has a default, stay as they are in the sample: they are ids, axes and rates, for which any value won't do."""
    sample = [np.asarray(array) for array in engine.sample(bucket)]
    yield sample
    random = np.random.default_rng(SEED)
    for _ in range(1, -(-ROWS_MIN // bucket)):
        yield [_like(array, tensor, random) for array, tensor in zip(sample, engine.spec.inputs, strict=True)]


def _like(array: Array, tensor: TensorSpec, random: np.random.Generator) -> Array:
    if array.dtype.kind != "f" or tensor.optional:
        return array
    fresh = random.random(array.shape) if not np.signbit(array).any() else random.standard_normal(array.shape)
    return np.asarray(fresh * 2.0 ** random.integers(-2, 3), array.dtype)


def _answering(model: Engine | Answer, spec: EngineSpec, bucket: int) -> Answer:
    """The model at one bucket; an engine's on buffers that it keeps. Inputs come as in `spec`; an engine that takes one
    with a default for a constant is not given it."""
    if callable(model):
        return model
    taken = [place for place, each in enumerate(spec.inputs) if each.name in {own.name for own in model.spec.inputs}]
    inputs = [np.zeros(spec.inputs[place].shape_at(bucket), spec.inputs[place].dtype) for place in taken]
    outputs = [np.zeros(tensor.shape_at(bucket), tensor.dtype) for tensor in spec.outputs]
    graph = model.capture(inputs, outputs)

    def answer(arrays: Sequence[Array]) -> Sequence[Array]:
        for buffer, place in zip(inputs, taken, strict=True):
            buffer[...] = arrays[place]
        graph.replay()
        return [output.copy() for output in outputs]

    return answer


class _Sum:
    """What has been seen of one output at one bucket."""

    def __init__(self, tensor: TensorSpec, bucket: int) -> None:
        self._tensor, self._bucket = tensor, bucket
        self._rows = self._flips = self._nans = self._ulp = 0
        self._abs = self._largest = 0.0

    def add(self, reference: Array, candidate: Array) -> None:
        self._rows += self._bucket
        if reference.dtype.kind != "f":
            self._flips += int(np.count_nonzero(reference != candidate))
            return
        one, other = reference.astype(np.float64), np.asarray(candidate).astype(np.float64)
        both = np.isfinite(one) & np.isfinite(other)
        self._nans += int(np.count_nonzero(~both & (one != other) & ~(np.isnan(one) & np.isnan(other))))
        apart = np.abs(np.subtract(one, other, out=np.zeros_like(one), where=both))
        self._abs = max(self._abs, float(np.max(apart, initial=0.0)))
        self._largest = max(self._largest, float(np.max(np.abs(one), initial=0.0, where=both)))
        self._ulp = max(self._ulp, _ulps(reference, np.asarray(candidate, reference.dtype), both))
        self._flips += self._argmax_flips(one, other)

    def parity(self) -> OutputParity:
        relative = self._abs / self._largest if self._largest else float(self._abs > 0)
        return OutputParity(
            self._bucket, self._tensor.name, self._rows, self._abs, relative, self._ulp, self._flips, self._nans
        )

    def _argmax_flips(self, one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> int:
        axis = self._tensor.batch_axis
        count = 1 if axis is None else self._bucket
        rows = [np.moveaxis(array, axis or 0, 0).reshape(count, -1) if array.size else array for array in (one, other)]
        return int(np.count_nonzero(rows[0].argmax(1) != rows[1].argmax(1)))


def _ulps(one: Array, other: Array, where: npt.NDArray[np.bool_]) -> int:
    """The most numbers of the type that lie between two elements."""
    places = [_place(array) for array in (one, other)]
    return int(np.max(np.abs(places[0] - places[1]), initial=0, where=where))


def _place(array: Array) -> npt.NDArray[np.int64]:
    """Each number's place in the order of all numbers of its type; -0 and +0 share one."""
    size = array.dtype.itemsize
    bits = array.view(f"i{size}").astype(np.int64)
    lowest = -(2 ** (8 * size - 1))
    return np.asarray(np.where(bits < 0, lowest - bits, bits), np.int64)
