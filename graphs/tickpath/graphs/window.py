"""A window of the last rows of one tensor, kept so that it can be had in one piece at any time.

Theory of operation. The memory is twice as long as the window, and each row is written to two places, a window apart.
Wherever the newest row lies, the window that ends with it lies in one piece: adding a row costs two copies of a row,
and nothing ever moves. Rows that did not come yet are zeros.
"""

import numpy as np


class Window:
    """The last `rows` rows, the oldest first. In C order a row is `stripes` pieces, `rows` times its piece apart: 1
    where nothing but ones stands before the time axis, and then the window is there without a copy."""

    __slots__ = ("_next", "_places", "_ring", "_row_bytes", "rows")

    def __init__(self, rows: int, row_bytes: int, stripes: int = 1) -> None:
        self.rows = rows
        self._row_bytes = row_bytes
        self._places = np.zeros((stripes, 2 * rows, row_bytes // stripes), np.uint8)
        self._ring = self._places.data.cast("B")
        self._next = 0  # where the next row goes; there and after it lies the oldest

    @property
    def nbytes(self) -> int:
        return self._ring.nbytes

    def put(self, row: memoryview) -> None:
        """Add a row; the oldest is gone. Its bytes need not outlive the call."""
        place, size = self._next, self._row_bytes
        if len(self._places) == 1:
            start, twin = place * size, (place + self.rows) * size
            self._ring[start : start + size] = row
            self._ring[twin : twin + size] = row
        else:
            pieces = np.frombuffer(row, np.uint8).reshape(len(self._places), -1)
            self._places[:, place] = pieces
            self._places[:, place + self.rows] = pieces
        self._next = (place + 1) % self.rows

    def view(self) -> memoryview:
        """The window's bytes in C order; good until the next `put`."""
        start, size = self._next, self._row_bytes
        if len(self._places) == 1:
            return self._ring[start * size : (start + self.rows) * size]
        return memoryview(self._places[:, start : start + self.rows].tobytes())

    def fill(self, data: memoryview) -> None:
        """Take a whole window, as `view` gives it."""
        pieces = np.frombuffer(data, np.uint8).reshape(len(self._places), self.rows, -1)
        self._places[:, : self.rows] = pieces
        self._places[:, self.rows :] = pieces
        self._next = 0

    def row(self, place: int) -> bytes:
        """One row, 0 the oldest."""
        return self._places[:, self._next + place].tobytes()
