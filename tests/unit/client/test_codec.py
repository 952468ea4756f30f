"""Arrays to bytes and back: what travels is C order and little-endian, however it lay; what does not fit is named."""

from typing import Any

import hypothesis.extra.numpy as hnp
import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickpath.client import BadDtypeError, BadShapeError, BadValueError, ProtocolError
from tickpath.client.codec import Codec, Inputs
from tickpath.wire import ITEM_BYTES, ModelInfo, RemoteProtocolError, Result, TensorInfo

Array = npt.NDArray[Any]
STAMPS = (0, 0, 0, 0, 0, 0)


def codec(*inputs: TensorInfo, outputs: tuple[TensorInfo, ...] = (), buckets: tuple[int, ...] = (1, 4, 8)) -> Codec:
    return Codec(ModelInfo("m", "1", 1, inputs, outputs, buckets))


def packed(model: Codec, inputs: Inputs, rows: int | None = None) -> list[bytes | None]:
    return [None if data is None else bytes(data) for data in model.pack(inputs, rows)[0]]


WINDOW = TensorInfo("x", "float32", (1, 120, 3), 0)
MATRIX = TensorInfo("x", "float32", (1, 4), 0)
STATE = TensorInfo("h", "float32", (2, 1, 5), 1)
PAIRED = TensorInfo("p", "int64", (3,), 0)
SCALAR = TensorInfo("s", "float64", ())
OPTIONAL = TensorInfo("o", "float32", (1, 2), 0, True)


@st.composite
def arrays_in_any_order(draw: st.DrawFn) -> Array:
    """Of 1 to 3 axes and any dtype that travels: permuted, strided, reversed, byte-swapped, a broadcast, read-only."""
    dtype = np.dtype(draw(st.sampled_from(sorted(ITEM_BYTES))))
    base = draw(hnp.arrays(dtype, hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=6)))
    array = base.transpose(draw(st.permutations(range(base.ndim))))
    steps = [draw(st.sampled_from([1, -1, 2, -2, 3])) for _ in array.shape]
    array = array[tuple(slice(None, None, step) for step in steps)]
    if draw(st.booleans()):
        array = np.broadcast_to(array[:1], array.shape)
    if draw(st.booleans()):
        array = array.astype(dtype.newbyteorder(draw(st.sampled_from("<>"))), order="K")
    if draw(st.booleans()):
        array.flags.writeable = False
    return array


@given(arrays_in_any_order())
def test_what_arrives_is_the_contiguous_array(array: Array) -> None:
    name = array.dtype.newbyteorder("=").name
    model = codec(TensorInfo("x", name, array.shape), buckets=(1,))
    expected = np.ascontiguousarray(array, np.dtype(name).newbyteorder("<")).tobytes()
    assert packed(model, array) == [expected]
    assert packed(model, {"x": array}) == [expected]
    assert packed(model, [array]) == [expected]


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.T,
        lambda x: x[::2],
        lambda x: x[:, ::-1],
        np.asfortranarray,
        lambda x: np.broadcast_to(x[0], x.shape),
        lambda x: x.astype(">f4"),
        np.ma.asarray,
        lambda x: x.view(np.matrix),
    ],
)
def test_memory_orders_by_name(make: Any) -> None:
    array = make(np.arange(16, dtype=np.float32).reshape(4, 4))
    if isinstance(array, np.ma.MaskedArray):
        with pytest.raises(BadValueError, match="got a masked one"):
            packed(codec(MATRIX), array)
    else:
        assert packed(codec(MATRIX), array) == [np.ascontiguousarray(array, "<f4").tobytes()]


@given(st.sampled_from(sorted(ITEM_BYTES)), st.integers(1, 8), st.data())
def test_outputs_come_back_as_they_were(dtype: str, rows: int, data: st.DataObject) -> None:
    infos = (TensorInfo("y", dtype, (2, 3, 1), 1), TensorInfo("z", dtype, ()))
    y = data.draw(hnp.arrays(dtype, (2, 3 * rows, 1)))
    z = data.draw(hnp.arrays(dtype, ()))
    layout = codec(TensorInfo("x", "bool", (1,), 0), outputs=infos).pack(np.zeros(rows, np.bool_), None)[1]
    received = bytearray(y.tobytes() + z.tobytes())
    view = memoryview(received)
    prediction = layout.read(Result(1, "1", [view[: y.nbytes], view[y.nbytes :]], STAMPS))
    received[:] = b"\xff" * len(received)  # the receive buffer is used again
    for array, expected in ((prediction["y"], y), (prediction["z"], z)):
        assert (array.dtype, array.shape, array.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())
        assert array.flags.writeable
        assert array.flags.aligned


