"""A model in this process, asked row by row of a table as a server's lane is asked by its clients.

Theory of operation
- Loading is the server's own (tickpath.server.model): the same checks, buckets, warm-up and numeric policy.
- A request is `rows` consecutive rows. It runs in the smallest bucket that holds them, with zeros behind them, so its
  answers are those of a server to the same request, bit for bit. One row of it need not have the bits that another
  number of rows would give it: matrix products round differently. Whoever compares with production asks with as many
  rows as production does; by default one.
- A request that is refused is asked again row by row, so that none suffers for another and the bad ones are known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np

from tickpath.engines import Array, EngineFailedError, EngineSpec, TensorSpec
from tickpath.graphs import bucket_index_by_rows
from tickpath.score.errors import BadRowError, ScoreError
from tickpath.score.mapping import Source, map_columns
from tickpath.score.model import find_model
from tickpath.score.rows import BadRows, read_rows
from tickpath.server.config import ModelConfig, ServerConfig
from tickpath.server.lane import AnswerRefusedError, InputRefusedError, why_failed
from tickpath.server.model import prepare_model

OnBadRow = Literal["fail", "null"]


@dataclass(frozen=True, slots=True)
class Scores:
    """The answers to a batch of rows: for each output `(rows, elements)`, each row's flags, and the rows that have no
    answer, which hold zeros, with the reason."""

    outputs: tuple[Array, ...]
    flags: Array
    bad: BadRows


class Scorer:
    """A loaded model. `rows`: how many rows of a table are one request. Raises ModelRefusedError, ScoreError,
    DeviceLostError."""

    def __init__(self, config: ModelConfig, rows: int = 1) -> None:
        self.config = config
        self._prepared = prepare_model(config, None, ServerConfig().frame_bytes_max)
        self._lane = self._prepared.lane
        self.spec: EngineSpec = self._prepared.engine.spec
        self.buckets = self._prepared.buckets
        self.rows = rows
        try:
            self._check_rows()
        except ScoreError:
            self.close()
            raise

    def close(self) -> None:
        """Give back the model's memory."""
        self._lane.close()
        self._prepared.engine.close()

    def __enter__(self) -> "Scorer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def flags(self) -> bool:
        """Whether the model's numeric policy may mark an answer."""
        return self.config.numeric.flags

    @property
    def request_ns(self) -> int:
        """What the model took for a request while it was warmed up."""
        return self._lane.compute_ns[bucket_index_by_rows(self.buckets)[self.rows]]

    def sources(self, schema: Any, asked: Mapping[str, str], cast: bool) -> tuple[Source | None, ...]:
        """Where each input comes from in a table of this pyarrow.Schema. Raises ScoreError."""
        sources = map_columns(self.spec, schema, asked, cast)
        whole = [s.tensor.name for s in sources if s and s.tensor.batch_axis is None and s.constant is None]
        if self.rows > 1 and whole:
            raise ScoreError(
                f"input {whole[0]!r} has no batch axis, so rows of its own can't share a request: ask with 1 row a "
                "request, or give it one number for all"
            )
        return sources

    def score(self, batch: Any, sources: Sequence[Source | None], first_row: int, on_bad_row: OnBadRow) -> Scores:
        """The answers to a pyarrow.RecordBatch. `first_row`: its place in the table, by which a bad row is named.
        Raises BadRowError for the first bad row, unless those are to be null; DeviceLostError."""
        count, bad = batch.num_rows, BadRows()
        inputs = [None if source is None else read_rows(batch, source, bad) for source in sources]
        outputs = tuple(np.zeros((count, _size(tensor)), tensor.dtype) for tensor in self.spec.outputs)
        scores = Scores(outputs, np.zeros(count, np.uint8), bad)
        for start in range(0, count, self.rows):
            stop = min(start + self.rows, count)
            self._request(inputs, scores, start, stop)
            if bad and on_bad_row == "fail" and (found := [row for row in range(start, stop) if row in bad]):
                raise BadRowError(first_row + found[0], bad[found[0]])
        return scores

    def _request(self, inputs: Sequence[Array | None], scores: Scores, start: int, stop: int) -> None:
        bad = scores.bad
        if bad and any(row in bad for row in range(start, stop)):
            refused = "a row is bad"
        else:
            refused = self._ask(inputs, scores, start, stop)
        if not refused:
            return
        if stop - start == 1:
            bad.setdefault(start, refused)
            return
        for row in range(start, stop):
            if row not in bad and (refused := self._ask(inputs, scores, row, row + 1)):
                bad[row] = refused

    def _ask(self, inputs: Sequence[Array | None], scores: Scores, start: int, stop: int) -> str:
        """One request. Returns why it has no answer; an empty text where it has one."""
        rows = stop - start
        pairs = zip(inputs, self.spec.inputs, strict=True)
        packed = [None if rows_of is None else _packed(rows_of, each, start, stop) for rows_of, each in pairs]
        try:
            outputs, flags = self._lane.compute(rows, packed)
        except InputRefusedError as error:
            return str(error)
        except (EngineFailedError, AnswerRefusedError) as error:
            return why_failed(error)
        for array, tensor, data in zip(scores.outputs, self.spec.outputs, outputs, strict=True):
            array[start:stop] = _unpacked(data, tensor, rows)
        scores.flags[start:stop] = flags
        return ""

    def _check_rows(self) -> None:
        """Whether requests of so many rows can be asked."""
        most = self.buckets[-1]
        if not 1 <= self.rows <= most:
            raise ScoreError(f"{self.rows} rows a request; the largest bucket has {most}: ask with fewer, or add one")
        whole = [tensor.name for tensor in self.spec.outputs if tensor.batch_axis is None]
        if self.rows > 1 and whole:
            raise ScoreError(f"output {whole[0]!r} has no batch axis, so no row has its own: ask with 1 row a request")


def open_scorer(model: str | Path, *, rows: int = 1, config: str | Path | None = None, **settings: object) -> Scorer:
    """The scorer of a model: a file, a folder of a repository, or a name in the server's `config`. `settings` are a
    server's for one model (shapes, buckets, non_finite and so on: docs/CONFIG.md). Raises ConfigError,
    ModelRefusedError, ScoreError, DeviceLostError."""
    return Scorer(find_model(Path(model), settings, Path(config) if config else None), rows)


def _size(tensor: TensorSpec) -> int:
    return int(np.prod(tensor.shape, dtype=np.int64))


def _packed(array: Array, tensor: TensorSpec, start: int, stop: int) -> memoryview:
    """So many rows of a table as a request carries them: each row's places along the batch axis, behind one another."""
    axis = tensor.batch_axis
    if axis is None or stop - start == 1 or axis == 0:
        data = array[start : start + 1] if axis is None else array[start:stop]
        return data.reshape(-1).view(np.uint8).data
    rows = np.moveaxis(array[start:stop].reshape(stop - start, *tensor.shape), 0, axis)
    return np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data


def _unpacked(data: memoryview, tensor: TensorSpec, rows: int) -> Array:
    """The other way: what an answer carries as rows of a table."""
    values: Array = np.frombuffer(data, tensor.dtype)
    axis = tensor.batch_axis
    if axis is None or rows == 1 or axis == 0:
        return values.reshape(rows, -1)
    shape = tensor.shape
    return np.moveaxis(values.reshape(*shape[:axis], rows, *shape[axis:]), axis, 0).reshape(rows, -1)
