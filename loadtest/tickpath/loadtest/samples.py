"""What a sender has measured so far, in a file that others may read while it is written.

One row a request: when it was meant to leave, when it left, when its answer was there, and the server's six stamps.
The time of the answer is written last, so a row whose answer time is 0 has not happened yet: whoever stops the sender
keeps all that was measured.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from tickpath.loadtest.stages import breakdown
from tickpath.wire import STAMP_NAMES

INTENDED, SENT, DONE, STAMPS = 0, 1, 2, 3
COLUMNS = STAMPS + len(STAMP_NAMES)

NANOSECONDS = npt.NDArray[np.int64]


class Samples:
    """Rows of int64 nanoseconds, oldest first, from requests sent one at a time."""

    def __init__(self, rows: NANOSECONDS) -> None:
        self._rows = rows

    @classmethod
    def create(cls, path: Path, count: int) -> "Samples":
        """Room for `count` requests, none of which has happened."""
        return cls(np.memmap(path, np.int64, "w+", shape=(count, COLUMNS)))

    @classmethod
    def open(cls, path: Path) -> "Samples":
        """The samples of another process, to read and to write."""
        return cls(np.memmap(path, np.int64, "r+").reshape(-1, COLUMNS))

    def record(self, index: int, intended_ns: int, sent_ns: int, done_ns: int, stamps: tuple[int, ...]) -> None:
        row = self._rows[index]
        row[STAMPS:] = stamps
        row[:DONE] = intended_ns, sent_ns
        row[DONE] = done_ns

    @property
    def answered(self) -> int:
        """How many requests have been answered."""
        return int(np.count_nonzero(self._rows[:, DONE]))

    def latency_ns(self) -> NANOSECONDS:
        """From the intended send time to the answer."""
        rows = self._answered_rows()
        return rows[:, DONE] - rows[:, INTENDED]

    def lateness_ns(self) -> NANOSECONDS:
        """From the intended send time to the real one."""
        rows = self._answered_rows()
        return rows[:, SENT] - rows[:, INTENDED]

    def round_trip_ns(self) -> NANOSECONDS:
        """From the real send time to the answer."""
        rows = self._answered_rows()
        return rows[:, DONE] - rows[:, SENT]

    def stages_ns(self) -> dict[str, NANOSECONDS]:
        """What `round_trip_ns` is made of."""
        rows = self._answered_rows()
        return breakdown(rows[:, SENT], rows[:, DONE], rows[:, STAMPS:])

    def _answered_rows(self) -> NANOSECONDS:
        return self._rows[: self.answered]
