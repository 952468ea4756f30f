"""What happened to the core's process between two looks at it, as far as the kernel counts it.

The core is asked nothing: all of this is in /proc and in its control group. A look costs some 50 µs, so the loop's
thread and the process are looked at whenever the records are read, and what costs more at every SLOW_LOOKS-th time.

    jitter.sample(now_ns)           # on the observer's loop, as often as records are read
    jitter.between(start, end)      # what overlaps a request's way, oldest first; for the core's own events
                                    # (garbage, reloads, a late loop) see `RecordReader.events`
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, Protocol

from tickpath.observe.records import Event, EventKind

# Looks at each of the other threads, and at all processors, come to a millisecond where there are many of them.
SLOW_LOOKS: Final = 5
# Of each of the eight kinds one at every look, for the last minute; a list of 24,000 events is 5 MB.
EVENTS_MAX: Final = 8 * 60 * 50

_end: Final = attrgetter("end_ns")

Totals = dict[EventKind, int]


class Source(Protocol):
    """Something the kernel counts."""

    def totals(self) -> Mapping[EventKind, int]:
        """How much there has ever been of each kind; a kind is missing where it can't be told. Never raises."""
        ...


class Jitter:
    """Events of what `sources` count. One thread.

    `quick`: looked at in each sample; `slow`: in every SLOW_LOOKS-th.
    """

    def __init__(self, quick: Sequence[Source], slow: Sequence[Source] = ()) -> None:
        self._quick = _Looks(quick)
        self._slow = _Looks(slow)
        self._looks = 0
        self._events: list[Event] = []  # in the order of their ends

    @property
    def totals(self) -> Totals:
        """How much there has ever been of each kind, at the last look; 0 of what can't be told."""
        seen = self._quick.totals | self._slow.totals
        return {kind: seen.get(kind, 0) for kind in EventKind if kind >= EventKind.LOOP_PREEMPTED}

    def sample(self, now_ns: int) -> None:
        """Look at the core. `now_ns`: the monotonic clock, as the core's stamps are."""
        self._events += self._quick.look(now_ns)
        if self._looks % SLOW_LOOKS == 0:
            self._events += self._slow.look(now_ns)
        self._looks += 1
        if len(self._events) > 2 * EVENTS_MAX:
            del self._events[:-EVENTS_MAX]

    def between(self, start_ns: int, end_ns: int) -> list[Event]:
        """What may have happened between these moments, oldest first: the events whose own time overlaps theirs. It
        goes a minute back at least."""
        first = bisect_right(self._events, start_ns, key=_end)
        return [event for event in self._events[first:] if event.start_ns < end_ns]


class _Looks:
    """Sources that are looked at together, and what they had counted the last time."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._looked_ns = 0
        self.totals: Totals = {}

    def look(self, now_ns: int) -> Iterable[Event]:
        """What has been added since the last look; of the first one, nothing."""
        before, since_ns = self.totals, self._looked_ns
        self.totals, self._looked_ns = {}, now_ns
        for source in self._sources:
            self.totals.update(source.totals())
        return [
            Event(kind, since_ns, now_ns, total - before[kind])
            for kind, total in self.totals.items()
            if total > before.get(kind, total)
        ]
