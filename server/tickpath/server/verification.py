"""Whether a model that is captured and warm gives the right answers.

Theory of operation. Answers are expected of one place and compared with those of every bucket's slot, with rows left
over at the end, so that padding is compared too. What is right, in this order:
- the golden sample beside the model (golden.py);
- for another engine than the CPU's: the CPU engine, on seeded rows, where the .onnx file is there;
- else the model's own answers in its smallest bucket, on seeded rows: then its buckets agree at least.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from tickpath.engines import Array, Engine, EngineFailedError, EngineSpec, ModelRefusedError, TensorSpec
from tickpath.engines.probing import take
from tickpath.graphs import Slot
from tickpath.server.config import ModelConfig
from tickpath.server.cpu_source import load_source, runs_on_cpu, source_of
from tickpath.server.golden import GOLDEN_FILE, GoldenSample, read_golden

# Other kernels add up in another order, and buckets have other kernels. float32 leaves seven digits, of which long sums
# lose three; what computes in less than 24 bits somewhere leaves two.
RTOL: Final = {"float64": 1e-6, "float32": 1e-4}
RTOL_REDUCED: Final = 1e-2
# Seeded rows beyond the largest bucket: each bucket then runs full, and nearly each padded.
ROWS_OVER: Final = 3
# And no more than this: the smallest bucket runs them one by one.
SEEDED_ROWS_MAX: Final = 131


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far an answer may be from what is expected: `atol + rtol * |expected|`; integers and bools must be equal.

    `atol` None: `rtol` of the output's largest expected value, since what is near zero may be a sum of such.
    """

    rtol: float
    atol: float | None = None


class Difference(msgspec.Struct, frozen=True):
    """How far one output is from what is expected.

    `abs_max`: the largest difference; `rel_max`: the same as a share of the output's largest expected value. Both None
    where a NaN or an infinity stands on one side only. `row`: where that is, counted from 0.
    """

    output: str
    abs_max: float | None
    rel_max: float | None
    row: int
    within: bool

    def describe(self) -> str:
        """For people."""
        if self.abs_max is None:
            return (
                f"{self.output!r} has a NaN or an infinity in row {self.row} that is not expected, or lacks one that is"
            )
        if self.abs_max == 0:
            return f"{self.output!r} does not differ"
        share = "" if self.rel_max is None else f", {self.rel_max:.1e} of its largest value"
        return f"{self.output!r} differs by up to {self.abs_max:.2g}{share} (row {self.row})"


class Report(msgspec.Struct, frozen=True):
    """What a verification saw: `against` what, how many `rows` in each of which `buckets`, and the largest difference
    of each output over all of them."""

    against: str
    rows: int
    buckets: tuple[int, ...]
    rtol: float
    outputs: tuple[Difference, ...]

    @property
    def passed(self) -> bool:
        return all(output.within for output in self.outputs)

    def describe(self) -> str:
        """For people, in one line."""
        worst = [output for output in self.outputs if not output.within] or self.outputs
        return f"{self.against} ({self.rows}): {'; '.join(output.describe() for output in worst)}"


def verify(config: ModelConfig, engine: Engine, slots: Sequence[Slot]) -> Report:
    """Compare the answers of every slot with what is right. Raises ModelRefusedError where they are not, or where the
    golden sample can't be used."""
    path = Path(config.path)
    try:
        against, sample = _expected(config, engine, slots)
        tolerance = tolerance_of(config, engine.spec)
        report = compare_slots(against, engine.spec, slots, sample, tolerance)
    except EngineFailedError as error:
        raise ModelRefusedError(f"{path}: it fails while it is verified ({error})") from None
    if not report.passed:
        raise ModelRefusedError(f"{path}: its answers are not right by {report.describe()}; rtol is {report.rtol:g}")
    return report


def tolerance_of(config: ModelConfig, spec: EngineSpec) -> Tolerance:
    """As configured, or by what the model computes in."""
    rtol = config.rtol if config.rtol is not None else RTOL.get(spec.precision, RTOL_REDUCED)
    return Tolerance(rtol, config.atol)


def compare_slots(
    against: str, spec: EngineSpec, slots: Sequence[Slot], sample: GoldenSample, tolerance: Tolerance
) -> Report:
    """What each slot answers to the sample's inputs, compared with the sample's outputs. Raises EngineFailedError."""
    found = []
    for slot in slots:
        answered = answers(slot, spec, sample.inputs, sample.rows)
        trios = zip(spec.outputs, sample.outputs, answered, strict=True)
        found.append([compare(tensor, right, answer, tolerance) for tensor, right, answer in trios])
    worst = tuple(max(column, key=_distance) for column in zip(*found, strict=True))
    return Report(against, sample.rows, tuple(slot.bucket for slot in slots), tolerance.rtol, worst)


