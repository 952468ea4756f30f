"""How each model's requests went over the last minutes, for people who look now: percentiles of every stage over the
last minute, and of whole requests for each step of five seconds. Owned by one thread.

By model and not by version: whoever looks at a reload wants one line through it.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tickpath.observe.histograms import CELLS, Counts, Ints, SlidingWindow, cell_index, quantile_ns
from tickpath.observe.records import VersionDescription
from tickpath.observe.schema import Percentiles
from tickpath.observe.settings import NEVER_NS
from tickpath.observe.tally import REQUEST, SPANS

# At 2,000 requests a second a step holds the 10,000 that p99.9 wants; a second would hold a fifth of that.
STEP_S: Final = 5
WINDOW_STEPS: Final = SlidingWindow.WINDOW_S // STEP_S
# Ten minutes: back to before whatever made somebody look.
STEPS: Final = 120


@dataclass(frozen=True)
class Step:
    """The requests that ended in one step of STEP_S, which began at `start_ns`."""

    start_ns: int
    max_ns: int
    percentiles: Percentiles


@dataclass(frozen=True)
class ModelHistory:
    """One model. `window`: (SPANS, CELLS) counts and `sums_ns`: (SPANS,) of the last minute; `steps`: oldest first,
    those without requests left out, the last one perhaps not over yet."""

    window: Counts
    sums_ns: Ints
    steps: tuple[Step, ...]


class History:
    """Fed with batches of requests as they are read. Time is the moment of reading.

    Each step of the last minute has a histogram for every model and span, written once a request; what they come to
    together is added up when somebody asks. 640 KB a model.
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self._rows: Ints = np.zeros(0, np.int64)  # by a version's place, its model's
        self._counts = np.zeros((WINDOW_STEPS, 0, len(SPANS), CELLS), np.uint32)
        self._sums_ns: Ints = np.zeros((WINDOW_STEPS, 0, len(SPANS)), np.int64)
        self._max_ns: Ints = np.zeros(0, np.int64)
        self._steps: list[deque[Step]] = []
        self._step = 0

    def read(self, versions: Sequence[VersionDescription], places: Ints, spans_ns: Ints, now_ns: int) -> None:
        """Take requests: the (n,) places of their versions, and (n, SPANS) ns. As often when there are none."""
        self._fit(versions)
        step = now_ns // (STEP_S * 10**9)
        if step > self._step:
            self._end_step(oldest=step - STEPS + 1)
            for expired in range(max(self._step + 1, step - WINDOW_STEPS + 1), step + 1):
                self._counts[expired % WINDOW_STEPS] = 0
                self._sums_ns[expired % WINDOW_STEPS] = 0
            self._step = step
        if len(places):
            self._add(self._rows[places], spans_ns)

    def of_models(self) -> dict[str, ModelHistory]:
        """What is known now, in arrays of its own."""
        sums_ns = self._sums_ns.sum(axis=0)
        return {
            name: ModelHistory(
                self._counts[:, row].sum(axis=0, dtype=np.int64),
                sums_ns[row],
                (*self._steps[row], *self._current(row)),
            )
            for row, name in enumerate(self._names)
        }

    def p999_ns(self, samples_min: int) -> Ints:
        """(places,) what no more than a thousandth of the last minute's requests of each version's model took longer
        than; NEVER_NS where there were fewer than that."""
        of_models = [
            # A cell's width above: who is in the same cell took as long.
            round(1.01 * quantile_ns(counts, "0.999")) if counts.sum() >= samples_min else NEVER_NS
            for counts in self._counts[:, :, REQUEST].sum(axis=0, dtype=np.int64)
        ]
        return np.array(of_models, np.int64)[self._rows]

    def _fit(self, versions: Sequence[VersionDescription]) -> None:
        if len(versions) == len(self._rows):
            return
        self._names = list(dict.fromkeys(version.name for version in versions))
        self._rows = np.array([self._names.index(version.name) for version in versions], np.int64)
        extra = len(self._names) - len(self._max_ns)
        if extra:
            self._counts = np.pad(self._counts, ((0, 0), (0, extra), (0, 0), (0, 0)))
            self._sums_ns = np.pad(self._sums_ns, ((0, 0), (0, extra), (0, 0)))
            self._max_ns = np.pad(self._max_ns, (0, extra))
            self._steps += [deque(maxlen=STEPS) for _ in range(extra)]

    def _add(self, rows: Ints, spans_ns: Ints) -> None:
        slot = self._step % WINDOW_STEPS
        cells = np.arange(len(SPANS)) * CELLS + cell_index(spans_ns)
        # By model, since `bincount` is forty times as quick as `add.at`, and makes room for all that it may count.
        for row in np.flatnonzero(np.bincount(rows)).tolist():
            mine = rows == row
            counts = np.bincount(cells[mine].reshape(-1), minlength=len(SPANS) * CELLS)
            self._counts[slot, row] += counts.reshape(len(SPANS), CELLS).astype(np.uint32)
            self._sums_ns[slot, row] += spans_ns[mine].sum(axis=0)
            self._max_ns[row] = max(self._max_ns[row], spans_ns[mine, REQUEST].max())

    def _end_step(self, oldest: int) -> None:
        for row, steps in enumerate(self._steps):
            steps.extend(self._current(row))
            while steps and steps[0].start_ns < oldest * STEP_S * 10**9:
                steps.popleft()
        self._max_ns[:] = 0

    def _current(self, row: int) -> tuple[Step, ...]:
        counts = self._counts[self._step % WINDOW_STEPS, row, REQUEST].astype(np.int64)
        if not counts.any():
            return ()
        return (Step(self._step * STEP_S * 10**9, int(self._max_ns[row]), percentiles(counts)),)


def percentiles(counts: Counts) -> Percentiles:
    """Of what fine cells of shape (CELLS,) count."""
    p50_ns, p99_ns, p999_ns = (quantile_ns(counts, quantile) for quantile in ("0.5", "0.99", "0.999"))
    return Percentiles(int(counts.sum()), p50_ns, p99_ns, p999_ns)
