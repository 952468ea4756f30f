"""What the observer's loop does for traces: pick records, keep them until what went on meanwhile is known, hand them
over."""

import time
from importlib.metadata import version as version_of
from typing import Final

import numpy as np

from tickpath.observe.histograms import Ints
from tickpath.observe.reader import RECORD_DTYPE, Records
from tickpath.observe.recent import Recent
from tickpath.observe.settings import P999, TraceSettings
from tickpath.observe.slowest import duration_ns
from tickpath.observe.tracing.exporting import Exporting
from tickpath.observe.tracing.outbox import Batch, Outbox
from tickpath.observe.tracing.picking import Mask, sampled
from tickpath.observe.tracing.spans import SpanMaker

# A request is told of at the turn after next. Looks from outside come five times as often at the least, and the core
# writes its own events as they end.
TURN_NS: Final = 500_000_000
# p99.9 of fewer is not even the slowest but one.
SAMPLES_MIN: Final = 1_000
# How long the end of the observer waits for what is still to be sent; the core gives it two.
END_S: Final = 1.0


class Tracer:
    """Fed with batches of records as they are read. One thread, beside the one that exports."""

    def __init__(
        self, settings: TraceSettings, server_name: str, core_pid: int, recent: Recent, counters: Ints
    ) -> None:
        release = version_of("tickpath")
        facts: dict[str, str | int | float | bool] = {
            "service.name": "tickpath",
            "service.instance.id": server_name,
            "service.version": release,
            "tickpath.server_name": server_name,
            "process.pid": core_pid,
        }
        self._settings = settings
        self._recent = recent
        self._outbox = Outbox(counters)
        self._exporting = Exporting(settings, self._outbox, SpanMaker(facts, release))
        self._exporting.start()
        self._turned_ns = 0
        self._fresh: list[tuple[Records, Mask]] = []
        self._ripe: list[tuple[Records, Mask]] = []
        self._limits_ns: Ints = np.zeros(0, np.int64)

    def read(self, records: Records, now_ns: int) -> None:
        """Take records that `recent` was given just now. As often when there are none."""
        if now_ns >= self._turned_ns + TURN_NS:
            self._turned_ns = now_ns
            self._limits_ns = self._limits()
            self._tell(self._ripe, now_ns)
            self._ripe, self._fresh = self._fresh, []
        if len(records):
            self._pick(records)

    def close(self, now_ns: int) -> None:
        """Send what there is, as far as it goes in END_S."""
        self._tell(self._ripe + self._fresh, now_ns)
        self._outbox.close()
        self._exporting.join(END_S)

    def _pick(self, records: Records) -> None:
        if len(self._limits_ns) <= records["version"].max():
            self._limits_ns = self._limits()
        slow = duration_ns(records) > self._limits_ns[records["version"].astype(np.int64)]
        picked = np.flatnonzero(slow | sampled(records, self._settings.sample))
        if len(picked):
            # Where there is no room for all, the slow ones have it.
            picked = picked[np.argsort(~slow[picked], kind="stable")]
            picked = picked[: self._outbox.reserve(len(picked))]
            self._fresh.append((records[picked], slow[picked]))

    def _limits(self) -> Ints:
        """By a version's place, what its requests must take longer than to be slow."""
        if self._settings.slow == P999:
            return self._recent.p999_ns(SAMPLES_MIN)
        return np.full(self._recent.places, self._settings.slow_ns, np.int64)

    def _tell(self, picked: list[tuple[Records, Mask]], now_ns: int) -> None:
        records = np.concatenate([np.zeros(0, RECORD_DTYPE), *(of_read for of_read, _ in picked)])
        if not len(records):
            return
        slow = np.concatenate([of_read for _, of_read in picked])
        reporter = self._recent.reporter(int(records["first_byte_ns"].min()), now_ns)
        offset_ns = time.time_ns() - time.monotonic_ns()
        self._outbox.put(Batch(records, slow, reporter, offset_ns, now_ns))