def compare(tensor: TensorSpec, expected: Array, answer: Array, tolerance: Tolerance) -> Difference:
    """One output's answers, of the same shape, NaN being equal to NaN."""
    if expected.size == 0:
        return Difference(tensor.name, 0.0, 0.0, 0, True)
    right, given = (array.astype(np.float64) for array in (expected, answer))
    with np.errstate(invalid="ignore"):
        apart = np.where((right == given) | (np.isnan(right) & np.isnan(given)), 0.0, np.abs(right - given))
    apart[~np.isfinite(apart)] = np.inf
    largest = float(np.max(np.abs(right), initial=0.0, where=np.isfinite(right)))
    place = int(np.argmax(apart))
    abs_max = float(apart.flat[place])
    return Difference(
        tensor.name,
        abs_max if np.isfinite(abs_max) else None,
        abs_max / largest if np.isfinite(abs_max) and largest else (0.0 if abs_max == 0 else None),
        _row(tensor, expected, place),
        bool((apart <= _allowed(right, largest, tolerance, expected.dtype)).all()),
    )


def answers(slot: Slot, spec: EngineSpec, inputs: Sequence[Array | None], rows: int) -> list[Array]:
    """The outputs for these inputs, run through this slot in pieces as large as its bucket; what is left over at the
    end runs padded, as a request would. Raises EngineFailedError."""
    pieces = []
    for start in range(0, rows, slot.bucket):
        part = range(start, min(start + slot.bucket, rows))
        slot.fill(len(part), [_raw(array, tensor, part) for array, tensor in zip(inputs, spec.inputs, strict=True)])
        slot.replay()
        views = zip(slot.read(len(part)), spec.outputs, strict=True)
        pieces.append([np.frombuffer(bytes(v), t.dtype).reshape(t.shape_at(len(part))) for v, t in views])
    return [_joined(parts, tensor) for parts, tensor in zip(zip(*pieces, strict=True), spec.outputs, strict=True)]


def _expected(config: ModelConfig, engine: Engine, slots: Sequence[Slot]) -> tuple[str, GoldenSample]:
    path = Path(config.path)
    golden = path.with_name(config.golden or GOLDEN_FILE)
    if config.golden is not None or golden.exists():
        sample = read_golden(golden, engine.spec)
        if config.non_finite == "refuse":
            _check_finite(golden, engine.spec, sample)
        return golden.name, sample
    rows = min(slots[-1].bucket + ROWS_OVER, SEEDED_ROWS_MAX)
    if runs_on_cpu(engine.spec) or (source := source_of(path)) is None:
        inputs, rows = seeded_inputs(engine, rows)
        right = answers(slots[0], engine.spec, inputs, rows)
        return f"bucket {slots[0].bucket} on seeded rows", GoldenSample(rows, tuple(inputs), tuple(right))
    return f"the CPU engine on {source.name}, seeded rows", _of_cpu_engine(source, config, engine.spec, rows)


def _of_cpu_engine(source: Path, config: ModelConfig, spec: EngineSpec, rows: int) -> GoldenSample:
    reference = load_source(source, config, spec)
    try:
        return make_golden(reference, *seeded_inputs(reference, rows))
    finally:
        reference.close()


def make_golden(engine: Engine, inputs: Sequence[Array | None], rows: int) -> GoldenSample:
    """What a trusted engine answers to these inputs. Raises EngineFailedError."""
    slot = Slot(engine, engine.spec.rows_fixed or (rows if engine.spec.batched else 1))
    return GoldenSample(rows, tuple(inputs), tuple(answers(slot, engine.spec, inputs, rows)))


def seeded_inputs(engine: Engine, rows: int) -> tuple[Sequence[Array | None], int]:
    """Inputs that are the same in every run, and their rows: as many as asked for, or as the model takes. Raises
    ModelRefusedError."""
    rows = engine.spec.rows_fixed or (rows if engine.spec.batched else 1)
    return engine.sample(rows), rows


def _check_finite(golden: Path, spec: EngineSpec, sample: GoldenSample) -> None:
    for tensor, array in zip(spec.inputs, sample.inputs, strict=True):
        if array is not None and array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ModelRefusedError(
                f"{golden}: input {tensor.name!r} holds a NaN or an infinity, which never reaches the model: leave "
                'those rows out, or serve it with non_finite = "pass"'
            )


def _distance(difference: Difference) -> tuple[bool, float]:
    return not difference.within, np.inf if difference.abs_max is None else difference.abs_max


def _allowed(right: Array, largest: float, tolerance: Tolerance, dtype: np.dtype[np.generic]) -> Array | float:
    if dtype.kind != "f":
        return 0.0
    atol = tolerance.rtol * largest if tolerance.atol is None else tolerance.atol
    return atol + tolerance.rtol * np.abs(np.where(np.isfinite(right), right, 0.0))


def _row(tensor: TensorSpec, array: Array, place: int) -> int:
    if tensor.batch_axis is None:
        return 0
    return int(np.unravel_index(place, array.shape)[tensor.batch_axis]) // tensor.shape[tensor.batch_axis]


def _raw(array: Array | None, tensor: TensorSpec, rows: range) -> bytes | None:
    return None if array is None else take(array, tensor, rows).tobytes()


def _joined(parts: Sequence[Array], tensor: TensorSpec) -> Array:
    return parts[0] if tensor.batch_axis is None else np.concatenate(parts, tensor.batch_axis)
