"""What one run of a load test has measured: the one thing that senders fill and that reports, comparisons and
searches read.

One row a request that was meant to be sent, in the order of the schedule; times are nanoseconds of the sender's
monotonic clock.
"""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from tickpath.loadtest.stages import breakdown
from tickpath.wire import STAMP_NAMES

NANOSECONDS = npt.NDArray[np.int64]

# How a request ended, beside the codes of tickpath.wire.Code.
OK: Final = 0
PENDING: Final = -1  # sent, and not answered by the end of the run
SKIPPED: Final = -2  # not sent: its connection had as many in flight as it may have
UNSENT: Final = -3  # not sent: the run ended before
LOST: Final = -4  # sent, and the connection ended before the answer

ROW: Final = np.dtype(
    [
        ("intended_ns", np.int64),  # when the schedule meant it to leave
        ("sent_ns", np.int64),  # when the send call was made; 0: it was not
        ("done_ns", np.int64),  # when its answer was there; 0: never
        ("code", np.int32),
        ("connection", np.int32),
        ("stamps_ns", np.int64, (len(STAMP_NAMES),)),  # on the server's clock; zeros where the target gives none
    ]
)

Ending = Literal["complete", "interrupted", "server lost"]


@dataclass(frozen=True, slots=True)
class Run:
    """One run. `rows` are those that count: warm-up is not among them."""

    target: str
    model: str
    schedule: str  # for people: "constant 2,000/s", "replay of x.dbn at 10x", "closed loop, 4 in flight"
    open_loop: bool
    connections: int
    rows: npt.NDArray[np.void]
    connect_ns: NANOSECONDS  # int64[connections]: from connect() to Welcome
    ending: Ending
    reason: str  # why it did not complete; empty where it did
    unasked: int = 0  # answers to nothing that was in flight: a fault of the target

    @property
    def answered(self) -> npt.NDArray[np.void]:
        """Rows with a prediction."""
        rows: npt.NDArray[np.void] = self.rows[self.rows["code"] == OK]
        return rows

    def latency_ns(self) -> NANOSECONDS:
        """From the intended send time to the answer: what a user of the schedule waits."""
        rows = self.answered
        span_ns: NANOSECONDS = rows["done_ns"] - rows["intended_ns"]
        return span_ns

    def uncorrected_ns(self) -> NANOSECONDS:
        """From the real send time to the answer: what a tool that forgets the schedule reports."""
        rows = self.answered
        span_ns: NANOSECONDS = rows["done_ns"] - rows["sent_ns"]
        return span_ns

    def lateness_ns(self) -> NANOSECONDS:
        """From the intended send time to the real one, of all that were sent: the sender's own error."""
        rows = self.rows[self.rows["sent_ns"] > 0]
        span_ns: NANOSECONDS = rows["sent_ns"] - rows["intended_ns"]
        return span_ns

    def stages_ns(self) -> dict[str, NANOSECONDS]:
        """What `uncorrected_ns` is made of; empty where the target gives no stamps."""
        rows = self.answered
        if not len(rows) or not rows["stamps_ns"].any():
            return {}
        return breakdown(rows["sent_ns"], rows["done_ns"], rows["stamps_ns"])

    def count(self, code: int) -> int:
        """Rows that ended so."""
        return int(np.count_nonzero(self.rows["code"] == code))
