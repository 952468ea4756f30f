"""Random numbers that never change: numpy promises the raw stream of a bit generator, and no more than that.

Everything after the raw stream is a shift, a conversion and a multiplication, which IEEE 754 gives one result.
"""

import zlib

import numpy as np
import numpy.typing as npt


class Weights:
    """Draws one model's weights, in the order in which its layers ask."""

    def __init__(self, name: str) -> None:
        self._bits = np.random.PCG64(zlib.crc32(name.encode()))

    def uniform(self, shape: tuple[int, ...], bound: float) -> npt.NDArray[np.float32]:
        """float32 in [-bound, bound), 24 random bits each."""
        raw = np.asarray(self._bits.random_raw(int(np.prod(shape))), np.uint64)
        unit = (raw >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)
        return (unit * np.float32(bound)).reshape(shape)
