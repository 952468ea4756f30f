"""/slow: the slowest requests as people read of them."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

import numpy as np

from tickpath.observe.causes import Span, explain, why
from tickpath.observe.event_log import END, START
from tickpath.observe.histograms import Ints, quantile_ns
from tickpath.observe.history import ModelHistory
from tickpath.observe.reader import Records
from tickpath.observe.records import Event, EventKind, VersionDescription
from tickpath.observe.schema import SCHEMA, SlowReport, SlowRequest
from tickpath.observe.slowest import KEPT_S, duration_ns
from tickpath.observe.tally import REQUEST, SPANS
from tickpath.wire import STAMP_NAMES

COUNT: Final = 20
"""How many are told of unless asked otherwise."""
# More than anybody reads. Where everything happens all the time they take a quarter of a second to tell.
COUNT_MAX: Final = 200

# Loads take longer, and there are few of them.
LONG_NS: Final = 100_000_000
# The median of fewer says little of what is usual.
SAMPLES_MIN: Final = 10

STAMPS: Final = (*(f"{name}_ns" for name in STAMP_NAMES), "sent_ns")


@dataclass(frozen=True)
class SlowQuery:
    """How many requests are asked for, of which model (None: of all)."""

    count: int = COUNT
    model: str | None = None


def parse_slow_query(query: str) -> SlowQuery:
    """What stands behind /slow's question mark. Raises ValueError with what to do."""
    asked = dict(parse_qsl(query, keep_blank_values=True))
    text = asked.pop("count", str(COUNT))
    model = asked.pop("model", None)
    if asked:
        raise ValueError(f"count and model expected, {min(asked)[:20]!r} came: /slow?count=20&model=NAME")
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:5]) <= COUNT_MAX and len(text) < 5):
        raise ValueError(f"count: 1 to {COUNT_MAX} expected, {text[:20]!r} came")
    return SlowQuery(int(text), model)


class SlowReporter:
    """Tells of slow requests. `events`: what is known to have happened to the core, whenever, (n, 4) the fields of
    `Event`; `history`: what is usual, by model."""

    def __init__(
        self, versions: Sequence[VersionDescription], events: Ints, history: Mapping[str, ModelHistory]
    ) -> None:
        self._versions = versions
        lasting_ns = events[:, END] - events[:, START]
        self._long = events[lasting_ns > LONG_NS]
        short = events[lasting_ns <= LONG_NS]
        self._short = short[np.argsort(short[:, END])]
        self._names = [f"{version.name}@{version.version}" for version in versions]
        self._usual_ns = {name: _medians_ns(of_model) for name, of_model in history.items()}

    def report(self, records: Records, now_ns: int, asked: SlowQuery) -> SlowReport:
        """The slowest of `records`, as many as are asked for."""
        if asked.model is not None:
            places = [place for place, version in enumerate(self._versions) if version.name == asked.model]
            records = records[np.isin(records["version"], places)]
        slowest = records[np.argsort(-duration_ns(records), kind="stable")[: asked.count]]
        return SlowReport(SCHEMA, time.time_ns(), now_ns, KEPT_S, tuple(self.tell(slowest, now_ns)))

    def tell(self, records: Records, now_ns: int) -> Iterable[SlowRequest]:
        """Each of them."""
        return (self._tell(record, now_ns) for record in _rows(records))

    def _tell(self, record: dict[str, int], now_ns: int) -> SlowRequest:
        version = self._versions[record["version"]]
        usual_ns = self._usual_ns.get(version.name, [None] * len(SPANS))
        stamps_ns = {name: record[name] for name in STAMPS}
        first_ns, *_, sent_ns = stamps_ns.values()
        moments = zip(SPANS[:REQUEST], stamps_ns.values(), list(stamps_ns.values())[1:], usual_ns, strict=False)
        spans = [Span(*moment) for moment in moments]
        stages = explain(spans, version.executor, record["queued"], self._around(first_ns, sent_ns), self._names)
        return SlowRequest(
            id=str(record["id"]),
            model=version.name,
            version=version.version,
            executor=version.executor,
            bucket=record["bucket"],
            rows=record["rows"],
            session=record["session"] or None,
            queued=record["queued"],
            age_s=round((now_ns - sent_ns) / 1e9, 3),
            event_time_ns=str(record["event_time_ns"]),
            stamps_ns=stamps_ns,
            duration_ns=max(0, sent_ns - first_ns),
            usual_ns=usual_ns[REQUEST],
            stages=stages,
            why=why(stages, version.executor),
        )

    def _around(self, start_ns: int, end_ns: int) -> Iterable[Event]:
        # A short one that ends long afterwards has begun afterwards, too.
        first, last = np.searchsorted(self._short[:, END], [start_ns, end_ns + LONG_NS])
        found = np.concatenate((self._long, self._short[first:last]))
        found = found[(found[:, START] < end_ns) & (found[:, END] > start_ns)]
        return [Event(EventKind(kind), *rest) for kind, *rest in found.tolist()]


def _rows(records: Records) -> Iterable[dict[str, int]]:
    names = records.dtype.names or ()
    return (dict(zip(names, record, strict=True)) for record in records.tolist())


def _medians_ns(history: ModelHistory) -> list[float | None]:
    """Of each of SPANS; None with too few samples."""
    return [quantile_ns(cells, "0.5") if cells.sum() >= SAMPLES_MIN else None for cells in history.window]
