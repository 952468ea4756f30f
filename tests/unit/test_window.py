"""A window holds the last rows in C order, whichever way they came."""

import numpy as np
import pytest

from tickpath.graphs import Window


@pytest.mark.parametrize("before", [(), (1,), (3,), (2, 2)])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_it_is_the_last_rows_in_one_piece(before: tuple[int, ...], rows: int) -> None:
    data = np.random.default_rng(0).standard_normal((*before, 4 * rows + 1, 3)).astype(np.float32)
    axis = len(before)
    stripes = int(np.prod(before, dtype=int))
    window = Window(rows, data.take(0, axis).nbytes, stripes)
    whole = np.concatenate([np.zeros((*before, rows, 3), np.float32), data], axis)
    for place in range(data.shape[axis]):
        window.put(memoryview(np.ascontiguousarray(data.take(place, axis)).tobytes()))
        expected = whole.take(range(place + 1, place + 1 + rows), axis)
        assert bytes(window.view()) == expected.tobytes()
        assert window.row(rows - 1) == data.take(place, axis).tobytes()
        assert window.row(0) == expected.take(0, axis).tobytes()


def test_a_window_goes_on_from_another() -> None:
    one, other = Window(3, 2), Window(3, 2)
    for row in (b"aa", b"bb", b"cc", b"dd"):
        one.put(memoryview(row))
    other.fill(one.view())
    for window in (one, other):
        window.put(memoryview(b"ee"))
        assert bytes(window.view()) == b"ccddee"


def test_one_piece_is_a_view_and_stripes_are_a_copy() -> None:
    plain, striped = Window(2, 4), Window(2, 4, 2)
    assert plain.view().obj is plain.view().obj
    striped.put(memoryview(b"aabb"))
    before = striped.view()
    striped.put(memoryview(b"ccdd"))
    assert (bytes(before), bytes(striped.view())) == (b"\0\0aa\0\0bb", b"aaccbbdd")
