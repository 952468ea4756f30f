"""Tables on disk, read a batch at a time: Parquet, Feather (Arrow's IPC file) and CSV."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
from pyarrow import csv, ipc, parquet

from tickpath.score.errors import ScoreError

SUFFIXES: Final = (".parquet", ".pq", ".feather", ".arrow", ".csv")


class TableFile(Protocol):
    """A table whose rows are read in order. `rows` is None where only reading it all would tell."""

    schema: Any
    rows: int | None

    def batches(self, columns: Sequence[str], skip: int, rows: int) -> Iterator[Any]:
        """RecordBatches of these columns, of at most `rows` rows each, behind the first `skip` rows."""
        ...


def open_table(path: Path) -> TableFile:
    """Raises ScoreError."""
    kinds: dict[str, Callable[[Path], TableFile]] = {
        ".parquet": _Parquet,
        ".pq": _Parquet,
        ".feather": _Feather,
        ".arrow": _Feather,
        ".csv": _Csv,
    }
    if (kind := kinds.get(path.suffix)) is None:
        raise ScoreError(f"{path}: expected a file named {', '.join(SUFFIXES)}")
    with _reading(path):
        return kind(path)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """What is wrong with a file is a ScoreError that names it."""
    try:
        yield
    except OSError as error:
        raise ScoreError(f"{path}: {_told(error)}") from None
    except pa.ArrowException as error:
        raise ScoreError(f"{path}: no whole {path.suffix} file: {' '.join(str(error).split())}") from None


def read_batches(path: Path, table: TableFile, columns: Sequence[str], skip: int, rows: int) -> Iterator[Any]:
    """As `table.batches`. Raises ScoreError."""
    with _reading(path):
        yield from table.batches(columns, skip, rows)


def _told(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else " ".join(str(error).split())


def exact_batches(batches: Iterator[Any], rows: int) -> Iterator[Any]:
    """The same rows in batches of exactly `rows`, the last one perhaps smaller, wherever the file has its borders."""
    waiting: list[Any] = []
    count = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        waiting.append(batch)
        count += batch.num_rows
        if count < rows:
            continue
        table = pa.Table.from_batches(waiting)
        whole = count // rows * rows
        for start in range(0, whole, rows):
            yield _one(table.slice(start, rows))
        waiting, count = table.slice(whole).to_batches(), count - whole
    if count:
        yield _one(pa.Table.from_batches(waiting))


def _one(table: Any) -> Any:
    return table.combine_chunks().to_batches()[0]


@dataclass
class _Parquet:
    path: Path

    def __post_init__(self) -> None:
        file = parquet.ParquetFile(self.path)
        self.schema = file.schema_arrow
        self.rows: int | None = file.metadata.num_rows

    def batches(self, columns: Sequence[str], skip: int, rows: int) -> Iterator[Any]:
        """Row groups that are skipped whole are not read."""
        with parquet.ParquetFile(self.path) as file:
            sizes = [file.metadata.row_group(index).num_rows for index in range(file.metadata.num_row_groups)]
            first = 0
            while first < len(sizes) and skip >= sizes[first]:
                skip -= sizes[first]
                first += 1
            groups = list(range(first, len(sizes)))
            yield from _behind(file.iter_batches(rows, groups, list(columns)), skip)


@dataclass
class _Feather:
    path: Path

    def __post_init__(self) -> None:
        with pa.memory_map(str(self.path)) as source:
            file = ipc.open_file(source)
            self.schema = file.schema
            self.rows: int | None = file.count_rows()

    def batches(self, columns: Sequence[str], skip: int, rows: int) -> Iterator[Any]:
        with pa.memory_map(str(self.path)) as source:
            file = ipc.open_file(source)
            for batch in _behind(map(file.get_batch, range(file.num_record_batches)), skip):
                for start in range(0, batch.num_rows, rows):
                    yield batch.slice(start, rows).select(list(columns))


@dataclass
class _Csv:
    path: Path

    def __post_init__(self) -> None:
        with csv.open_csv(self.path) as file:
            self.schema = file.schema
        self.rows: int | None = None

    def batches(self, columns: Sequence[str], skip: int, rows: int) -> Iterator[Any]:
        options = csv.ConvertOptions(include_columns=list(columns), column_types=self.schema)
        with csv.open_csv(self.path, convert_options=options) as file:
            for batch in _behind(iter(file), skip):
                for start in range(0, batch.num_rows, rows):
                    yield batch.slice(start, rows)


def _behind(batches: Iterator[Any], skip: int) -> Iterator[Any]:
    for batch in batches:
        if skip >= batch.num_rows:
            skip -= batch.num_rows
            continue
        yield batch.slice(skip) if skip else batch
        skip = 0
