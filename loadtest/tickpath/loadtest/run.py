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
INTERRUPTED: Final = -5  # sent, and the run was interrupted before the answer: nobody's fault, and no result

# A turn of the sender that sends and takes in takes some 20 µs; in one of more than this it was held up, by the machine
# or by work of its own: until the end of it nobody looks at what has come.
GAP_NS: Final = 100_000

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

GAP: Final = np.dtype([("start_ns", np.int64), ("end_ns", np.int64)])

# "interrupted" is by Ctrl-C alone; "sender lost" is a fault of ours or of the machine.
Ending = Literal["complete", "interrupted", "server lost", "sender lost"]


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
    span_ns: int  # from the first intended time to when nothing more was asked, or the last answer came
    gaps: npt.NDArray[np.void]  # GAP[count]: turns of the sender that took longer than GAP_NS, in order
    unasked: int = 0  # answers to nothing that was in flight: a fault of the target

    @property
    def interrupted(self) -> bool:
        """Ctrl-C ended it; what was in flight then is INTERRUPTED, what was not reached UNSENT."""
        return self.ending == "interrupted"

    @property
    def loss(self) -> str:
        """What was lost and why, in words; empty where nothing was."""
        return f"the {self.ending.replace(' ', ' was ')}: {self.reason}" if self.ending.endswith(" lost") else ""

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

    def held_ns(self) -> NANOSECONDS:
        """How much of each `uncorrected_ns` the sender may have taken itself, at the most: it was held up between the
        clock reading and the send call, or between the answer's coming and its reading."""
        sent_ns, done_ns = self.answered["sent_ns"], self.answered["done_ns"]
        if not len(self.gaps):
            return np.zeros(len(sent_ns), np.int64)
        left_ns = np.minimum(_held_until(self.gaps, sent_ns), done_ns)
        came_ns = np.maximum(_held_since(self.gaps, done_ns), sent_ns)
        held_ns: NANOSECONDS = np.minimum(left_ns - sent_ns + done_ns - came_ns, done_ns - sent_ns)
        return held_ns

    def stages_ns(self) -> dict[str, NANOSECONDS]:
        """What `uncorrected_ns` is made of; empty where the target gives no stamps."""
        rows = self.answered
        if not len(rows) or not rows["stamps_ns"].any():
            return {}
        return breakdown(rows["sent_ns"], rows["done_ns"], rows["stamps_ns"])

    def count(self, code: int) -> int:
        """Rows that ended so."""
        return int(np.count_nonzero(self.rows["code"] == code))


def _held_until(gaps: npt.NDArray[np.void], times_ns: NANOSECONDS) -> NANOSECONDS:
    """The end of the gap that int64[count] times lie in; themselves where they lie in none."""
    place = np.searchsorted(gaps["start_ns"], times_ns, "right") - 1
    return np.where(place < 0, times_ns, np.maximum(gaps["end_ns"][place], times_ns))


def _held_since(gaps: npt.NDArray[np.void], times_ns: NANOSECONDS) -> NANOSECONDS:
    """The start of the gap that int64[count] times lie in or just behind; themselves where there is none. What comes
    late in a gap, when the sockets were looked at already, is read in the turn after it, which may be a gap too."""
    starts_ns, ends_ns = gaps["start_ns"], gaps["end_ns"]
    joined = np.concatenate(([False], starts_ns[1:] == ends_ns[:-1]))
    since_ns = np.where(joined, np.roll(starts_ns, 1), starts_ns)
    place = np.searchsorted(ends_ns, times_ns - GAP_NS, "left")
    return np.where(place == len(gaps), times_ns, np.minimum(since_ns[np.minimum(place, len(gaps) - 1)], times_ns))
