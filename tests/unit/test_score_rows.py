"""Columns as a model's inputs: which are meant, which dtypes go, what a bad row is."""

import pickle
from math import isfinite
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pytest

from tickpath.engines import Array, EngineSpec, TensorSpec
from tickpath.score.casting import cast_values, fits_exactly
from tickpath.score.errors import BadRowError, ScoreError
from tickpath.score.mapping import map_columns, parse_sources
from tickpath.score.rows import BadRows, read_rows


def tensor(dtype: str = "float32", size: int = 2, name: str = "x", default: Array | None = None) -> TensorSpec:
    return TensorSpec(name, np.dtype(dtype), (1, size), 0 if default is None else None, default)


def spec_of(*inputs: TensorSpec) -> EngineSpec:
    return EngineSpec(inputs, (tensor(name="y"),), "none", "float32", "0" * 64)


def read(table: Any, one: TensorSpec, asked: str | None = None, cast: bool = False) -> tuple[Array, BadRows]:
    (source,) = map_columns(spec_of(one), table.schema, {} if asked is None else {"x": asked}, cast)
    assert source is not None
    bad: BadRows = {}
    (batch,) = table.combine_chunks().to_batches()
    return read_rows(batch, source, bad), bad


F32 = pa.float32()
ROWS = np.array([[1, 2], [3, 4], [5, 6]], np.float32)


@pytest.mark.parametrize(
    ("table", "asked"),
    [
        pytest.param(pa.table({"x": pa.FixedSizeListArray.from_arrays(ROWS.reshape(-1), 2)}), None, id="fixed-list"),
        pytest.param(pa.table({"x": pa.array(ROWS.tolist(), pa.list_(F32))}), None, id="list"),
        pytest.param(pa.table({"x": pa.array(ROWS.tolist(), pa.large_list(F32))}), None, id="large-list"),
        pytest.param(
            pa.table({"x": pa.array([[[1], [2]], [[3], [4]], [[5], [6]]], pa.list_(pa.list_(F32, 1)))}),
            None,
            id="nested",
        ),
        pytest.param(pa.table({"x_1": ROWS[:, 1], "z": ROWS[:, 0], "x_0": ROWS[:, 0]}), None, id="numbered"),
        pytest.param(pa.table({"b": ROWS[:, 1], "a": ROWS[:, 0]}), "a,b", id="named"),
        pytest.param(pa.table({"z": ROWS[:, 1], "fb": ROWS[:, 0], "fa": ROWS[:, 1]}), "f*", id="prefix"),
        pytest.param(
            pa.table({"a": pa.array(ROWS[:, :1].tolist(), pa.list_(F32)), "b": ROWS[:, 1]}), "a,b", id="mixed"
        ),
        pytest.param(
            pa.table({"x": pa.array([[9, 9], *ROWS.tolist()], pa.list_(F32, 2))}).slice(1), None, id="sliced-fixed-list"
        ),
        pytest.param(pa.table({"x": pa.array([[9], *ROWS.tolist()], pa.list_(F32))}).slice(1), None, id="sliced-list"),
        pytest.param(pa.Table.from_pandas(pandas.DataFrame({"x": list(ROWS)})), None, id="pandas"),
        pytest.param(
            pa.table({"x": pa.FixedShapeTensorArray.from_numpy_ndarray(ROWS.reshape(3, 2, 1))}), None, id="tensor"
        ),
    ],
)
def test_columns_are_rows(table: Any, asked: str | None) -> None:
    rows, bad = read(table, tensor(), asked)
    assert rows.dtype == np.float32
    assert (rows.flags.c_contiguous, bad) == (True, {})
    assert np.array_equal(rows, ROWS)


def test_a_number_is_for_every_row() -> None:
    table = pa.table({"a": ROWS[:, 0]})
    sources = map_columns(
        spec_of(tensor(size=1), tensor("int64", 1, "rate")), table.schema, {"x": "a", "rate": "16000"}, False
    )
    assert sources[1] is not None
    assert read_rows(table.to_batches()[0], sources[1], {}).tolist() == [[16000]] * 3


def test_an_optional_input_may_be_left_out() -> None:
    optional = tensor(name="o", default=np.zeros((1, 2), np.float32))
    sources = map_columns(spec_of(tensor(size=1), optional), pa.table({"x": ROWS[:, 0]}).schema, {}, False)
    assert sources[1] is None


