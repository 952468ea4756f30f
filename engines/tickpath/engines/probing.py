"""Finds a model's outputs by running it: their shapes, their batch axes, and whether rows are independent.

Pure apart from `run`, which is the model. It never gets zero rows.

Theory of operation. Let a, b, c be rows of probe data. The model runs on (a b c), on (c a), on (b) and on (b 0).
- An output's batch axis is the one along which three rows are as long per row as two and as one.
- A row's answer must be the same in every company and place: then a request may be padded with zeros, and requests may
  share a bucket. A recurrence over the axis, a mean over the batch or one scale for all rows fails this.
- Rows differ in magnitude, so that what leaks from one to the other stands out.
A model exported for one batch size runs on all its rows, on the same rows turned by one place, and half of them zeros.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tickpath.engines.engine import ModelRefusedError
from tickpath.engines.spec import Array, TensorSpec, declaring

Run: TypeAlias = Callable[[Sequence[Array]], list[Array]]
"""The model: inputs in the order of their specs -> outputs. Raises ProbeFailedError."""


class ProbeFailedError(Exception):
    """The model did not run on a probe; the text is what the runtime said."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A way to fill probe inputs. Integers are below `below`, those of one element are `single` (None: as the others);
    floats are normal, or uniform in (0, 1] where `positive`. Below 1 all are zeros."""

    below: int
    single: int | None = None
    positive: bool = False


# Small varied numbers are valid token ids, indices and axes of most models, zeros those of nearly all; audio models
# check their sampling rate, a single integer.
PATTERNS: Final = (
    Pattern(below=3),
    Pattern(below=1),
    Pattern(below=2, positive=True),
    Pattern(below=2, single=1),
    Pattern(below=2, single=16000),
    Pattern(below=2, single=8000),
)

# Different data under which a model without a batch axis must keep its outputs' shapes.
PROBES_WITHOUT_BATCH: Final = 3

# One answer at different batch sizes comes from different kernels, which add up in another order. Relative to
# the largest.
TOLERANCE: Final[Mapping[str, float]] = {"float64": 1e-4, "float32": 1e-4}
TOLERANCE_REDUCED: Final = 1e-2

# No request brings more: the length before a frame has 32 bits.
INPUT_BYTES_MAX: Final = 2**32

_ROW_SCALES: Final = (1.0, 0.25, 4.0)


@dataclass(frozen=True, slots=True)
class Probe:
    """What is known before the model runs. `operators`: outputs whose shape may depend on data, and the operator that
    makes it so."""

    run: Run
    inputs: tuple[TensorSpec, ...]
    output_names: tuple[str, ...]
    rows_fixed: int | None
    precision: str
    operators: Mapping[str, str]

    @property
    def tolerance(self) -> float:
        return TOLERANCE.get(self.precision, TOLERANCE_REDUCED)


def find_outputs(probe: Probe) -> tuple[TensorSpec, ...]:
    """The outputs. Raises ModelRefusedError."""
    for tensor in probe.inputs:
        if tensor.default is None and tensor.row_bytes > INPUT_BYTES_MAX:
            raise _too_large(f"input {tensor.name!r}, {tensor.describe()}, is larger than any request can be")
    if all(tensor.batch_axis is None for tensor in probe.inputs):
        return _without_batch(probe)
    if probe.rows_fixed is not None:
        return _with_fixed_rows(probe, probe.rows_fixed)
    return _with_rows(probe)


def fill(tensor: TensorSpec, pattern: Pattern, rows: int, seed: int) -> Array:
    """Probe data for an input at `rows` rows; its default where it has one."""
    if tensor.default is not None:
        return tensor.default
    shape = tensor.shape_at(rows)
    if pattern.below == 1:
        return np.zeros(shape, tensor.dtype)
    random = np.random.default_rng(seed)
    if tensor.dtype.kind == "f":
        floats = 1.0 - random.random(shape) if pattern.positive else random.standard_normal(shape)
        return np.asarray(floats * _scales(tensor, rows), dtype=tensor.dtype)
    integers = random.integers(0, pattern.below, shape)
    if pattern.single is not None and integers.size == 1:
        integers = np.full(shape, pattern.single)
    return np.asarray(integers, dtype=tensor.dtype)


def take(array: Array, tensor: TensorSpec, rows: Sequence[int | None]) -> Array:
    """The given rows of a tensor in this order, None for a row of zeros; the whole of one that has no batch axis."""
    axis = tensor.batch_axis
    if axis is None:
        return array
    places = tensor.shape[axis]
    zeros = np.zeros(tensor.shape, tensor.dtype)
    index = (slice(None),) * axis
    parts = [zeros if row is None else array[(*index, slice(row * places, (row + 1) * places))] for row in rows]
    return np.ascontiguousarray(np.concatenate(parts, axis))


def _scales(tensor: TensorSpec, rows: int) -> npt.NDArray[np.float64]:
    """A factor for each row, to be broadcast along the batch axis; inputs have one place per row."""
    if tensor.batch_axis is None:
        return np.ones(())
    factors = np.resize(np.asarray(_ROW_SCALES), rows)
    return factors.reshape([rows if axis == tensor.batch_axis else 1 for axis in range(len(tensor.shape))])


def first_run(probe: Probe, rows: int) -> tuple[list[Array], list[Array]]:
    """Inputs on which the model runs, and its answer: the first that is finite, else the first.
    Raises ModelRefusedError."""
    runs = []
    for inputs, outputs in _runs(probe, rows):
        if all(np.isfinite(output).all() for output in outputs):
            return inputs, outputs
        runs.append((inputs, outputs))
    return runs[0]


def _runs(probe: Probe, rows: int) -> Iterator[tuple[list[Array], list[Array]]]:
    """Every pattern on which the model runs. Raises ModelRefusedError where there is none."""
    said: list[str] = []
    for pattern in PATTERNS:
        try:
            inputs = [fill(tensor, pattern, rows, seed) for seed, tensor in enumerate(probe.inputs)]
            outputs = probe.run(inputs)
        except ProbeFailedError as error:
            said.append(str(error))
        except MemoryError:
            raise _too_large("there is no memory for its inputs") from None
        else:
            yield inputs, outputs
    if len(said) == len(PATTERNS):
        raise _inputs_error(probe, rows, said[0])


def _without_batch(probe: Probe) -> tuple[TensorSpec, ...]:
    answers = [outputs for _, outputs in islice(_runs(probe, 1), PROBES_WITHOUT_BATCH)]
    for name, *outputs in zip(probe.output_names, *answers, strict=True):
        if len({output.shape for output in outputs}) > 1:
            raise _shape_error(probe, name)
    return tuple(_spec(probe, name, output, None) for name, output in zip(probe.output_names, answers[0], strict=True))


def _with_rows(probe: Probe) -> tuple[TensorSpec, ...]:
    inputs, three = first_run(probe, 3)
    companies: list[list[int | None]] = [[2, 0], [1], [1, None]]
    answers = [_run(probe, inputs, rows) for rows in companies]
    specs = []
    for place, (name, whole) in enumerate(zip(probe.output_names, three, strict=True)):
        axis = _batch_axis(probe, name, whole, [answer[place] for answer in answers])
        spec = _spec(probe, name, whole, axis, rows=3)
        for rows, answer in zip(companies, answers, strict=True):
            _compare(probe, spec, whole, rows, answer[place])
        specs.append(spec)
    return tuple(specs)


def _batch_axis(probe: Probe, name: str, three: Array, others: list[Array]) -> int:
    """The axis along which an answer of three rows is thrice as long as one of one row."""
    two, one, padded = others
    if two.shape != padded.shape:
        raise _shape_error(probe, name)
    axes = [axis for axis in range(one.ndim) if one.shape[axis] != three.shape[axis]] if one.ndim == three.ndim else []
    if len(axes) == 1:
        spec = TensorSpec(name, one.dtype, one.shape, axes[0])
        if (spec.shape_at(2), spec.shape_at(3)) == (two.shape, three.shape):
            return axes[0]
    raise _axis_error(probe, f"output {name!r} has shape {one.shape} for one row and {three.shape} for three")


def _with_fixed_rows(probe: Probe, rows: int) -> tuple[TensorSpec, ...]:
    inputs, whole = first_run(probe, rows)
    turned_rows: list[int | None] = [*range(1, rows), 0]
    padded_rows: list[int | None] = [row if row < (rows + 1) // 2 else None for row in range(rows)]
    turned, padded = (_run(probe, inputs, company) for company in (turned_rows, padded_rows))
    specs = []
    for name, *answers in zip(probe.output_names, whole, turned, padded, strict=True):
        spec = _turning(probe, name, answers[0], answers[1], rows)
        _compare(probe, spec, answers[0], padded_rows, answers[2])
        specs.append(spec)
    return tuple(specs)


def _turning(probe: Probe, name: str, whole: Array, turned: Array, rows: int) -> TensorSpec:
    """The output's spec, by the axis along which its answer turned as the rows did."""
    axes = [axis for axis in range(whole.ndim) if whole.shape[axis] % rows == 0]
    # One row turns along any axis; the one of length one is most likely meant.
    for axis in sorted(axes, key=lambda axis: whole.shape[axis] != rows):
        spec = _spec(probe, name, whole, axis, rows)
        if _same(probe, take(whole, spec, [*range(1, rows), 0]), turned):
            return spec
    raise _axis_error(probe, f"output {name!r}, of shape {whole.shape}, does not follow the {rows} rows")


