"""What held the core up in the last minutes: its own events and what was seen from outside, for as long as slow
requests are kept. Owned by one thread."""

from collections import deque
from collections.abc import Callable
from typing import Final

import numpy as np

from tickpath.observe.histograms import Ints
from tickpath.observe.records import Event
from tickpath.observe.slowest import KEPT_S

START: Final = Event._fields.index("start_ns")
END: Final = Event._fields.index("end_ns")


class EventLog:
    """Takes over what its sources forget sooner.

    `between`: what was seen from outside and ended after the first moment, and before the second; `of_core`: the newest
    events that the core wrote.

    Eight kinds at 50 looks a second, all of them each time, come to 32 bytes for each of 120,000 events: 4 MB.
    """

    def __init__(self, between: Callable[[int, int], list[Event]], of_core: Callable[[], list[Event]]) -> None:
        self._between = between
        self._of_core = of_core
        self._known: set[Event] = set()
        self._noted_ns = 0
        self._noted: deque[tuple[int, Ints]] = deque()

    def note(self, now_ns: int) -> None:
        """Take what is new. Every few seconds at least."""
        newest = self._of_core()
        # Known by what they are and not by when they ended: a load is written down as it ends, a moment later.
        new = [event for event in newest if event not in self._known]
        self._known = set(newest)
        new += self._between(self._noted_ns, now_ns)
        self._noted_ns = now_ns
        if new:
            self._noted.append((now_ns, np.array(new, np.int64)))
        while self._noted and self._noted[0][0] < now_ns - KEPT_S * 10**9:
            self._noted.popleft()

    def events(self) -> Ints:
        """All that is known, (n, 4): the fields of `Event`."""
        return np.concatenate([np.zeros((0, len(Event._fields)), np.int64), *(noted for _, noted in self._noted)])
