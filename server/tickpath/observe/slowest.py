"""The slowest requests of the last minutes, kept as the records they are. Owned by one thread.

Of every model and second the KEPT slowest: were it every second alone, one slow model would hide all others. A second
of 64 busy models is 512 records, so the whole is at most 18 MB; with one model it is 300 kB.
"""

from collections import deque
from typing import Final

import numpy as np

from tickpath.observe.histograms import Ints
from tickpath.observe.reader import RECORD_DTYPE, Records

KEPT: Final = 8
# Whoever is told that a trade went wrong looks within minutes.
KEPT_S: Final = 300


class Slowest:
    """Fed with batches of records as they are read. Time is the moment of reading."""

    def __init__(self) -> None:
        self._before: deque[tuple[int, Records]] = deque()
        self._current: Records = np.zeros(0, RECORD_DTYPE)
        self._now_s = 0

    def add(self, records: Records, model_of_place: Ints, now_s: int) -> None:
        """Take what was read in this second; `model_of_place`: (places,) numbers, the same for versions of a model."""
        if now_s > self._now_s:
            if len(self._current):
                self._before.append((self._now_s, self._current))
            self._current = self._current[:0]
            while self._before and self._before[0][0] <= now_s - KEPT_S:
                self._before.popleft()
            self._now_s = now_s
        if len(records):
            self._current = _slowest(np.concatenate((self._current, records)), model_of_place)

    def records(self) -> Records:
        """All that are kept, as a copy of dtype RECORD_DTYPE, in no order."""
        return np.concatenate([*(records for _, records in self._before), self._current])


def duration_ns(records: Records) -> Ints:
    """(n,) first byte to reply sent. Stamps out of order count as 0."""
    sent, first = records["sent_ns"].astype(np.int64), records["first_byte_ns"].astype(np.int64)
    spans: Ints = (sent - first).clip(min=0)
    return spans


def _slowest(records: Records, model_of_place: Ints) -> Records:
    """The KEPT slowest of each model."""
    models = model_of_place[records["version"].astype(np.int64)]
    spans_ns = duration_ns(records)
    if len(records) > 4 * KEPT and (models == models[0]).all():  # the usual case, in linear time
        return records[np.argpartition(spans_ns, -KEPT)[-KEPT:]]
    order = np.lexsort((-spans_ns, models))
    ordered = models[order]
    first = np.searchsorted(ordered, ordered)  # of each one's model, the place of the slowest
    return records[order[np.arange(len(order)) - first < KEPT]]
