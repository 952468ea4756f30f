"""Between the observer's loop and the thread that exports: a bounded queue that never makes the loop wait, and the two
counts of what became of it."""

from dataclasses import dataclass
from queue import SimpleQueue
from threading import Lock
from typing import Final

from tickpath.observe.histograms import Ints
from tickpath.observe.kept import Word
from tickpath.observe.reader import Records
from tickpath.observe.slow import SlowReporter
from tickpath.observe.tracing.picking import Mask

# Two seconds of the thousand requests a second that one thread makes spans of. A record with what it needs is some
# kB at the most, so that these are 50 MB where nothing can be sent.
WAITING_MAX: Final = 2048


@dataclass(frozen=True)
class Batch:
    """Requests to export. `slow`: (n,) which of them are here because they were; `offset_ns`: what makes Unix time of
    the core's clock; `now_ns`: that clock as the batch was made."""

    records: Records
    slow: Mask
    reporter: SlowReporter
    offset_ns: int
    now_ns: int


class Outbox:
    """One thread reserves and puts, another takes and settles. `counters`: by `kept.Word`."""

    def __init__(self, counters: Ints, waiting_max: int = WAITING_MAX) -> None:
        self._counters = counters
        self._waiting_max = waiting_max
        self._waiting = 0
        self._lock = Lock()
        self._batches: SimpleQueue[Batch | None] = SimpleQueue()

    def reserve(self, count: int) -> int:
        """Room for so many requests. Returns how many have it; the others are dropped."""
        with self._lock:
            granted = min(count, self._waiting_max - self._waiting)
            self._waiting += granted
            self._counters[Word.TRACES_DROPPED] += count - granted
        return granted

    def put(self, batch: Batch) -> None:
        """Hand over requests that have room."""
        self._batches.put(batch)

    def close(self) -> None:
        """Nothing comes any more."""
        self._batches.put(None)

    def take(self) -> Batch | None:
        """Wait for a batch; None when nothing comes any more."""
        return self._batches.get()

    def settle(self, count: int, exported: bool) -> None:
        """So many requests have left, or are given up."""
        with self._lock:
            self._waiting -= count
            self._counters[Word.TRACES_EXPORTED if exported else Word.TRACES_DROPPED] += count

    @property
    def dropped(self) -> int:
        return int(self._counters[Word.TRACES_DROPPED])