def _run(probe: Probe, inputs: list[Array], rows: Sequence[int | None]) -> list[Array]:
    company = [take(array, tensor, rows) for array, tensor in zip(inputs, probe.inputs, strict=True)]
    try:
        return probe.run(company)
    except ProbeFailedError as error:
        raise _axis_error(probe, f"it does not run on {len(rows)} rows ({error})") from None


def _compare(probe: Probe, spec: TensorSpec, whole: Array, rows: Sequence[int | None], answer: Array) -> None:
    """`answer`, of these rows, must be what `whole` has for them. Rows of zeros are not looked at."""
    kept = [place for place, row in enumerate(rows) if row is not None]
    expected = take(whole, spec, [row for row in rows if row is not None])
    if not _same(probe, expected, take(answer, spec, kept)):
        raise _axis_error(probe, f"in output {spec.name!r} a row's answer depends on the other rows")


def _same(probe: Probe, one: Array, other: Array) -> bool:
    if one.shape != other.shape:
        return False
    if one.dtype.kind != "f":
        return bool(np.array_equal(one, other))
    a, b = one.astype(np.float64), other.astype(np.float64)
    largest = float(np.max(np.abs(a), initial=0.0, where=np.isfinite(a)))
    return bool(np.allclose(a, b, rtol=probe.tolerance, atol=probe.tolerance * largest, equal_nan=True))