@given(st.lists(st.integers(0, 20), max_size=3))
def test_a_reply_of_other_byte_counts_is_not_taken(byte_counts: list[int]) -> None:
    outputs = (TensorInfo("y", "float32", (1,), 0), TensorInfo("z", "uint8", (3,)))
    layout = codec(MATRIX, outputs=outputs).pack(np.zeros((2, 4), np.float32), None)[1]
    result = Result(1, "1", [memoryview(bytes(count)) for count in byte_counts], STAMPS)
    if byte_counts == [8, 3]:
        assert layout.read(result)["z"].shape == (3,)
    else:
        with pytest.raises(RemoteProtocolError, match="y: 8, z: 3"):
            layout.read(result)


@pytest.mark.parametrize("came", ["float64", "int64", "float16", "bool", "complex64", "S4", "datetime64[ns]", "object"])
def test_a_wrong_dtype_is_refused_with_both_named(came: str) -> None:
    array = np.zeros((1, 4), came)
    with pytest.raises(BadDtypeError, match="'x': expected float32, got ") as caught:
        packed(codec(MATRIX), array)
    assert array.dtype.name in str(caught.value)


def test_wide_is_not_narrow_and_brain_is_not_half() -> None:
    with pytest.raises(BadDtypeError, match="expected int64, got int32"):
        packed(codec(PAIRED), np.zeros(3, np.int32))
    half = TensorInfo("x", "float16", (2,))
    with pytest.raises(BadDtypeError, match="expected float16, got bfloat16"):
        packed(codec(half), np.zeros(2, ml_dtypes.bfloat16))


def test_a_server_of_an_unknown_dtype_is_told_apart() -> None:
    with pytest.raises(ProtocolError, match="'bfloat16' is not known"):
        codec(TensorInfo("x", "bfloat16", (2,)))


def test_lists_are_what_numpy_makes_of_them() -> None:
    doubles = TensorInfo("x", "float64", (1, 2), 0)
    assert packed(codec(doubles), {"x": [[1.0, 2.0]]}) == [np.array([[1.0, 2.0]]).tobytes()]
    assert packed(codec(SCALAR), 2.5) == [np.float64(2.5).tobytes()]
    with pytest.raises(BadDtypeError, match="expected float32, got float64"):
        packed(codec(MATRIX), {"x": [[1.0, 2.0, 3.0, 4.0]]})
    with pytest.raises(BadValueError, match="expected an array, got list"):
        packed(codec(MATRIX), {"x": [[1.0], [2.0, 3.0]]})


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ((1, 120, 4), r"expected float32\[N,120,3\], got float32\[1,120,4\]$"),
        ((120, 3), r"got float32\[120,3\]; one row has its batch axis too: np.expand_dims\(x, 0\)"),
        ((0, 120, 3), "got .*; a request has at least one row"),
        ((1, 1, 120, 3), r"got float32\[1,1,120,3\]$"),
        ((), r"got float32\[\]$"),
        ((9, 120, 3), "takes 1 to 8 rows in a request, got 9: split the request, or serve a larger bucket$"),
    ],
)
def test_a_wrong_shape_is_said_readably(shape: tuple[int, ...], says: str) -> None:
    with pytest.raises(BadShapeError, match=says):
        packed(codec(WINDOW), np.zeros(shape, np.float32))


def test_a_huge_broadcast_is_refused_before_it_is_made() -> None:
    with pytest.raises(BadShapeError, match="got float32"):
        packed(codec(WINDOW), np.broadcast_to(np.float32(0), (1 << 40, 120, 4)))