@pytest.mark.parametrize(
    ("table", "asked", "said"),
    [
        (pa.table({"a": [1.0]}), {}, "expected a column 'x' or columns x_0 to x_1; the table has a: name its columns"),
        (pa.table({"x": [1.0]}), {}, "column 'x' is float64, input 'x' is float32"),
        (pa.table({"x": pa.array([1.0], F32)}), {}, "has 2 elements a row; x has 1"),
        (pa.table({"x": pa.array([[1.0] * 3], pa.list_(F32, 3))}), {}, "has 2 elements a row; x has 3"),
        (pa.table({"x": ["a"]}), {}, "column 'x' is string, input 'x' takes float32"),
        (pa.table({"x": pa.array(["a"]).dictionary_encode()}), {}, "give numbers, or lists of them"),
        (pa.table({"a": [1.0]}), {"x": "a,b"}, "no column 'b'; the table has a"),
        (pa.table({"a": [1.0]}), {"x": "b*"}, "no column 'b*'"),
        (pa.table({"a": [1.0]}), {"x": "a,a"}, "named twice"),
        (pa.table({"a": [1.0]}), {"z": "a"}, "'z' is no input of the model, which is x float32[N,2] -> y"),
        (pa.table({"a": [1.0]}), {"x": "1.5"}, "no column of the table is an input"),
        (pa.Table.from_arrays([pa.array([[1.0] * 2], pa.list_(F32))] * 2, ["x", "x"]), {}, "more than one column 'x'"),
    ],
)
def test_what_does_not_fit_is_told(table: Any, asked: dict[str, str], said: str) -> None:
    with pytest.raises(ScoreError) as refused:
        map_columns(spec_of(tensor()), table.schema, asked, False)
    assert said in str(refused.value)


def test_nulls_are_nan_in_floats_and_bad_rows_elsewhere() -> None:
    rows, bad = read(pa.table({"x": pa.array([[1, None], None, [3, 4]], pa.list_(F32))}), tensor())
    assert np.isnan(rows[0, 1])
    assert rows[2].tolist() == [3, 4]
    assert list(bad) == [1]
    rows, bad = read(pa.table({"x_0": [1, None], "x_1": [2, 3]}), tensor("int64"))
    assert rows[0].tolist() == [1, 2]
    assert bad == {1: "column 'x_0' holds None, which is no int64"}


def test_a_row_of_another_size_is_bad() -> None:
    rows, bad = read(pa.table({"x": pa.array([[1, 2], [1], [3, 4], []], pa.list_(F32))}), tensor())
    assert rows[2].tolist() == [3, 4]
    assert bad == {
        1: "input 'x' has 2 elements a row, 1 in x",
        3: "input 'x' has 2 elements a row, 0 in x",
    }


def test_cast_rounds_and_cuts_nothing_off() -> None:
    table = pa.table({"x_0": [0.1, 1.0], "x_1": [2**53 + 1, 1]})
    rows, bad = read(table, tensor(), cast=True)
    assert rows.tolist() == [[np.float32(0.1), np.float32(2**53)], [1, 1]]
    assert bad == {}
    rows, bad = read(pa.table({"x_0": [1.0, 1.5, 300.0, -1.0], "x_1": [1, 1, 1, 1]}), tensor("uint8"), cast=True)
    assert rows[0].tolist() == [1, 1]
    assert list(bad) == [1, 2, 3]


@pytest.mark.parametrize(
    "target", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "float16", "float32"]
)
@pytest.mark.parametrize(
    "source", ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float32", "float64", "bool"]
)
def test_what_fits_exactly_does(source: str, target: str) -> None:
    """At the edges of its range, where it would show: a dtype that takes another holds all of its values, and a cast
    either gives the number or says that it does not."""
    kind, into = np.dtype(source), np.dtype(target)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        edges = np.array([limits.min, limits.min + 1, 0, 1, limits.max - 1, limits.max], kind)
    elif kind.kind == "f":
        edges = np.array([-1.5, 0, 1, 2.0**24, 2.0**63, -(2.0**63), 2.0**64, np.nan, np.inf], kind)
    else:
        edges = np.array([False, True])
    made, lost = cast_values(edges, into)
    kept = np.ones(len(edges), bool) if lost is None else ~lost
    if fits_exactly(kind, into):
        assert kept.all()
    if fits_exactly(kind, into) or into.kind in "iu":
        assert whole(made[kept]) == whole(edges[kept])
    if into.kind in "iu":
        limits = np.iinfo(into)
        numbers = edges.tolist()
        fit = [isfinite(x) and int(x) == x and limits.min <= int(x) <= limits.max for x in numbers]
        assert kept.tolist() == fit


def whole(values: Array) -> list[int]:
    """The finite ones, without what a float's own whole part leaves."""
    return [int(x) for x in values.tolist() if isfinite(x)]


def test_a_bad_row_comes_whole_from_another_process() -> None:
    error = pickle.loads(pickle.dumps(BadRowError(7, "it is bad")))
    assert (error.row, str(error)) == (7, str(BadRowError(7, "it is bad")))


@pytest.mark.parametrize("text", ["x", "=a", "x="])
def test_a_source_is_an_input_and_columns(text: str) -> None:
    with pytest.raises(ValueError, match="expected INPUT=COLUMN"):
        parse_sources([text])
    with pytest.raises(ValueError, match="given twice"):
        parse_sources(["x=a", "x=b"])
