"""A synthetic limit order book: seeded, bounded, and shaped for any model."""

import numpy as np
import numpy.typing as npt

LEVELS = 10
VALUES = 4 * LEVELS
"""Numbers of one book state: for each level ask price, ask size, bid price, bid size, as DeepLOB and FI-2010 have
them."""

# The mid price turns back this many ticks away from where it began, so that a long stream stays in the range models
# are fed with.
MID_TICKS_MAX = 50
PRICE_UNIT_TICKS = 25.0
SIZE_UNIT_LOTS = 10.0


def synthetic_book(states: int, seed: int) -> npt.NDArray[np.float32]:
    """float32[states, 40]: prices in units of 25 ticks from the opening mid, sizes in units of ten lots; asks ascend
    and bids descend
    from level to level, and the best bid is below the best ask."""
    rng = np.random.default_rng(seed)
    mid_ticks = _turned_back(np.cumsum(rng.integers(-1, 2, states)))
    distance_ticks = np.cumsum(rng.geometric(0.7, (2, states, LEVELS)), axis=2)
    lots = 1 + rng.poisson(SIZE_UNIT_LOTS, (2, states, LEVELS))
    book = np.empty((states, LEVELS, 4), np.float32)
    book[:, :, 0] = (mid_ticks[:, None] + distance_ticks[0]) / PRICE_UNIT_TICKS
    book[:, :, 1] = lots[0] / SIZE_UNIT_LOTS
    book[:, :, 2] = (mid_ticks[:, None] - distance_ticks[1]) / PRICE_UNIT_TICKS
    book[:, :, 3] = lots[1] / SIZE_UNIT_LOTS
    return book.reshape(states, VALUES)


def windows(count: int, shape: tuple[int, ...], dtype: str, seed: int) -> npt.NDArray[np.generic]:
    """dtype[count, *shape], read-only: item i holds the latest numbers of the book at tick i, oldest first, as many as
    `shape` takes.

    A shape of (100, 40) is a window of 100 book states; 64 numbers are the book and more than half of the state
    before. Every item is a C-contiguous view of one stream: nothing is copied when it is sent."""
    size = int(np.prod(shape))
    before = -(-size // VALUES) - 1
    stream = np.ascontiguousarray(synthetic_book(before + count, seed), dtype).ravel()
    first = (before + 1) * VALUES - size
    strides = (VALUES * stream.itemsize, *np.empty(shape, dtype).strides)
    return np.lib.stride_tricks.as_strided(stream[first:], (count, *shape), strides, writeable=False)


def _turned_back(walk: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The walk folded at both bounds."""
    period = 4 * MID_TICKS_MAX
    return np.abs((walk - MID_TICKS_MAX) % period - 2 * MID_TICKS_MAX) - MID_TICKS_MAX
