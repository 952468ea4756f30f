"""What the observer knows: the core's totals as they are, and the histograms it made of the records. Owned by one
thread, which hands out snapshots that nobody changes."""

import time
from dataclasses import dataclass
from typing import Final

import numpy as np

from tickpath.observe.histograms import Counts, Ints, SlidingWindow, bucket_index
from tickpath.observe.kept import BUCKETS, EXEMPLAR_DTYPE, Exemplars, KeptTally, Word
from tickpath.observe.reader import RecordReader, Records, Totals
from tickpath.observe.records import RECORD_FIELDS, CoreDescription, Event, GlobalCell, State
from tickpath.wire import STAGES

SPANS: Final = (*STAGES, "send", "request")
"""What is timed of a request: the spans between its seven stamps, and the whole from the first to the last."""
REQUEST: Final = SPANS.index("request")

_FIRST_STAMP: Final = RECORD_FIELDS.index("first_byte_ns")
_LAST_STAMP: Final = RECORD_FIELDS.index("sent_ns")


@dataclass(frozen=True)
class Snapshot:
    """The observer's knowledge at one moment.

    `buckets`: (places, SPANS, bounds + 1) counts, not cumulative; `sums_ns`: (places, SPANS); `window`: (places, CELLS)
    counts of whole requests in fine cells over the last minute; `exemplars`: (places, bounds + 1), the newest whole
    request of each bucket; `lost`: records that no histogram has; `traces_exported` and `traces_dropped`: requests.
    """

    core: CoreDescription
    totals: Totals
    buckets: Counts
    sums_ns: Ints
    window: Counts
    exemplars: Exemplars
    lost: int
    traces_exported: int
    traces_dropped: int


class Tally:
    """Reads a core's memory into histograms, which it keeps in memory behind `tally_fd` and goes on from. One thread.

    The last minute is the observer's own: after a restart it begins anew, and its number of samples says so.
    """

    def __init__(self, reader: RecordReader, tally_fd: int) -> None:
        self._reader = reader
        self.core = reader.description()
        places = len(self.core.versions)
        self.kept = KeptTally(tally_fd, len(SPANS), places, reader.written)
        self._window = SlidingWindow(places)
        reader.taken = self.kept.state.taken

    @property
    def state(self) -> State:
        """Where the core is in its life, this moment."""
        return State(int(self._reader.totals()[GlobalCell.STATE]))

    def silent_ns(self, now_ns: int) -> int:
        """How long ago the core's loop came round last; 0 before it serves."""
        beat_ns = int(self._reader.totals()[GlobalCell.HEARTBEAT_NS])
        return now_ns - beat_ns if beat_ns else 0

    def read(self, now_ns: int) -> Records:
        """Take what the core has written, and return the records that were counted. They count in the window at
        `now_ns`, the moment they are read."""
        records = self._reader.take()
        self.core = self._reader.description()
        if len(self.core.versions) > len(self._window.counts):
            self._window.grow(len(self.core.versions))
        self._window.advance(now_ns // 10**9)
        return self._add(records) if self._reader.taken != self.kept.state.taken else records

    def events(self) -> list[Event]:
        """The newest events of the core, oldest first."""
        return self._reader.events()

    def snapshot(self) -> Snapshot:
        state, places = self.kept.state, len(self.core.versions)
        return Snapshot(
            self.core,
            self._reader.totals(),
            state.buckets[:places].copy(),
            state.sums_ns[:places].copy(),
            self._window.counts.copy(),
            state.exemplars[:places].copy(),
            state.lost,
            int(self.kept.counters[Word.TRACES_EXPORTED]),
            int(self.kept.counters[Word.TRACES_DROPPED]),
        )

    def _add(self, records: Records) -> Records:
        # None are left out unless the core died while it described a version.
        known = records[records["version"] < len(self.core.versions)]
        state = self.kept.next()
        versions = known["version"].astype(np.int64)
        spans_ns = spans_of(known)
        buckets = bucket_index(spans_ns)
        rows = versions[:, np.newaxis] * len(SPANS) + np.arange(len(SPANS))
        np.add.at(state.buckets.reshape(-1), rows * BUCKETS + buckets, 1)
        np.add.at(state.sums_ns.reshape(-1), rows, spans_ns)
        # Of several that fell into one bucket, the last is assigned last.
        state.exemplars[versions, buckets[:, REQUEST]] = _exemplars(known, spans_ns[:, REQUEST])
        taken = self._reader.taken
        counted = state.taken - state.lost + len(known)
        state.ends(taken, taken - counted)
        self.kept.commit(np.unique(versions))
        self._window.add(versions, spans_ns[:, REQUEST])
        return known


def _exemplars(records: Records, durations_ns: Ints) -> Exemplars:
    exemplars = np.empty(len(records), EXEMPLAR_DTYPE)
    exemplars["id"], exemplars["session"] = records["id"], records["session"]
    exemplars["value_ns"] = durations_ns
    exemplars["at_ns"] = records["sent_ns"].astype(np.int64) + (time.time_ns() - time.monotonic_ns())
    return exemplars


def spans_of(records: Records) -> Ints:
    """(n, SPANS) nanoseconds. Stamps out of order are the core's fault, and count as 0 rather than as 584 years."""
    fields = records.view(np.int64).reshape(len(records), len(RECORD_FIELDS))
    stamps = fields[:, _FIRST_STAMP : _LAST_STAMP + 1]
    whole = stamps[:, -1:] - stamps[:, :1]
    spans: Ints = np.concatenate((np.diff(stamps, axis=1), whole), axis=1)
    return spans.clip(min=0)
