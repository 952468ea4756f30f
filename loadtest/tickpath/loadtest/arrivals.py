"""Real arrival times from a file: a CSV or Parquet column, a DBN file, or plain text with one time a line.

What kind of file it is follows from its name. Every time is a whole number of nanoseconds in the end, and none is
earlier than the one before: ties are real (one packet carries many updates), a step back is an error that names its
line. What a number means is told by the caller, by the file's own type, or by its size: a time since 1970 looks
different in seconds, milliseconds, microseconds and nanoseconds. Plain text is nanoseconds.
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Final, Literal, TextIO

import numpy as np
import numpy.typing as npt

from tickpath.loadtest.errors import LoadTestError

NANOSECONDS = npt.NDArray[np.int64]
Unit = Literal["ns", "us", "ms", "s"]
NS_PER: Final[dict[Unit, int]] = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}

# The years 2000 and 2050 in seconds since 1970. What lies between is a time of day, and in one unit only.
EPOCH_S: Final = (946_684_800, 2_524_608_000)
# No time is as long, in whatever unit; a number that takes seconds to write out is none either.
DIGITS_MAX: Final = 30
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class _Times:
    """As they stand in the file: the i-th is called `place` and `numbers[i]`; in `unit`, where the file says so."""

    values: list[Decimal] | list[int]
    place: Literal["line", "row", "record"]
    numbers: list[int] | range
    unit: Unit | None = None
    plain: bool = False


def read_arrivals(path: Path, column: str | None = None, unit: Unit | None = None) -> NANOSECONDS:
    """int64[count] nanoseconds, at least one, in order. `column` names one of a CSV or Parquet file, or the time of a
    DBN record (`ts_recv` unless told otherwise); `unit` says what a number means. Raises LoadTestError."""
    try:
        times = _read(path, column)
    except OSError as error:
        raise LoadTestError(f"{path} can't be read: {error.strerror or error}") from None
    if not times.values:
        raise LoadTestError(f"{path} has no arrival times: name a file with at least one")
    times_ns = _nanoseconds(path, times, NS_PER[_unit(path, times, unit)])
    _check_order(path, times, times_ns)
    return times_ns


def _read(path: Path, column: str | None) -> _Times:
    if ".dbn" in path.suffixes:
        return _read_dbn(path, column or "ts_recv")
    if path.suffix == ".parquet":
        return _read_parquet(path, column)
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        if path.suffix == ".csv":
            return _read_csv(path, file, column)
        if column is not None:
            raise LoadTestError(f"{path} is plain text, it has no column {column!r}: name a .csv, .parquet or .dbn")
        lines = ((number, line.strip()) for number, line in enumerate(file, 1))
        return replace(_parse(path, "line", ((number, line) for number, line in lines if line)), plain=True)


def _read_csv(path: Path, file: TextIO, column: str | None) -> _Times:
    rows = csv.reader(file)
    try:
        names = next(rows, [])
        if column is None and len(names) == 1 and _is_number(names[0]):
            raise LoadTestError(
                f"{path}, line 1: the column's name was expected, a number came: put a name above it, or call it .txt"
            )
        place = _column(path, names, column)
        return _parse(path, "line", ((rows.line_num, row[place] if place < len(row) else "") for row in rows if row))
    except csv.Error as error:
        raise LoadTestError(f"{path}, line {rows.line_num}: it can't be read as CSV: {error}") from None


def _read_parquet(path: Path, column: str | None) -> _Times:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise _not_installed(path) from None
    try:
        names = parquet.read_schema(path).names
        array = parquet.read_table(path, columns=[names[_column(path, names, column)]]).column(0)
        if array.null_count:
            raise LoadTestError(f"{path}: {array.null_count:,} of {len(array):,} times are missing: leave them out")
        kind = pyarrow.types
        if kind.is_timestamp(array.type) or kind.is_integer(array.type):
            unit = array.type.unit if kind.is_timestamp(array.type) else None
            return _Times(array.cast(pyarrow.int64()).to_pylist(), "row", range(1, len(array) + 1), unit)
        return _parse(path, "row", enumerate(map(str, array.to_pylist()), 1))
    except pyarrow.ArrowException as error:
        raise LoadTestError(f"{path} can't be read as Parquet: {str(error).splitlines()[0]}") from None


def _read_dbn(path: Path, column: str) -> _Times:
    try:
        from databento_dbn import UNDEF_TIMESTAMP
    except ModuleNotFoundError:
        raise _not_installed(path) from None
    if column not in ("ts_recv", "ts_event"):
        raise LoadTestError(f"{path}: a DBN record's times are ts_recv and ts_event, {column!r} came")
    times = [time for record in _dbn_records(path) if (time := getattr(record, column, None)) is not None]
    if UNDEF_TIMESTAMP in times:
        number = times.index(UNDEF_TIMESTAMP) + 1
        raise LoadTestError(f"{path}, record {number}: {column} is undefined: name the column ts_recv or ts_event")
    if not times:
        raise LoadTestError(f"{path} has no record with {column}: name the column ts_recv or ts_event")
    return _Times(times, "record", range(1, len(times) + 1), "ns")


def _dbn_records(path: Path) -> Iterator[object]:
    """The metadata, then the records."""
    from databento_dbn import Compression, DBNDecoder, DBNError

    with path.open("rb") as file:
        packed = file.read(len(ZSTD_MAGIC)) == ZSTD_MAGIC
        file.seek(0)
        decoder = DBNDecoder(compression=Compression.from_str("zstd" if packed else "none"))
        try:
            while chunk := file.read(READ_BYTES):
                yield from decoder.write_and_decode(chunk)
        except (DBNError, RuntimeError) as error:
            raise LoadTestError(f"{path} can't be read as DBN: {error}") from None
        if decoder.buffer():
            raise LoadTestError(f"{path} ends within a record, it has been cut off: fetch it again")


def _parse(path: Path, place: Literal["line", "row"], cells: Iterable[tuple[int, str]]) -> _Times:
    """From each cell's text, with the number of its line or row beside it."""
    numbers, values = [], []
    for number, text in cells:
        try:
            value = Decimal(text.strip())
        except InvalidOperation:
            value = Decimal("NaN")
        if not value.is_finite() or value.adjusted() > DIGITS_MAX:
            raise LoadTestError(f"{path}, {place} {number}: a number was expected, {text[:40]!a} came")
        numbers.append(number)
        values.append(value)
    return _Times(values, place, numbers)


