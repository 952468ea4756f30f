"""What the observer knows: the core's totals as they are, and the histograms it made of the records. Owned by one
thread, which hands out snapshots that nobody changes."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from tickpath.observe.histograms import BUCKET_BOUNDS_NS, Counts, Ints, SlidingWindow, bucket_index
from tickpath.observe.reader import RecordReader, Records, Totals
from tickpath.observe.records import RECORD_FIELDS, CoreDescription, Event, GlobalCell, State
from tickpath.wire import STAGES

SPANS: Final = (*STAGES, "send", "request")
"""What is timed of a request: the spans between its seven stamps, and the whole from the first to the last."""
REQUEST: Final = SPANS.index("request")

_FIRST_STAMP: Final = RECORD_FIELDS.index("first_byte_ns")
_LAST_STAMP: Final = RECORD_FIELDS.index("sent_ns")
_BUCKETS: Final = len(BUCKET_BOUNDS_NS) + 1


@dataclass(frozen=True)
class Snapshot:
    """The observer's knowledge at one moment.

    `buckets`: (places, SPANS, bounds + 1) counts, not cumulative; `sums_ns`: (places, SPANS); `window`: (places, CELLS)
    counts of whole requests in fine cells over the last minute; `lost`: records that no histogram has.
    """

    core: CoreDescription
    totals: Totals
    buckets: Counts
    sums_ns: Ints
    window: Counts
    lost: int


class Tally:
    """Reads a core's memory into histograms. One thread."""

    def __init__(self, reader: RecordReader) -> None:
        self._reader = reader
        self._buckets: Counts = np.zeros((0, len(SPANS), _BUCKETS), np.int64)
        self._sums_ns: Ints = np.zeros((0, len(SPANS)), np.int64)
        self._window = SlidingWindow(0)
        self._unknown = 0
        self.core = reader.description()

    @property
    def state(self) -> State:
        """Where the core is in its life, this moment."""
        return State(int(self._reader.totals()[GlobalCell.STATE]))

    def silent_ns(self, now_ns: int) -> int:
        """How long ago the core's loop came round last; 0 before it serves."""
        beat_ns = int(self._reader.totals()[GlobalCell.HEARTBEAT_NS])
        return now_ns - beat_ns if beat_ns else 0

    def read(self, now_ns: int) -> None:
        """Take what the core has written. Records count in the window at `now_ns`, the moment they are read."""
        records = self._reader.take()
        self.core = self._reader.description()
        self._fit(len(self.core.versions))
        self._window.advance(now_ns // 10**9)
        if len(records):
            self._add(records)

    def events(self) -> list[Event]:
        """The newest events of the core, oldest first."""
        return self._reader.events()

    def snapshot(self) -> Snapshot:
        return Snapshot(
            self.core,
            self._reader.totals(),
            self._buckets.copy(),
            self._sums_ns.copy(),
            self._window.counts.copy(),
            self._reader.lost + self._unknown,
        )

    def _fit(self, versions: int) -> None:
        extra = versions - len(self._sums_ns)
        if extra > 0:
            self._buckets = np.pad(self._buckets, ((0, extra), (0, 0), (0, 0)))
            self._sums_ns = np.pad(self._sums_ns, ((0, extra), (0, 0)))
            self._window.grow(versions)

    def _add(self, records: Records) -> None:
        # None are left out unless the core died while it described a version.
        known = records[records["version"] < len(self._sums_ns)]
        self._unknown += len(records) - len(known)
        versions = known["version"].astype(np.int64)
        spans_ns = _spans_ns(known)
        rows = versions[:, np.newaxis] * len(SPANS) + np.arange(len(SPANS))
        np.add.at(self._buckets.reshape(-1), rows * _BUCKETS + bucket_index(spans_ns), 1)
        np.add.at(self._sums_ns.reshape(-1), rows, spans_ns)
        self._window.add(versions, spans_ns[:, REQUEST])


def _spans_ns(records: Records) -> Ints:
    """(n, SPANS) nanoseconds. Stamps out of order are the core's fault, and count as 0 rather than as 584 years."""
    fields = records.view(np.int64).reshape(len(records), len(RECORD_FIELDS))
    stamps = fields[:, _FIRST_STAMP : _LAST_STAMP + 1]
    whole = stamps[:, -1:] - stamps[:, :1]
    spans: Ints = np.concatenate((np.diff(stamps, axis=1), whole), axis=1)
    return spans.clip(min=0)
