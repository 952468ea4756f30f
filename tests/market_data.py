"""Windows of real market data in the form that the real models were trained on, and each the same every time."""

import csv
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

Windows: TypeAlias = npt.NDArray[np.float32]

BARS: Final = "market_data/nautilus/xcme__6EH4.XCME_1min_bars_20240101_20240131.csv.gz"
BOOK: Final = "market_data/nautilus/tardis__binance-futures_book_snapshot_25_BTCUSDT.csv"

BAR_WINDOW: Final = 120
VOLUME_BARS: Final = 1000
LEVELS: Final = 10
TICK: Final = 0.01


def bar_windows(root: Path, count: int) -> Windows:
    """`count` windows [120, 3] from anywhere in a month of 1-minute bars.

    The features are those that `btcusdt_price_v2` was trained on (its metadata.json names none; its repository's
    training script does): the close's log return, the bar's range relative to its close, and the volume's z-score over
    1000 bars. They have no unit, so they fit bars of any instrument.
    """
    bars = np.loadtxt(root / BARS, delimiter=",", skiprows=1, usecols=(2, 3, 4, 5))
    high, low, close, volume = bars[VOLUME_BARS - 1 :, 0], bars[VOLUME_BARS - 1 :, 1], bars[:, 2], bars[:, 3]
    returns = np.diff(np.log(close), prepend=np.nan)[VOLUME_BARS - 1 :]
    mean, deviation = _rolling(volume, VOLUME_BARS)
    z_score = (volume[VOLUME_BARS - 1 :] - mean) / (deviation + 1e-9)
    features = np.stack([returns, (high - low) / close[VOLUME_BARS - 1 :], z_score], axis=1)
    windows = sliding_window_view(features, BAR_WINDOW, axis=0).transpose(0, 2, 1)
    return _finite(windows[np.random.default_rng(0).integers(0, len(windows), count)])


def book_windows(root: Path, count: int, length: int) -> Windows:
    """`count` windows [length, 40] that follow each other by one tick: the ten best levels of a real book, each as ask
    price, ask amount, bid price, bid amount.

    There are ten real snapshots; they recur in their order while a seeded walk moves all prices by whole ticks and
    scales the amounts a little, so that no two windows are the same. Each feature is then z-scored, as DeepLOB's are.
    """
    with (root / BOOK).open(newline="") as file:
        rows = list(csv.reader(file))
    columns = [rows[0].index(name) for level in range(LEVELS) for name in _level(level)]
    real = np.array([[float(row[column]) for column in columns] for row in rows[1:]])
    random = np.random.default_rng(0)
    ticks = count + length - 1
    book = real[np.arange(ticks) % len(real)].reshape(ticks, LEVELS, 2, 2)
    book[..., 0] += TICK * np.cumsum(random.integers(-3, 4, ticks))[:, None, None]
    book[..., 1] *= random.uniform(0.9, 1.1, (ticks, LEVELS, 2))
    flat = book.reshape(ticks, 4 * LEVELS)
    scaled = (flat - flat.mean(axis=0)) / flat.std(axis=0)
    return _finite(sliding_window_view(scaled, length, axis=0).transpose(0, 2, 1))


def _level(level: int) -> tuple[str, ...]:
    return tuple(f"{side}[{level}].{what}" for side in ("asks", "bids") for what in ("price", "amount"))


def _rolling(values: npt.NDArray[np.float64], length: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Mean and sample deviation of every `length` values in a row."""
    sums, squares = (np.cumsum(np.concatenate(([0.0], powers))) for powers in (values, values * values))
    mean = (sums[length:] - sums[:-length]) / length
    variance = ((squares[length:] - squares[:-length]) - length * mean * mean) / (length - 1)
    return mean, np.sqrt(variance)


def _finite(windows: npt.NDArray[np.float64]) -> Windows:
    made = np.ascontiguousarray(windows, dtype=np.float32)
    assert np.isfinite(made).all()
    return made
