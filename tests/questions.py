"""Requests whose answers are known: onnxruntime was asked directly, with the very batch that a server has to run.

Two sources: the real models on windows of real market data where the folder of real inputs is there, and zoo models on
drawn numbers, so that a checkout alone goes the same way.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from tests.inputs import inputs_root
from tests.market_data import Windows, bar_windows, book_windows
from tests.reference import reference_session

from tickpath.client import BadValueError, Prediction, RefusedError
from tickpath.engines.zoo import build
from tickpath.graphs import DEFAULT_BUCKETS

TRADING_BOT = "models/trading_bot/BTCUSDT/basic/2025-09-17_1h_v1/model.onnx"
DEEPLOB = "models/deeplob_serve"

# One request in so many has a hole in its data.
HOLES = 40


@dataclass(frozen=True)
class Case:
    """A model of one input and one output, and what to ask it.

    `windows`: what requests are cut from, one row each. `whole`: the model has no batch axis, and a request is exactly
    so many windows (0: it has one, and takes 1 to 8). `rows_fixed`: the batch size of the file, told to be one.
    `single`: a file with the same weights that takes one row alone.
    """

    name: str
    path: Path
    single: Path
    windows: Windows
    requests: int
    whole: int = 0
    rows_fixed: int | None = None

    @property
    def buckets(self) -> tuple[int, ...]:
        return (self.rows_fixed,) if self.rows_fixed else DEFAULT_BUCKETS

    @property
    def entry(self) -> dict[str, Any]:
        """For the server's configuration."""
        entry: dict[str, Any] = {"path": str(self.path), "name": self.name}
        if self.rows_fixed:
            name = onnx.load(self.path).graph.input[0].name
            entry["shapes"] = {name: ["N", *self.windows.shape[1:]]}
        return entry


@dataclass(frozen=True)
class Question:
    """A request to `model` and its answer, bit for bit; None where it must be refused as BAD_VALUE. `bucket`: the rows
    of the graph it runs in, `padded` of them zeros."""

    model: str
    batch: Windows
    bucket: int
    padded: int
    answer: npt.NDArray[Any] | None


def real_cases(root: Path) -> list[Case]:
    bars, books = bar_windows(root, 256), book_windows(root, 256, 100)
    bot, one, eight = root / TRADING_BOT, root / DEEPLOB / "model_b1.onnx", root / DEEPLOB / "model_b8.onnx"
    small = root / DEEPLOB / "test_model.onnx"
    return [
        Case("bot", bot, bot, bars, 300),
        Case("book_20", small, small, book_windows(root, 256, 20), 150, whole=1),
        Case("book_b1", one, one, books, 150, whole=1),
        Case("book_b8", eight, one, books, 60, whole=8),
        Case("book_b8_rows", eight, one, books, 60, rows_fixed=8),
    ]


def zoo_cases(folder: Path) -> list[Case]:
    """The same kinds of models: open, of one row, and of eight with and without a batch axis."""
    random = np.random.default_rng(0)
    books = random.standard_normal((256, 100, 40)).astype(np.float32)
    values = random.standard_normal((256, 64)).astype(np.float32)
    gru, small = _write(folder, "gru"), _write(folder, "mlp", 1)
    one, eight = _write(folder, "deeplob", 1), _write(folder, "deeplob", 8)
    return [
        Case("bot", gru, gru, books, 300),
        Case("book_20", small, small, values, 150, whole=1),
        Case("book_b1", one, one, books, 150, whole=1),
        Case("book_b8", eight, one, books, 60, whole=8),
        Case("book_b8_rows", eight, one, books, 60, rows_fixed=8),
    ]


def cases(source: str, folder: Path) -> list[Case]:
    """Those of source "real" or "zoo"; zoo models are written to `folder`."""
    if source == "zoo":
        return zoo_cases(folder)
    root = inputs_root()
    assert root is not None
    return real_cases(root)


def _write(folder: Path, name: str, rows: int | None = None) -> Path:
    """A zoo model as a file, for exactly `rows` rows where they are given."""
    model = build(name)
    if rows is not None:
        for value in (*model.graph.input, *model.graph.output):
            value.type.tensor_type.shape.dim[0].dim_value = rows
    path = folder / f"{name}_{rows}.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def questions(case: Case) -> list[Question]:
    """`case.requests` of them, of any number of rows that the model takes, cut from anywhere."""
    session = reference_session(case.path)
    (name,) = (tensor.name for tensor in session.get_inputs())
    random = np.random.default_rng(len(case.name))
    made = []
    for number in range(case.requests):
        rows = case.whole or int(random.integers(1, 9))
        batch = case.windows[random.integers(0, len(case.windows), rows)]
        bucket = case.whole or min(bucket for bucket in case.buckets if bucket >= rows)
        padded = np.concatenate([batch, np.zeros((bucket - rows, *batch.shape[1:]), batch.dtype)])
        answer = np.asarray(session.run(None, {name: padded})[0])[:rows]
        if number % HOLES == HOLES - 1:
            batch.flat[int(random.integers(0, batch.size))] = (np.nan, np.inf, -np.inf)[int(random.integers(0, 3))]
        finite = bool(np.isfinite(batch).all())
        made.append(Question(case.name, batch, 1 if case.whole else bucket, bucket - rows, answer if finite else None))
    return made


def check(question: Question, outcome: Prediction | BaseException) -> None:
    """The answer is the known one."""
    if question.answer is None:
        assert isinstance(outcome, BadValueError), outcome
        return
    assert isinstance(outcome, Prediction), outcome
    (output,) = outcome.outputs.values()
    assert (output.dtype, output.shape) == (question.answer.dtype, question.answer.shape)
    assert output.tobytes() == question.answer.tobytes()


def check_all(asked: Sequence[Question], outcomes: Iterable[Prediction | RefusedError | BaseException]) -> None:
    for question, outcome in zip(asked, outcomes, strict=True):
        check(question, outcome)


def totals(asked: Iterable[Question]) -> Counter[tuple[str, ...]]:
    """What a server must have counted when these have been answered: (metric, model, its other label)."""
    counts: Counter[tuple[str, ...]] = Counter()
    for question in asked:
        refused = question.answer is None
        counts["tickpath_requests_total", question.model, "BAD_VALUE" if refused else "OK"] += 1
        if not refused:
            counts["tickpath_graph_replays_total", question.model, str(question.bucket)] += 1
            counts["tickpath_padded_rows_total", question.model] += question.padded
    return +counts
