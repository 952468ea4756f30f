"""Scoring on Ray Data: each worker holds the model once, and answers batches as `score_table` does.

Rules
- The model's files lie at the same path on every machine. A worker whose file is another one, by its sha256, refuses.
- Answers are those of `score_table` bit for bit where a request is one row, wherever Ray cuts its blocks. With more
  rows a request is cut where Ray's batches end, so that a row may be asked with others than in a plain table.
- Ray Data promises no order of rows: keep a column to know them by, or set `preserve_order`
  (ray.data.DataContext.get_current().execution_options), which costs throughput.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tickpath.engines import ModelRefusedError
from tickpath.score.errors import ScoreError
from tickpath.score.scorer import OnBadRow, open_scorer
from tickpath.score.tables import score_table

# Rows that a worker is given at once: what is done once for each batch then does not count, and a worker that is lost
# loses little.
BATCH_ROWS: Final = 4096


def score_dataset(
    dataset: Any,
    model: str | Path,
    *,
    workers: int = 1,
    rows: int = 1,
    inputs: Mapping[str, str] | None = None,
    cast: bool = False,
    on_bad_row: OnBadRow = "fail",
    keep: Sequence[str] = (),
    **settings: Any,
) -> Any:
    """The answers to each row of a ray.data.Dataset, as a lazy one. `workers`: processes that hold the model, of one
    processor each; `settings` as open_scorer's, all else as score_table's. A bad row is named by its place in its
    batch. Raises ConfigError, ModelRefusedError, ScoreError; what a worker raises comes as Ray has it, once the dataset
    is read."""
    path = Path(model).resolve()
    with open_scorer(path, rows=rows, **settings) as scorer:
        sha256 = scorer.spec.sha256
    wishes = {"inputs": dict(inputs or {}), "cast": cast, "on_bad_row": on_bad_row, "keep": list(keep)}
    return dataset.map_batches(
        _Worker,
        fn_constructor_kwargs={"model": path, "sha256": sha256, "rows": rows, "settings": settings, "wishes": wishes},
        batch_size=max(BATCH_ROWS // rows, 1) * rows,
        batch_format="pyarrow",
        zero_copy_batch=True,
        num_cpus=1,
        concurrency=workers,
    )


class _Worker:
    """One model in one process of Ray's."""

    def __init__(self, model: Path, sha256: str, rows: int, settings: dict[str, Any], wishes: dict[str, Any]) -> None:
        # Arithmetic of numpy's own on this side is copying alone.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        self._scorer = open_scorer(model, rows=rows, **settings)
        self._wishes = wishes
        if self._scorer.spec.sha256 != sha256:
            raise ModelRefusedError(
                f"{model}: sha256 {sha256} expected, as where the job was started, {self._scorer.spec.sha256} is here: "
                "copy the file to every machine"
            )

    def __call__(self, batch: Any) -> Any:
        if not isinstance(batch, pa.Table):
            raise ScoreError(f"expected a pyarrow.Table from Ray, {type(batch).__name__} came")
        return score_table(self._scorer, batch, **self._wishes)
