"""What the observer remembers of the last minutes, beside what it counts for ever: percentiles over time, and the
slowest requests. Owned by one thread."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from tickpath.observe.event_log import END, EventLog
from tickpath.observe.histograms import Ints
from tickpath.observe.history import History
from tickpath.observe.reader import Records
from tickpath.observe.records import VersionDescription
from tickpath.observe.schema import SlowReport, Status
from tickpath.observe.slow import SlowQuery, SlowReporter
from tickpath.observe.slowest import Slowest
from tickpath.observe.status import CoreView, status
from tickpath.observe.tally import Snapshot, spans_of

# The core's own events stay in a ring for a hundred seconds at the worst, what is seen from outside for a minute.
NOTE_NS: Final = 10**9


class Recent:
    """Fed with what is read; its reports are made by whichever thread calls them."""

    def __init__(self, events: EventLog) -> None:
        self._events = events
        self._history = History()
        self._slowest = Slowest()
        self._noted_ns = 0
        self._versions: Sequence[VersionDescription] = ()
        self._model_of_place: Ints = np.zeros(0, np.int64)

    def read(self, versions: Sequence[VersionDescription], records: Records, now_ns: int) -> None:
        """Take records that were read just now, all of these versions. As often when there are none."""
        if len(versions) != len(self._model_of_place):
            names = [version.name for version in versions]
            self._model_of_place = np.array([names.index(name) for name in names], np.int64)
        self._versions = versions
        places = records["version"].astype(np.int64)
        self._history.read(versions, places, spans_of(records), now_ns)
        self._slowest.add(records, self._model_of_place, now_ns // 10**9)
        if now_ns >= self._noted_ns + NOTE_NS:
            self._note(now_ns)

    def status(self, snapshot: Snapshot, core: CoreView, now_ns: int) -> Callable[[], Status]:
        """What makes /status.json of this moment, on any thread."""
        history = self._history.of_models()
        return lambda: status(snapshot, history, core, now_ns)

    def slow(self, asked: SlowQuery, now_ns: int) -> Callable[[], SlowReport]:
        """What makes /slow of this moment, on any thread."""
        reporter = self.reporter(0, now_ns)
        records = self._slowest.records()
        return lambda: reporter.report(records, now_ns, asked)

    def reporter(self, since_ns: int, now_ns: int) -> SlowReporter:
        """What tells of requests that began no sooner than that, on any thread."""
        self._note(now_ns)
        events = self._events.events()
        return SlowReporter(self._versions, events[events[:, END] > since_ns], self._history.of_models())

    @property
    def places(self) -> int:
        """How many versions there are or have been."""
        return len(self._versions)

    def p999_ns(self, samples_min: int) -> Ints:
        """(places,) what a thousandth of the last minute's requests of each version's model took longer than; NEVER_NS
        where there were fewer than that."""
        return self._history.p999_ns(samples_min)

    def _note(self, now_ns: int) -> None:
        self._events.note(now_ns)
        self._noted_ns = now_ns
