"""Columns as the rows of an input: one C-contiguous array of the input's dtype, and what is wrong with which row.

A null in a float input is NaN, and the model's numeric policy decides; anywhere else it has no value, so its row is
bad.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tickpath.engines import Array
from tickpath.score.casting import Mask, cast_values
from tickpath.score.mapping import Source

BadRows = dict[int, str]
"""Why a row can't be asked about, by its place in the batch."""


def read_rows(batch: Any, source: Source, bad: BadRows) -> Array:
    """The input's elements, `(rows, size)`, from a pyarrow.RecordBatch; rows that have none are told in `bad` and hold
    zeros."""
    if source.constant is not None:
        return np.broadcast_to(source.constant.reshape(1, -1), (batch.num_rows, source.size)).copy()
    columns = [_Column(name, batch.column(name), source, bad) for name in source.columns]
    if len(columns) == 1 and columns[0].even_size == source.size:
        return np.ascontiguousarray(columns[0].values.reshape(batch.num_rows, source.size))
    rows = np.zeros((batch.num_rows, source.size), source.tensor.dtype)
    sizes = [column.even_size for column in columns]
    if None not in sizes and sum(size or 0 for size in sizes) == source.size:
        return _beside(rows, columns)
    for row in range(batch.num_rows):
        _put_uneven(rows, row, columns, source, bad)
    return rows


class _Column:
    """One column's elements in one dimension, of the input's dtype, and where each row's begin."""

    def __init__(self, name: str, column: Any, source: Source, bad: BadRows) -> None:
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        leaf, counts = _flatten(column)
        self.name = name
        self.ends = np.cumsum(counts)
        self.counts = counts
        even = counts.size > 0 and bool((counts == counts[0]).all())
        self.even_size = int(counts[0]) if even else None
        self.values = self._values(leaf, source, bad)

    def _values(self, leaf: Any, source: Source, bad: BadRows) -> Array:
        tensor = source.tensor
        values, nulls = _plain(leaf)
        values, lost = cast_values(values, tensor.dtype)
        if nulls is not None and tensor.dtype.kind == "f":
            values = values.copy()
            values[nulls] = np.nan
        elif nulls is not None:
            lost = nulls if lost is None else lost | nulls
        if lost is not None:
            for place in np.flatnonzero(lost):
                row = int(np.searchsorted(self.ends, place, "right"))
                came = leaf[int(place)].as_py()
                bad.setdefault(row, f"column {self.name!r} holds {came}, which is no {tensor.dtype.name}")
        return values


def _flatten(column: Any) -> tuple[Any, Array]:
    """A column's elements, and how many each row has; of nulls among lists, none."""
    if not hasattr(column, "flatten") or not pa.types.is_nested(column.type):
        return column, np.ones(len(column), np.int64)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    leaf, inner = _flatten(column.flatten())
    upto = np.concatenate([[0], np.cumsum(inner)])
    ends = np.cumsum(lengths)
    return leaf, upto[ends] - upto[ends - lengths]


def _plain(leaf: Any) -> tuple[Array, Mask | None]:
    """Elements as numpy has them, and where they are null; None: nowhere."""
    if leaf.null_count == 0:
        return leaf.to_numpy(zero_copy_only=False), None
    nulls = leaf.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_floating(leaf.type):
        return leaf.to_numpy(zero_copy_only=False), nulls
    return leaf.fill_null(False if pa.types.is_boolean(leaf.type) else 0).to_numpy(zero_copy_only=False), nulls


def _beside(rows: Array, columns: Sequence[_Column]) -> Array:
    start = 0
    for column in columns:
        size = column.even_size or 0
        rows[:, start : start + size] = column.values.reshape(len(rows), size)
        start += size
    return rows


def _put_uneven(rows: Array, row: int, columns: Sequence[_Column], source: Source, bad: BadRows) -> None:
    """One row whose columns may have any number of elements."""
    parts = [column.values[column.ends[row] - column.counts[row] : column.ends[row]] for column in columns]
    elements = np.concatenate(parts)
    if elements.size == source.size:
        rows[row] = elements
    else:
        told = ", ".join(column.name for column in columns)
        bad.setdefault(row, f"input {source.tensor.name!r} has {source.size} elements a row, {elements.size} in {told}")