def _spec(probe: Probe, name: str, whole: Array, axis: int | None, rows: int = 1) -> TensorSpec:
    if 0 in whole.shape:
        raise _shape_error(probe, name)
    shape = tuple(size // rows if place == axis else size for place, size in enumerate(whole.shape))
    return TensorSpec(name, whole.dtype, shape, axis)


def _too_large(why: str) -> ModelRefusedError:
    return ModelRefusedError(f"{why}: if one of its sizes is wrong, give the right one with --shape")


def _shape_error(probe: Probe, name: str) -> ModelRefusedError:
    operator = probe.operators.get(name)
    return ModelRefusedError(
        f"the shape of output {name!r} depends on the data"
        + (f" (operator {operator!r})" if operator else "")
        + ": export the model with a fixed number of results, padded, or without this output"
    )


def _inputs_error(probe: Probe, rows: int, said: str) -> ModelRefusedError:
    shapes = ", ".join(f"{tensor.name} {tensor.dtype.name}{list(tensor.shape_at(rows))}" for tensor in probe.inputs)
    reason = f"it does not run on inputs {shapes} ({said})"
    if rows > 1 and probe.rows_fixed is None:
        return _axis_error(probe, reason)
    return ModelRefusedError(
        f"{reason}: if one of these sizes is wrong, give the right ones with --shape (in a configuration shapes)"
    )


def _axis_error(probe: Probe, reason: str) -> ModelRefusedError:
    batched = [tensor for tensor in probe.inputs if tensor.batch_axis is not None]
    fixed = declaring({tensor.name: tensor.shape for tensor in batched})
    return ModelRefusedError(f"{reason}, so its rows can't be batched: fix that dimension, such as {fixed}")