def _is_number(text: str) -> bool:
    try:
        return Decimal(text.strip()).is_finite()
    except InvalidOperation:
        return False


def _column(path: Path, names: list[str], column: str | None) -> int:
    """Which of the columns it is. It need not be named where there is but one."""
    if column is None and len(names) == 1:
        return 0
    if column not in names:
        wanted = "name a column" if column is None else f"there is no column {column!r}"
        raise LoadTestError(f"{path}: {wanted}; it has {', '.join(names) or 'none'}")
    return names.index(column)


def _unit(path: Path, times: _Times, named: Unit | None) -> Unit:
    """What the numbers are: as the file's type says, as named, as the kind of file has it, or as their size tells."""
    if times.unit and named not in (None, times.unit):
        raise LoadTestError(f"{path} says that its times are {times.unit}, {named} was named: leave the unit out")
    if times.unit:
        return times.unit
    first, last = times.values[0], times.values[-1]
    looks = next((unit for unit in NS_PER if _in_epoch(first, unit) and _in_epoch(last, unit)), None)
    unit = named or ("ns" if times.plain else looks)
    if unit is None:
        raise LoadTestError(f"{path}: {first} to {last} may be in any unit: name it, one of {', '.join(NS_PER)}")
    if looks not in (None, unit):
        raise LoadTestError(
            f"{path}: {unit} was expected, {first} looks like {looks} since 1970: name the unit {looks}; "
            f"if it is {unit} all the same, subtract the first time from every one"
        )
    return unit


def _in_epoch(value: Decimal | int, unit: Unit) -> bool:
    return EPOCH_S[0] <= int(value) * NS_PER[unit] // NS_PER["s"] < EPOCH_S[1]


def _nanoseconds(path: Path, times: _Times, ns_per: int) -> NANOSECONDS:
    """Exact: what stands in the file is decimal, and a float can't hold today's time to the nanosecond."""
    try:
        return np.array([round(value * ns_per) for value in times.values], np.int64)
    except OverflowError:
        raise LoadTestError(f"{path}: times reach beyond 292 years in nanoseconds: name another unit") from None


def _check_order(path: Path, times: _Times, times_ns: NANOSECONDS) -> None:
    back = np.flatnonzero(np.diff(times_ns) < 0)
    if not len(back):
        return
    place, number = times.place, times.numbers[int(back[0]) + 1]
    behind_ns = int(times_ns[back[0]] - times_ns[back[0] + 1])
    raise LoadTestError(
        f"{path}, {place} {number}: {behind_ns:,} ns before the time above it, the first of {len(back):,} such: "
        "sort the file by time, or name the column of receive times"
    )


def _not_installed(path: Path) -> LoadTestError:
    return LoadTestError(f"{path} can't be read: pip install 'tickpath[replay]'")
