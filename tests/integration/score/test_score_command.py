"""`tickpath score` as it is typed: files in and out, what is refused, and how it goes on when it was broken off."""

import fcntl
import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pytest
from pyarrow import csv, feather, parquet
from tests.onnx_models import one_node, picky, save, wide
from tests.repositories import add_version, scale

from tickpath.score import BadRowError, Scorer, open_scorer, score_table
from tickpath.score.job import Listener, Wishes, score_file
from tickpath.server.config import ModelConfig

# One row of its answers is 1 MiB, so a part has 15.
WIDTH = 262_144
# Scores until two parts are written, and then is killed.
KILLED = """
import os, signal, sys
from pathlib import Path
from tickpath.score import open_scorer
from tickpath.score.job import Listener, Wishes, score_file
parts = []
def advance(rows):
    parts.append(rows)
    if len(parts) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
model, source, out = map(Path, sys.argv[1:])
score_file(open_scorer(model), source, out, Wishes(), Listener(print, lambda *_: None, advance))
"""


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tickpath.cli", "score", *map(str, arguments)]


def score(*arguments: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=60, check=False)


def write(path: Path, **columns: Any) -> Path:
    parquet.write_table(pa.table(columns), path, row_group_size=7)
    return path


def floats(*values: float | None) -> Any:
    return pa.array(values, pa.float32())


