"""Scoring on a real Ray of two processors on this machine, in its own environment of processes."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.onnx_models import picky, save

from tickpath.engines.zoo import build
from tickpath.score import open_scorer, score_table
from tickpath.score.ray import score_dataset

ROWS = 10_000
# Ray's own, of which we are no judge.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # Ray's workers stand behind all others on a busy machine, which here are other tests.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - it is spelt so
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield
    ray.shutdown()


def rows(count: int) -> Any:
    values = np.random.default_rng(0).standard_normal((count, 64), np.float32)
    return pa.table({"time": np.arange(count), "x": pa.FixedSizeListArray.from_arrays(values.reshape(-1), 64)})


def answers(table: Any) -> bytes:
    return bytes(table["y"].combine_chunks().flatten().to_numpy())


def collected(dataset: Any) -> Any:
    import ray

    return pa.concat_tables(ray.get(dataset.to_arrow_refs()))


@pytest.mark.parametrize("ordered", [False, True])
def test_the_answers_are_those_of_a_plain_table(ordered: bool, tmp_path: Path) -> None:
    import ray

    (tmp_path / "mlp.onnx").write_bytes(build("mlp").SerializeToString())
    ray.data.DataContext.get_current().execution_options.preserve_order = ordered
    table = rows(ROWS)
    dataset = ray.data.from_arrow([table.slice(start, 1_700) for start in range(0, ROWS, 1_700)])
    scored = collected(score_dataset(dataset, tmp_path / "mlp.onnx", workers=2, keep=["time"]))
    if not ordered:
        scored = scored.sort_by("time")
    assert scored["time"].to_pylist() == list(range(ROWS))
    with open_scorer(tmp_path / "mlp.onnx") as scorer:
        assert answers(scored) == answers(score_table(scorer, table))


def test_bad_rows_are_null_or_end_it(tmp_path: Path) -> None:
    import ray

    model = save(picky(), tmp_path)
    dataset = ray.data.from_arrow(pa.table({"x": pa.array([1, 99, 3], pa.float32())}))
    scored = collected(score_dataset(dataset, model, on_bad_row="null"))
    assert scored["y"].to_pylist() == [1, None, 9]
    with pytest.raises(Exception, match="row 1, counted from 0: the model's runtime failed"):
        collected(score_dataset(dataset, model))


def test_a_worker_with_another_file_refuses(tmp_path: Path) -> None:
    import ray

    model = save(picky(), tmp_path)
    dataset = score_dataset(ray.data.from_arrow(pa.table({"x": pa.array([1], pa.float32())})), model)
    save(picky(2.0), tmp_path)
    with pytest.raises(Exception, match="sha256"):
        collected(dataset)
