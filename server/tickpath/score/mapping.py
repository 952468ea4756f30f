"""Which columns of a table are which inputs of a model. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tickpath.engines import Array, EngineSpec, TensorSpec
from tickpath.score.casting import fits_exactly, may_be_cast
from tickpath.score.errors import ScoreError

# As many as a person reads; a table may have thousands of columns.
COLUMNS_TOLD_MAX = 12


@dataclass(frozen=True, slots=True)
class Source:
    """Where an input comes from: from `columns`, whose elements follow one another in each row, or it is `constant`, of
    the shape of one row."""

    tensor: TensorSpec
    columns: tuple[str, ...] = ()
    constant: Array | None = None

    @property
    def size(self) -> int:
        """The elements of one row."""
        return int(np.prod(self.tensor.shape, dtype=np.int64))


def parse_sources(texts: Sequence[str]) -> dict[str, str]:
    """`x=a,b` -> {"x": "a,b"}. Raises ValueError."""
    sources: dict[str, str] = {}
    for text in texts:
        name, _, what = text.partition("=")
        if not (name and what):
            raise ValueError(f"expected INPUT=COLUMN,..., INPUT=PREFIX* or INPUT=NUMBER, {text!r} came")
        if name in sources:
            raise ValueError(f"input {name!r} is given twice")
        sources[name] = what
    return sources


def map_columns(spec: EngineSpec, schema: Any, asked: Mapping[str, str], cast: bool) -> tuple[Source | None, ...]:
    """A source for each input, in the order of `spec`; None for an optional one that is left out. `schema`: the
    table's pyarrow.Schema. Raises ScoreError that lists what the model takes and what the table has."""
    names = [tensor.name for tensor in spec.inputs]
    if strange := [name for name in asked if name not in names]:
        raise ScoreError(f"{strange[0]!r} is no input of the model, which is {spec.describe()}")
    doubled = {name for name in schema.names if schema.names.count(name) > 1}
    sources = []
    for tensor in spec.inputs:
        source = _source(tensor, schema, asked.get(tensor.name))
        if source is not None:
            if both := doubled & set(source.columns):
                raise ScoreError(f"the table has more than one column {min(both)!r}: rename one")
            _check_types(source, schema, cast)
        sources.append(source)
    if not any(source and source.columns for source in sources):
        raise ScoreError(f"no column of the table is an input of the model, which is {spec.describe()}")
    return tuple(sources)


def leaf_type(kind: Any) -> tuple[Any, int | None]:
    """The type of a column's elements, and how many each row has: None where only the rows themselves say it."""
    if isinstance(kind, pa.BaseExtensionType):
        return leaf_type(kind.storage_type)
    if pa.types.is_fixed_size_list(kind):
        leaf, inner = leaf_type(kind.value_type)
        return leaf, None if inner is None else inner * kind.list_size
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return leaf_type(kind.value_type)[0], None
    return kind, 1


def _source(tensor: TensorSpec, schema: Any, asked: str | None) -> Source | None:
    if asked is not None:
        return _asked_source(tensor, schema, asked)
    if tensor.name in schema.names:
        return Source(tensor, (tensor.name,))
    numbered = tuple(f"{tensor.name}_{place}" for place in range(Source(tensor).size))
    if set(numbered) <= set(schema.names):
        return Source(tensor, numbered)
    if tensor.optional:
        return None
    count = f"{numbered[0]} to {numbered[-1]}" if len(numbered) > 1 else numbered[0]
    raise ScoreError(
        f"input {tensor.name!r}, {tensor.describe()}: expected a column {tensor.name!r} or columns {count}; the table "
        f"has {_told(schema.names)}: name its columns with --input {tensor.name}=COLUMN,... or --input "
        f"{tensor.name}='PREFIX*'"
    )


def _asked_source(tensor: TensorSpec, schema: Any, asked: str) -> Source:
    if asked in schema.names:
        return Source(tensor, (asked,))
    if re.fullmatch(r"[-+]?[0-9][0-9._eE+-]*", asked):
        return Source(tensor, constant=_constant(tensor, asked))
    columns: list[str] = []
    for part in asked.split(","):
        found = [part]
        if part.endswith("*") and part not in schema.names:
            found = [name for name in schema.names if name.startswith(part[:-1])]
        if not found or found[0] not in schema.names:
            raise ScoreError(f"input {tensor.name!r}: no column {part!r}; the table has {_told(schema.names)}")
        columns += found
    if len(set(columns)) < len(columns):
        raise ScoreError(f"input {tensor.name!r}: a column is named twice in {asked!r}")
    return Source(tensor, tuple(columns))


def _constant(tensor: TensorSpec, text: str) -> Array:
    """A number for every element and every row."""
    try:
        number: float = int(text) if re.fullmatch(r"[-+]?[0-9]+", text) else float(text)
        made = np.full(tensor.shape, number, tensor.dtype)
    except (ValueError, OverflowError):
        raise ScoreError(f"input {tensor.name!r}: {text!r} is no {tensor.dtype.name}") from None
    if tensor.dtype.kind != "f" and made.size and made.flat[0] != number:
        raise ScoreError(f"input {tensor.name!r}: {text!r} is no {tensor.dtype.name}")
    return made


def _check_types(source: Source, schema: Any, cast: bool) -> None:
    """Whether each column is of numbers that fit, and all together have as many as the input has."""
    tensor, size, known = source.tensor, 0, True
    for name in source.columns:
        leaf, count = leaf_type(schema.field(name).type)
        if not (pa.types.is_integer(leaf) or pa.types.is_floating(leaf) or pa.types.is_boolean(leaf)):
            raise ScoreError(
                f"column {name!r} is {schema.field(name).type}, input {tensor.name!r} takes {tensor.dtype.name}: give "
                "numbers, or lists of them"
            )
        dtype = np.dtype(leaf.to_pandas_dtype())
        if not fits_exactly(dtype, tensor.dtype) and not (cast and may_be_cast(dtype, tensor.dtype)):
            way = "; --cast rounds it" if may_be_cast(dtype, tensor.dtype) else ""
            raise ScoreError(
                f"column {name!r} is {dtype.name}, input {tensor.name!r} is {tensor.dtype.name}, which does not hold "
                f"every {dtype.name}, and nothing is cast unasked: convert the column{way}"
            )
        known = known and count is not None
        size += count or 0
    if source.columns and (size != source.size if known else size > source.size):
        raise ScoreError(
            f"input {tensor.name!r}, {tensor.describe()}, has {source.size} elements a row; "
            f"{_told(source.columns)} has {size}"
        )


def _told(names: Sequence[str]) -> str:
    if not names:
        return "no columns"
    more = f" and {len(names) - COLUMNS_TOLD_MAX} more" if len(names) > COLUMNS_TOLD_MAX else ""
    return ", ".join(names[:COLUMNS_TOLD_MAX]) + more
