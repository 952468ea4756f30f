"""`tickpath call`: inputs from files or a seed, one or many requests, the answer and where its time went."""

import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tickpath.client import Client, Prediction
from tickpath.console.errors import ConsoleError
from tickpath.console.tensors import describe
from tickpath.loadtest.latency import summarise
from tickpath.loadtest.stages import NANOSECONDS, breakdown
from tickpath.wire import ModelInfo, TensorInfo

Array = npt.NDArray[np.generic]
RANDOM = "random"


@dataclass(frozen=True, slots=True)
class Answers:
    """The last prediction of `len(total_ns)` equal requests, and the spans of them all."""

    prediction: Prediction
    total_ns: NANOSECONDS
    stages_ns: dict[str, NANOSECONDS]


def parse_sources(texts: Iterable[str]) -> dict[str, str]:
    """`x=FILE.npy`, `x=random` or, for all of its elements, `x=NUMBER`; one for each input. Raises ConsoleError."""
    sources: dict[str, str] = {}
    for text in texts:
        name, _, source = text.partition("=")
        if not (name and source):
            raise ConsoleError(f"--input is INPUT=FILE.npy, INPUT=NUMBER or INPUT=random, {text!r} came")
        if name in sources:
            raise ConsoleError(f"--input {name} is given twice, {sources[name]} and {source}: choose one")
        sources[name] = source
    return sources


def make_inputs(model: ModelInfo, sources: dict[str, str], rows: int) -> dict[str, Array]:
    """Arrays by input name: read from a .npy file, drawn from a seed where the source is "random", or filled with one
    number. Raises ConsoleError."""
    known = {tensor.name: tensor for tensor in model.inputs}
    wanted = ", ".join(describe(tensor) for tensor in model.inputs)
    for name in sources:
        if name not in known:
            raise ConsoleError(f"{model.name} has no input {name!r}; it takes {wanted}")
    missing = [tensor.name for tensor in model.inputs if tensor.name not in sources and not tensor.optional]
    if missing:
        options = " ".join(f"--input {name}=FILE.npy" for name in missing)
        raise ConsoleError(f"{model.name} takes {wanted}; add {options}, or =random")
    return {name: _make(known[name], source, rows) for name, source in sources.items()}


def _make(tensor: TensorInfo, source: str, rows: int) -> Array:
    if source == RANDOM:
        return draw(tensor, rows)
    number = _number(source)
    return _read(Path(source)) if number is None else _fill(tensor, number, rows)


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def _fill(tensor: TensorInfo, number: int | float, rows: int) -> Array:
    """Never another number than was typed: no 1.5 in an int64, no 300 in a uint8. Floats round, as they do."""
    typed = np.full(tensor.shape_at(rows), number)
    with np.errstate(invalid="ignore"):  # what does not fit is told below
        filled = typed.astype(tensor.dtype)
    if filled.dtype.kind != "f" and not np.array_equal(filled, typed):
        raise ConsoleError(f"{tensor.name} is {tensor.dtype}, which has no {number}")
    return filled


def draw(tensor: TensorInfo, rows: int) -> Array:
    """The same array each time for the same tensor and rows: normal floats, whole numbers below 10, booleans."""
    rng = np.random.default_rng(zlib.crc32(tensor.name.encode()))
    shape, dtype = tensor.shape_at(rows), np.dtype(tensor.dtype)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2 if dtype.kind == "b" else 10, shape).astype(dtype)


def call(client: Client, model: str, inputs: dict[str, Array], rows: int | None, count: int) -> Answers:
    """Ask `count` times, one at a time. Raises TickpathError."""
    times_ns = np.empty((count, 2), np.int64)
    stamps_ns = np.empty((count, 6), np.int64)
    for index in range(count):
        sent_ns = time.monotonic_ns()
        prediction = client.infer(model, inputs, rows=rows)
        times_ns[index] = sent_ns, time.monotonic_ns()
        stamps_ns[index] = prediction.stamps
    sent, done = times_ns.T
    return Answers(prediction, done - sent, breakdown(sent, done, stamps_ns))


def plain_answer(model: str, answers: Answers) -> dict[str, object]:
    """For programs. Floats that JSON can't say become null when it is encoded."""
    prediction = answers.prediction
    return {
        "model": model,
        "version": prediction.version,
        "flags": [flag.name for flag in prediction.flags],
        "age_ns": prediction.age_ns,
        "outputs": {name: array.tolist() for name, array in prediction.outputs.items()},
        "count": len(answers.total_ns),
        "total_us": _plain_summary(answers.total_ns),
        "stages_us": {name: _plain_summary(values_ns) for name, values_ns in answers.stages_ns.items()},
    }


def _plain_summary(values_ns: NANOSECONDS) -> dict[str, float]:
    summary = summarise(values_ns)
    spans_ns = {
        "p50": summary.p50_ns,
        "p90": summary.p90_ns,
        "p99": summary.p99_ns,
        "p999": summary.p999_ns,
        "max": summary.max_ns,
        "mean": summary.mean_ns,
    }
    return {name: round(span_ns / 1000, 3) for name, span_ns in spans_ns.items()}


def _read(path: Path) -> Array:
    try:
        array = np.load(path, allow_pickle=False)
    except OSError as error:
        raise ConsoleError(f"{path}: {error.strerror or error}: a .npy file, a number or random expected") from None
    except (ValueError, EOFError, MemoryError):
        raise ConsoleError(
            f"{path} is not a .npy file of numbers; write one with numpy.save({str(path)!r}, array)"
        ) from None
    if not isinstance(array, np.ndarray):
        raise ConsoleError(f"{path} holds several arrays (.npz); save each with numpy.save")
    return array
