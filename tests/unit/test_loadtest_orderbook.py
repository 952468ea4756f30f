"""The synthetic book: the same each time, a book that could be, and windows of it for any model."""

import math

import numpy as np
import pytest

from tickpath.loadtest.orderbook import LEVELS, VALUES, synthetic_book, windows


def test_same_seed_same_book() -> None:
    assert np.array_equal(synthetic_book(500, seed=3), synthetic_book(500, seed=3))
    assert not np.array_equal(synthetic_book(500, seed=3), synthetic_book(500, seed=4))


def test_it_is_a_book() -> None:
    book = synthetic_book(20_000, seed=1).reshape(-1, LEVELS, 4)
    asks, bids, sizes = book[:, :, 0], book[:, :, 2], book[:, :, 1::2]
    assert (np.diff(asks, axis=1) > 0).all()
    assert (np.diff(bids, axis=1) < 0).all()
    assert (bids[:, 0] < asks[:, 0]).all()
    assert (sizes > 0).all()
    assert np.abs(book).max() < 10
    assert len(np.unique(asks[:, 0])) > 10


@pytest.mark.parametrize("shape", [(), (64,), (40,), (100, 40), (1, 120, 3), (50, 100)])
def test_windows_are_the_latest_numbers_of_the_book(shape: tuple[int, ...]) -> None:
    size = math.prod(shape)
    before = -(-size // VALUES) - 1
    stream = synthetic_book(before + 30, seed=9).ravel()
    views = windows(30, shape, "float32", seed=9)
    assert views.shape == (30, *shape)
    for tick in range(30):
        end = (before + tick + 1) * VALUES
        assert np.array_equal(views[tick].ravel(), stream[end - size : end])


def test_windows_are_contiguous_views_that_nobody_can_write_to() -> None:
    views = windows(3, (100, 40), "float32", seed=1)
    assert views[1].flags.c_contiguous
    assert not views[1].flags.owndata
    assert not views[1].flags.writeable


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float16", "float64"])
def test_windows_of_any_dtype(dtype: str) -> None:
    views = windows(3, (64,), dtype, seed=1)
    assert views.dtype == dtype
    assert views.shape == (3, 64)