def test_rows_are_told_by_each_tensors_own_batch_axis() -> None:
    model = codec(MATRIX, STATE, PAIRED)
    x, h, p = np.ones((2, 4), np.float32), np.ones((2, 2, 5), np.float32), np.ones(6, np.int64)
    assert model.pack([x, h, p], None)[1].rows == 2
    assert model.pack([x, h, p], 2)[1].rows == 2
    with pytest.raises(BadShapeError, match=r"same number of rows, got x: 2, h: 3, p: 2$"):
        model.pack([x, np.ones((2, 3, 5), np.float32), p], None)
    with pytest.raises(BadShapeError, match="and rows=3 was asked"):
        model.pack([x, h, p], 3)
    with pytest.raises(BadShapeError, match=r"expected int64\[3N\], got int64\[5\]"):
        model.pack([x, h, np.ones(5, np.int64)], None)


def test_rows_without_a_batch_axis_are_one_or_as_asked() -> None:
    model = codec(SCALAR)
    assert [model.pack(2.5, rows)[1].rows for rows in (None, 3, None, 1)] == [1, 3, 1, 1]
    odd: list[Any] = [np.int64(2), True, 1.0]  # what callers without a type checker may give
    assert [type(model.pack(2.5, rows)[1].rows) for rows in odd[:2]] == [int, int]
    with pytest.raises(TypeError):
        model.pack(2.5, odd[2])
    with pytest.raises(BadShapeError, match=r"takes 1 to 8 rows in a request, got 0$"):
        model.pack(2.5, 0)
    with pytest.raises(BadShapeError, match=r"takes one row in a request, got 3: send each row alone$"):
        codec(SCALAR, buckets=(1,)).pack(2.5, 3)


def test_names_that_are_missing_or_unknown_are_named() -> None:
    model = codec(MATRIX, SCALAR, OPTIONAL)
    x = np.zeros((1, 4), np.float32)
    odd_names: dict[Any, Array] = {"x": x, "y": x, 5: x}
    with pytest.raises(
        BadShapeError, match=r"takes x: float32\[N,4\], s: float64\[\], o: float32\[N,2\] \(optional\); "
    ) as caught:
        model.pack(odd_names, None)
    assert str(caught.value).endswith("missing: 's'; unexpected: 'y', 5")
    with pytest.raises(BadShapeError, match="missing: 's'"):
        model.pack([x], None)
    with pytest.raises(BadShapeError, match="a list of 4 came"):
        model.pack([x, 1.0, None, x], None)
    with pytest.raises(BadShapeError, match="one array came: give a list in this order, or a dict by name"):
        model.pack(x, None)


def test_an_optional_input_may_be_left_out() -> None:
    model = codec(MATRIX, OPTIONAL)
    x, o = np.ones((2, 4), np.float32), np.ones((2, 2), np.float32)
    without: list[bytes | None] = [x.tobytes(), None]
    alternatives: list[Inputs] = [x, [x], [x, None], {"x": x}, {"x": x, "o": None}]
    assert [packed(model, inputs) for inputs in alternatives] == [without] * len(alternatives)
    assert packed(model, {"o": o, "x": x}) == [x.tobytes(), o.tobytes()]
    only = codec(OPTIONAL)
    assert packed(only, o) == [o.tobytes()]
    assert only.pack({}, None)[1].rows == 1


def test_a_model_without_inputs_is_asked_with_none() -> None:
    assert packed(codec(), {}) == []


@pytest.mark.parametrize(
    "info",
    [
        TensorInfo("x", "float32", (1, -4), 0),
        TensorInfo("x", "float32", (1, 4), 2),
        TensorInfo("x", "float32", (1, 4), -2),
        TensorInfo("x", "float32", (0, 4), 0),
        TensorInfo("x", "string", (4,)),
    ],
)
def test_a_senseless_description_is_the_servers_fault(info: TensorInfo) -> None:
    with pytest.raises(ProtocolError, match="model 'm', tensor 'x'"):
        codec(info)


def test_a_name_twice_or_no_buckets_is_the_servers_fault() -> None:
    with pytest.raises(ProtocolError, match="a name twice"):
        codec(MATRIX, MATRIX)
    with pytest.raises(ProtocolError, match="without buckets"):
        codec(MATRIX, buckets=())


def test_descriptions_read_well() -> None:
    assert WINDOW.describe() == "float32[N,120,3]"
    assert STATE.describe() == "float32[2,N,5]"
    assert PAIRED.describe() == "int64[3N]"
    assert SCALAR.describe() == "float64[]"
