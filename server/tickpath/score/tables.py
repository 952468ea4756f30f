"""Tables in memory: pandas or pyarrow in, the same kind out."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tickpath.score.answers import answer_batch, answer_schema
from tickpath.score.errors import ScoreError
from tickpath.score.scorer import OnBadRow, Scorer, open_scorer

# Rows that are looked at together: enough that what is done once for each batch does not count.
BATCH_ROWS: Final = 65_536


def score_table(
    model: Scorer | str | Path,
    table: Any,
    *,
    inputs: Mapping[str, str] | None = None,
    cast: bool = False,
    on_bad_row: OnBadRow = "fail",
    keep: Sequence[str] = (),
) -> Any:
    """The answers to each row of a pandas.DataFrame or pyarrow.Table, as the same kind of table, in the same order; a
    DataFrame keeps its index.

    `model`: a Scorer, or what `open_scorer` takes. `inputs`: input -> columns, as `--input` says them: `"a,b"`,
    `"prefix*"`, a number. `keep`: columns of the input to have beside the answers. Raises ScoreError, BadRowError,
    and as open_scorer."""
    if not isinstance(model, Scorer):
        with open_scorer(model) as scorer:
            return score_table(scorer, table, inputs=inputs, cast=cast, on_bad_row=on_bad_row, keep=keep)
    if isinstance(table, pa.Table):
        return _score_arrow(model, table, inputs or {}, cast, on_bad_row, keep)
    if not hasattr(table, "columns") or not hasattr(table, "index"):
        raise ScoreError(f"expected a pandas.DataFrame or a pyarrow.Table, {type(table).__name__} came")
    try:
        arrow = pa.Table.from_pandas(table, preserve_index=False)
    except (pa.ArrowException, TypeError) as error:
        raise ScoreError(f"pyarrow takes no such DataFrame: {' '.join(str(error).split())}") from None
    scored = _score_arrow(model, arrow, inputs or {}, cast, on_bad_row, keep).to_pandas()
    scored.index = table.index
    return scored


def kept_fields(schema: Any, keep: Sequence[str]) -> list[Any]:
    """The fields of these columns; `*` alone: of all. Raises ScoreError."""
    names = list(schema.names) if list(keep) == ["*"] else list(keep)
    if strange := [name for name in names if name not in schema.names]:
        raise ScoreError(f"no column {strange[0]!r} to keep; the table has {', '.join(schema.names) or 'none'}")
    return [schema.field(name) for name in names]


def _score_arrow(
    scorer: Scorer, table: Any, inputs: Mapping[str, str], cast: bool, on_bad_row: OnBadRow, keep: Sequence[str]
) -> Any:
    sources = scorer.sources(table.schema, inputs, cast)
    kept = kept_fields(table.schema, keep)
    schema = answer_schema(scorer, kept)
    step = BATCH_ROWS // scorer.rows * scorer.rows
    batches = []
    for start in range(0, table.num_rows, step):
        # Of a table without columns only the number of rows is left.
        batch = table.slice(start, step).combine_chunks().to_batches()[0]
        scores = scorer.score(batch, sources, start, on_bad_row)
        batches.append(answer_batch(scorer, schema, [batch.column(field.name) for field in kept], scores))
    return pa.Table.from_batches(batches, schema)
