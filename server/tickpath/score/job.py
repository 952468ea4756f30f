"""From a table on disk to its answers on disk, by batches in bounded memory, and on from where it was broken off."""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyarrow import parquet

from tickpath.score.answers import answer_batch, answer_schema, metadata
from tickpath.score.errors import ScoreError
from tickpath.score.parts import Job, Parts, parts_beside
from tickpath.score.reading import exact_batches, open_table, read_batches
from tickpath.score.scorer import OnBadRow, Scorer
from tickpath.score.tables import kept_fields

# A part and all that is made of it: a few times this is what scoring needs beside the model.
PART_BYTES_MAX: Final = 16 * 1024 * 1024
# What a process that is killed loses of its work.
PART_S_MAX: Final = 5.0
# Of the written file. What Parquet's readers are made for.
GROUP_BYTES_MAX: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Wishes:
    """How a table is to be scored, as `score_table` has it."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    cast: bool = False
    on_bad_row: OnBadRow = "fail"
    keep: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scored:
    """What came of it. `taken_up`: rows of an earlier run. `bad`: rows without an answer in this run, and why the first
    has none."""

    rows: int
    taken_up: int
    bad: int
    first_bad: str


@dataclass(frozen=True, slots=True)
class Listener:
    """Who is told: `say` a line for people; `begin` how many rows there are (None: unknown) and are done; `advance` by
    how many."""

    say: Callable[[str], object]
    begin: Callable[[int | None, int], object]
    advance: Callable[[int], object]


def score_file(scorer: Scorer, source: Path, out: Path, wishes: Wishes, listener: Listener) -> Scored:
    """Write the answers to the rows of `source` to `out`, a Parquet file that appears whole. Raises ScoreError,
    BadRowError, DeviceLostError, OSError; parts that are done are then kept for the next run."""
    table = open_table(source)
    sources = scorer.sources(table.schema, wishes.inputs, wishes.cast)
    kept = kept_fields(table.schema, wishes.keep)
    schema = answer_schema(scorer, kept)
    columns = dict.fromkeys([*(name for s in sources if s for name in s.columns), *(each.name for each in kept)])
    with parts_beside(out) as parts:
        parts.take_up(_job(scorer, source, wishes), listener.say)
        taken_up, bad, first_bad = parts.rows, 0, ""
        listener.begin(table.rows, taken_up)
        rows = _part_rows(scorer, len(columns))
        for batch in exact_batches(read_batches(source, table, list(columns), taken_up, rows), rows):
            scores = scorer.score(batch, sources, parts.rows, wishes.on_bad_row)
            if scores.bad and not bad:
                first = min(scores.bad)
                first_bad = f"row {parts.rows + first}: {scores.bad[first]}"
            bad += len(scores.bad)
            parts.add(answer_batch(scorer, schema, [batch.column(each.name) for each in kept], scores))
            listener.advance(batch.num_rows)
        _write(parts, out, schema)
        parts.remove()
    return Scored(parts.rows, taken_up, bad, first_bad)


def _job(scorer: Scorer, source: Path, wishes: Wishes) -> Job:
    """All that the answers depend on."""
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    settings = {
        key: value for key, value in msgspec.structs.asdict(scorer.config).items() if key not in ("path", "live")
    }
    return {
        **metadata(scorer),
        "table": digest,
        "settings": msgspec.json.encode(settings, order="sorted").decode(),
        "inputs": msgspec.json.encode(wishes.inputs, order="sorted").decode(),
        "cast": str(wishes.cast),
        "on_bad_row": wishes.on_bad_row,
        "keep": ",".join(wishes.keep),
    }


def _part_rows(scorer: Scorer, columns: int) -> int:
    """The rows of a part: a whole number of requests, so that none is cut in two wherever a run is broken off."""
    spec = scorer.spec
    row_bytes = sum(tensor.row_bytes for tensor in (*spec.inputs, *spec.outputs)) + 16 * columns
    by_time = int(PART_S_MAX * 1e9 / max(scorer.request_ns, 1))
    return max(1, min(PART_BYTES_MAX // row_bytes // scorer.rows, by_time)) * scorer.rows


def _write(parts: Parts, out: Path, schema: Any) -> None:
    """All parts as one file, in row groups of a good size; renamed when it is whole."""
    unfinished = out.with_name(f".{out.name}.tmp")
    try:
        with parquet.ParquetWriter(unfinished, schema) as writer:
            waiting: list[Any] = []
            for table in parts.read():
                waiting.append(table)
                if sum(each.nbytes for each in waiting) >= GROUP_BYTES_MAX:
                    writer.write_table(pa.concat_tables(waiting))
                    waiting = []
            if waiting:
                writer.write_table(pa.concat_tables(waiting))
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(unfinished, out)
    except pa.ArrowException as error:
        raise ScoreError(f"{out}: {' '.join(str(error).split())}") from None
    finally:
        unfinished.unlink(missing_ok=True)