@pytest.fixture
def wide_job(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A model, a table of several parts, and where the answers go."""
    table = write(tmp_path / "rows.parquet", x=np.arange(100, dtype=np.float32))
    return save(wide(WIDTH), tmp_path), table, tmp_path / "out.parquet"


def assert_whole(out: Path) -> None:
    """The answers to `wide_job`, and nothing else left."""
    first = [row[0].as_py() for row in parquet.read_table(out)["y"]]
    assert first == list(range(100))
    assert sorted(path.name for path in out.parent.iterdir()) == ["model.onnx", "out.parquet", "rows.parquet"]


def test_answers_are_columns_and_say_where_they_are_from(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    add_version(folder, "btc", "7", scale(2))
    add_version(folder, "btc", "10", scale(3))
    table = write(tmp_path / "rows.parquet", time=[7, 8], x=pa.array([[1, 2, 3], [4, 5, 6]], pa.list_(pa.float32())))
    for model, version, factor in ((folder / "btc", "10", 3), (folder / "btc" / "7", "7", 2)):
        done = score(model, table, out := tmp_path / "out.parquet", "--keep", "time", "--force")
        assert (done.returncode, done.stderr) == (0, "")
        assert "2 rows of x float32[N,3]" in done.stdout
        answers = parquet.read_table(out)
        assert answers.column_names == ["time", "y"]
        assert answers["y"].to_pylist() == [[factor * x for x in row] for row in ([1, 2, 3], [4, 5, 6])]
        told = {key.decode(): value.decode() for key, value in answers.schema.metadata.items()}
        assert (told["tickpath.model"], told["tickpath.model_version"]) == ("btc", version)
        assert told["tickpath.engine"].startswith("onnxruntime ")
        assert len(told["tickpath.model_sha256"]) == 64


def test_a_model_of_a_servers_configuration(tmp_path: Path) -> None:
    save(one_node("Sqrt", np.float32, ["N", 1]), tmp_path, "root.onnx")
    config = tmp_path / "tickpath.toml"
    config.write_text('[[models]]\npath = "root.onnx"\nname = "r"\nnon_finite = "flag"\noutput_non_finite = "flag"\n')
    table = write(tmp_path / "rows.parquet", x=floats(4, -1, None))
    done = score("r@1", table, out := tmp_path / "out.parquet", "--config", config)
    assert done.returncode == 0, done.stderr
    assert parquet.read_table(out)["tickpath_flags"].to_pylist() == [0, 2, 3]
    done = score("q", table, tmp_path / "q.parquet", "--config", config)
    assert done.returncode == 2
    assert "no model 'q': there are r@1" in done.stderr


def test_a_run_that_was_killed_goes_on(wide_job: tuple[Path, Path, Path]) -> None:
    model, table, out = wide_job
    killed = subprocess.run([sys.executable, "-c", KILLED, model, table, out], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert not out.exists()
    done = score(model, table, out)
    assert (done.returncode, done.stderr) == (0, f"going on behind row 29, where {out}.parts ends\n")
    assert_whole(out)


def test_a_terminal_shows_how_far_it_is(wide_job: tuple[Path, Path, Path]) -> None:
    main, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "140"}
    with subprocess.Popen(command(*wide_job), stdout=subprocess.DEVNULL, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # nobody has the other end any more
            while data := os.read(main, 1 << 16):
                shown += data
    os.close(main)
    assert process.returncode == 0
    assert b"100/100" in shown
    assert_whole(wide_job[2])


def test_a_part_that_is_damaged_is_scored_again(wide_job: tuple[Path, Path, Path]) -> None:
    model, table, out = wide_job
    subprocess.run([sys.executable, "-c", KILLED, model, table, out], check=False, timeout=60)
    _, second = sorted(Path(f"{out}.parts").glob("*.arrow"))
    content = bytearray(second.read_bytes())
    content[len(content) // 2] ^= 1
    second.write_bytes(content)
    done = score(model, table, out)
    assert done.stderr.splitlines() == [
        f"{second} is damaged: going on from the part before it",
        f"going on behind row 14, where {out}.parts ends",
    ]
    assert_whole(out)


def test_parts_of_another_job_are_not_taken_up(wide_job: tuple[Path, Path, Path]) -> None:
    model, table, out = wide_job
    write(table, x=np.zeros(100, np.float32))
    subprocess.run([sys.executable, "-c", KILLED, model, table, out], check=False, timeout=60)
    write(table, x=np.arange(100, dtype=np.float32))
    done = score(model, table, out)
    assert done.returncode == 0
    assert done.stderr.startswith(f"{out}.parts is of another job: table was ")
    assert done.stderr.endswith(": starting anew\n")
    assert_whole(out)


def test_ctrl_c_leaves_what_is_scored(wide_job: tuple[Path, Path, Path]) -> None:
    model, table, out = wide_job
    parts = Path(f"{out}.parts")
    with subprocess.Popen(command(model, table, out), stderr=subprocess.PIPE, text=True) as process:
        while not (parts.is_dir() and any(parts.glob("*.arrow"))) and process.poll() is None:
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        said = process.stderr.read()
    assert process.returncode == 130
    assert said == f"interrupted; what is scored is in {parts}: type the same again to go on\n"
    assert not out.exists()
    assert score(model, table, out).returncode == 0
    assert_whole(out)


def test_two_do_not_write_one_file(wide_job: tuple[Path, Path, Path]) -> None:
    model, table, out = wide_job
    parts = Path(f"{out}.parts")
    parts.mkdir()
    held = os.open(parts, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    done = score(model, table, out)
    os.close(held)
    assert done.returncode == 1
    assert f"another process is scoring to {out}" in done.stderr


def test_a_bad_row_is_named_or_null(tmp_path: Path) -> None:
    """NaN is refused as a server does; at 99 this model's runtime itself fails."""
    model = save(picky(), tmp_path)
    table = write(tmp_path / "rows.parquet", x=floats(*range(9), 99, 3, None, 5))
    done = score(model, table, out := tmp_path / "out.parquet")
    assert done.returncode == 1
    assert done.stderr.startswith("tickpath: row 9, counted from 0: the model's runtime failed: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "rows.parquet"]
    for rows in (1, 4):
        done = score(model, table, out, "--on-bad-row", "null", "--rows", rows, "--force")
        assert done.returncode == 0, done.stderr
        assert "2 rows have no answer; the first, row 9: the model's runtime failed" in done.stderr
        assert parquet.read_table(out)["y"].to_pylist() == [*(x * x for x in range(9)), None, 9, None, 25]


def test_the_first_bad_row_of_a_request_is_named(tmp_path: Path) -> None:
    with open_scorer(save(picky(), tmp_path), rows=4) as scorer, pytest.raises(BadRowError) as refused:
        score_table(scorer, pa.table({"x": floats(*range(6), None, 99)}))
    assert refused.value.row == 6
    assert "holds a NaN" in str(refused.value)


@pytest.mark.parametrize("suffix", [".feather", ".csv", ".pq"])
def test_other_tables(suffix: str, tmp_path: Path) -> None:
    table = pa.table({"a": [1.0, 2.0, 3.5], "b": [1, 2, 3]})
    source = tmp_path / f"rows{suffix}"
    {".feather": feather.write_feather, ".csv": csv.write_csv, ".pq": parquet.write_table}[suffix](table, source)
    done = score(
        save(one_node("Neg", np.float32, ["N", 2]), tmp_path),
        source,
        out := tmp_path / "out.parquet",
        "--cast",
        "--input",
        "x=a,b",
    )
    assert done.returncode == 0, done.stderr
    assert parquet.read_table(out)["y"].to_pylist() == [[-1, -1], [-2, -2], [-3.5, -3]]


def test_an_empty_table_has_no_answers(tmp_path: Path) -> None:
    table = write(tmp_path / "rows.parquet", x=floats())
    done = score(save(wide(3), tmp_path), table, out := tmp_path / "out.parquet")
    assert done.returncode == 0, done.stderr
    assert parquet.read_table(out).num_rows == 0
    with open_scorer(tmp_path / "model.onnx") as scorer:
        assert score_table(scorer, pa.table({"x": floats()})).num_rows == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("model.onnx", "none.parquet", "out.parquet"), 1, "none.parquet: No such file or directory"),
        (("model.onnx", "torn.parquet", "out.parquet"), 1, "torn.parquet: no whole .parquet file"),
        (("model.onnx", "rows.txt", "out.parquet"), 1, "expected a file named .parquet"),
        (("model.onnx", "rows.parquet", "rows.parquet"), 1, "is there already"),
        (("model.onnx", "rows.parquet", "out.csv"), 1, "ends in .parquet"),
        (("model.onnx", "rows.parquet", "out.parquet", "--input", "x"), 2, "expected INPUT=COLUMN"),
        (("model.onnx", "rows.parquet", "out.parquet", "--input", "x=z"), 1, "no column 'z'; the table has x, y"),
        (("model.onnx", "rows.parquet", "out.parquet", "--keep", "z"), 1, "no column 'z' to keep; the table has x, y"),
        (("model.onnx", "rows.parquet", "out.parquet", "--keep", "y"), 1, "two columns would be named 'y'"),
        (("model.onnx", "rows.parquet", "out.parquet", "--rows", "9"), 1, "the largest bucket has 8"),
        (("torn.parquet", "rows.parquet", "out.parquet"), 3, "no engine for .parquet files"),
        (("models", "rows.parquet", "out.parquet"), 2, "no model: name a file"),
    ],
)
def test_what_can_t_be_is_one_line(
    arguments: tuple[str, ...], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save(wide(3), tmp_path)
    (tmp_path / "models").mkdir()
    write(tmp_path / "rows.parquet", x=floats(1), y=floats(1))
    (tmp_path / "torn.parquet").write_bytes((tmp_path / "rows.parquet").read_bytes()[:-9])
    done = score(*arguments)
    assert done.returncode == code
    assert done.stderr.startswith("tickpath: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
    assert not (tmp_path / "out.parquet").exists()


def test_a_data_frame_keeps_its_index(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"time": [7, 8], "x": np.array([1, 2], np.float32)}, index=["a", "b"])
    scored = score_table(save(wide(2), tmp_path), frame, keep=["time"])
    assert list(scored.index) == ["a", "b"]
    assert scored["time"].tolist() == [7, 8]
    assert [row.tolist() for row in scored["y"]] == [[1, 1], [2, 2]]


def test_memory_stays_bounded(tmp_path: Path) -> None:
    """Ten times the rows, the same parts."""
    seen: list[int] = []

    class Watched(Scorer):
        def score(self, batch: Any, *rest: Any) -> Any:
            seen.append(batch.num_rows)
            return super().score(batch, *rest)

    table = write(tmp_path / "rows.parquet", x=np.arange(100, dtype=np.float32))
    with Watched(ModelConfig(str(save(wide(WIDTH), tmp_path)))) as scorer:
        score_file(scorer, table, tmp_path / "out.parquet", Wishes(), Listener(print, lambda *_: None, lambda _: None))
    assert seen == [15] * 6 + [10]
