"""Answers as columns: a number a row, or a list of as many as the output has; null where a row has no answer."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tickpath.engines import Array, TensorSpec
from tickpath.score.errors import ScoreError
from tickpath.score.scorer import Scorer, Scores

FLAGS_COLUMN: Final = "tickpath_flags"
"""Each answer's flags, as in docs/PROTOCOL.md; there where the model's numeric policy flags."""


def answer_schema(scorer: Scorer, kept: Sequence[Any]) -> Any:
    """The schema of the scored table: the `kept` fields of the input, then the outputs. Its metadata says which model
    gave the answers. Raises ScoreError where two columns have one name."""
    fields = [*kept, *map(_field, scorer.spec.outputs)]
    if scorer.flags:
        fields.append(pa.field(FLAGS_COLUMN, pa.uint8()))
    names = [field.name for field in fields]
    if doubled := [name for name in names if names.count(name) > 1]:
        raise ScoreError(f"two columns would be named {doubled[0]!r}: leave it out of what is kept, or rename it")
    return pa.schema(fields, metadata(scorer))


def metadata(scorer: Scorer) -> dict[str, str]:
    """What a scored table says of where its answers are from."""
    config, spec = scorer.config, scorer.spec
    return {
        "tickpath.version": version("tickpath"),
        "tickpath.model": config.served_name,
        "tickpath.model_version": config.version,
        "tickpath.model_sha256": spec.sha256,
        "tickpath.engine": spec.runtime,
        "tickpath.precision": spec.precision,
        "tickpath.buckets": ",".join(map(str, scorer.buckets)),
        "tickpath.rows_per_request": str(scorer.rows),
        "tickpath.non_finite": config.non_finite,
    }


def answer_batch(scorer: Scorer, schema: Any, kept: Sequence[Any], scores: Scores) -> Any:
    """The kept columns of a batch and the answers to it, as a pyarrow.RecordBatch of that schema."""
    missing = np.zeros(len(scores.flags), bool)
    missing[list(scores.bad)] = True
    columns = [*kept, *(_column(values, missing) for values in scores.outputs)]
    if scorer.flags:
        columns.append(pa.array(scores.flags, mask=missing))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _field(tensor: TensorSpec) -> Any:
    size = int(np.prod(tensor.shape, dtype=np.int64))
    kind = pa.from_numpy_dtype(tensor.dtype)
    shape = {"tickpath.shape": ",".join(map(str, tensor.shape))}
    return pa.field(tensor.name, kind if size == 1 else pa.list_(kind, size), metadata=shape)


def _column(values: Array, missing: Array) -> Any:
    if values.shape[1] == 1:
        return pa.array(values[:, 0], mask=missing)
    flat = pa.array(values.reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1], mask=pa.array(missing))
