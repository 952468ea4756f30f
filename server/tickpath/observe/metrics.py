"""What Prometheus gets to see. Counters are the core's exact totals; histograms and quantiles come from records.

Label values are those of the core's description, the codes of the protocol and fixed words: a client can't make a
series. All that can exist exists at 0 from the start, and nothing is ever NaN: a quantile without samples is 0, and the
number of samples beside it says so.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version as version_of
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from tickpath.observe.access import access_refused
from tickpath.observe.exposition import encoder
from tickpath.observe.gpu import GpuCollector, Nvml, installed
from tickpath.observe.latency_metrics import Labels, LatencyMetrics
from tickpath.observe.process_metrics import SeenCollector
from tickpath.observe.records import (
    GLOBAL_CELLS,
    OK,
    VERSION_CELLS,
    VERSIONS_MAX,
    GlobalCell,
    State,
    VersionCell,
    VersionDescription,
    flag_cell,
)
from tickpath.observe.tally import Snapshot
from tickpath.observe.triton_names import TritonCollector
from tickpath.observe.watched import Seen
from tickpath.wire import Code, Flag

RETIRED_SHOWN: Final = 4

NO_MODEL: Final = "(none)"
"""The model and version of a request that was refused before its model was known; no model can be named so."""

CODE_NAMES: Final = {OK: "OK", **{int(code): code.name for code in Code}}

Family = type[CounterMetricFamily] | type[GaugeMetricFamily]

LATE_CELLS: Final = {
    "admission": VersionCell.LATE_AT_ADMISSION,
    "queue": VersionCell.LATE_IN_QUEUE,
    "answer": VersionCell.LATE_ANSWERS,
}

_OF_MODEL: Final[tuple[tuple[Family, str, str, int], ...]] = (
    (GaugeMetricFamily, "tickpath_in_flight", "Requests received and not yet answered.", VersionCell.IN_FLIGHT),
    (GaugeMetricFamily, "tickpath_queue_depth", "Requests that wait for their executor.", VersionCell.QUEUE_DEPTH),
    (CounterMetricFamily, "tickpath_padded_rows_total", "Rows run only to fill a bucket.", VersionCell.PADDED_ROWS),
    (
        CounterMetricFamily,
        "tickpath_superseded_total",
        "Requests that a newer one with their key overtook in the queue.",
        VersionCell.CODES + Code.SUPERSEDED,
    ),
    (
        CounterMetricFamily,
        "tickpath_feed_warm_up_total",
        "Ticks taken and answered NOT_READY, since their feed's window was not full.",
        VersionCell.WARM_UP,
    ),
    (
        CounterMetricFamily,
        "tickpath_reloads_total",
        "Times that another version was made live, the start aside.",
        VersionCell.RELOADS,
    ),
)

_OF_SHADOW: Final[tuple[tuple[str, str, VersionCell], ...]] = (
    (
        "tickpath_shadow_compared_total",
        "Answers of the live version that this one computed again, as a shadow.",
        VersionCell.SHADOW_COMPARED,
    ),
    (
        "tickpath_shadow_differed_total",
        "Of those compared, answers that were not the same within the model's tolerance.",
        VersionCell.SHADOW_DIFFERED,
    ),
    (
        "tickpath_shadow_dropped_total",
        "Answers not compared, since the shadow could not keep up.",
        VersionCell.SHADOW_DROPPED,
    ),
)

_NUMERIC: Final = {
    "input_non_finite": flag_cell(Flag.INPUT_NON_FINITE),
    "output_non_finite": flag_cell(Flag.OUTPUT_NON_FINITE),
    "output_out_of_bounds": flag_cell(Flag.OUTPUT_OUT_OF_BOUNDS),
}
_FALLBACKS: Final = {"last": flag_cell(Flag.LAST_ANSWER), "cpu": flag_cell(Flag.CPU_ANSWER)}

_OF_CORE: Final[tuple[tuple[Family, str, str, GlobalCell, float], ...]] = (
    (GaugeMetricFamily, "tickpath_sessions", "Open sessions.", GlobalCell.SESSIONS, 1),
    (CounterMetricFamily, "tickpath_sessions_opened_total", "Sessions opened.", GlobalCell.SESSIONS_OPENED, 1),
    (CounterMetricFamily, "tickpath_sessions_refused_total", "Sessions refused.", GlobalCell.SESSIONS_REFUSED, 1),
    (
        CounterMetricFamily,
        "tickpath_slow_readers_dropped_total",
        "Sessions dropped because the client did not read its replies.",
        GlobalCell.SLOW_READERS_DROPPED,
        1,
    ),
    (
        CounterMetricFamily,
        "tickpath_protocol_errors_total",
        "Sessions closed because the client broke the protocol.",
        GlobalCell.PROTOCOL_ERRORS,
        1,
    ),
    (GaugeMetricFamily, "tickpath_feeds", "Open feeds.", GlobalCell.FEEDS, 1),
    (
        CounterMetricFamily,
        "tickpath_feed_gaps_total",
        "Ticks not taken since an earlier one, or their feed's state, was missing.",
        GlobalCell.FEED_GAPS,
        1,
    ),
    (
        CounterMetricFamily,
        "tickpath_feeds_expired_total",
        "Feeds forgotten since no tick came for feed_idle_s.",
        GlobalCell.FEEDS_EXPIRED,
        1,
    ),
    (
        GaugeMetricFamily,
        "tickpath_loop_lag_seconds",
        "The most that the event loop's heartbeat was late in the last one to two minutes.",
        GlobalCell.LOOP_LAG_NS,
        1e9,
    ),
    (
        CounterMetricFamily,
        "tickpath_loads_failed_total",
        "Loads that were asked for and refused; what was served before still is.",
        GlobalCell.LOADS_FAILED,
        1,
    ),
    (CounterMetricFamily, "tickpath_recorded_total", "Recorded entries, in a file.", GlobalCell.RECORDED, 1),
    (CounterMetricFamily, "tickpath_record_dropped_total", "Entries not recorded.", GlobalCell.RECORD_DROPPED, 1),
    (GaugeMetricFamily, "tickpath_quiet", "1 while nothing may be loaded or unloaded.", GlobalCell.QUIET, 1),
)


class SnapshotCollector(Collector):
    """One snapshot as metric families."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        versions = snapshot.core.versions
        self._cells = snapshot.totals[GLOBAL_CELLS:].reshape(VERSIONS_MAX, VERSION_CELLS)
        # Whatever has no version label adds up over all that the model ever had; a version's own series goes some
        # time after it, or 200 reloads would make 200 times the series.
        self._all = tuple(enumerate(versions))
        self._shown = shown(enumerate(versions))
        self._by_name = _grouped(self._all, lambda version: (version.name,))
        self._by_version = _grouped(self._shown, lambda version: (version.name, version.version))

    def collect(self) -> Iterator[Metric]:
        yield from LatencyMetrics(self._snapshot, self._by_name, self._by_version).families()
        yield self._requests()
        yield from self._replays()
        for family, name, text, of_model in _OF_MODEL:
            yield self._of_model(family, name, text, of_model)
        yield self._by(
            "tickpath_deadline_misses_total",
            "Requests past their budget, by where that was known.",
            "stage",
            LATE_CELLS,
        )
        yield self._by(
            "tickpath_numeric_total", "Requests that were refused or flagged for their values.", "reason", _NUMERIC
        )
        yield self._by("tickpath_fallbacks_total", "Requests for which another answer stood in.", "kind", _FALLBACKS)
        for name, text, of_shadow in _OF_SHADOW:
            yield self._of_version(name, text, of_shadow)
        yield self._reload_gap()
        for family, name, text, of_core, unit in _OF_CORE:
            yield family(name, text, value=int(self._snapshot.totals[of_core]) / unit)
        yield SummaryMetricFamily(
            "tickpath_gc_pause_seconds",
            "Pauses of the core's garbage collector since it was ready.",
            count_value=int(self._snapshot.totals[GlobalCell.GC_PAUSES]),
            sum_value=int(self._snapshot.totals[GlobalCell.GC_PAUSE_NS]) / 1e9,
        )
        yield access_refused(self._snapshot)
        yield from self._state()
        yield CounterMetricFamily(
            "tickpath_records_lost_total",
            "Answered requests that are counted but missing in the histograms.",
            value=self._snapshot.lost,
        )
        for name, text, traces in (
            ("tickpath_traces_exported_total", "Requests that left as traces.", self._snapshot.traces_exported),
            ("tickpath_traces_dropped_total", "Requests that should have, and did not.", self._snapshot.traces_dropped),
        ):
            yield CounterMetricFamily(name, text, value=traces)

    def _requests(self) -> Metric:
        family = CounterMetricFamily(
            "tickpath_requests_total",
            f"Requests by how they ended; model {NO_MODEL}: refused before the model was known.",
            labels=("model", "version", "code"),
        )
        refused = self._snapshot.totals[GlobalCell.CODES :]
        for code, text in CODE_NAMES.items():
            family.add_metric((NO_MODEL, NO_MODEL, text), int(refused[code]))
        for labels, indices in self._by_version.items():
            for code, text in CODE_NAMES.items():
                family.add_metric((*labels, text), self._sum(indices, VersionCell.CODES + code))
        return family

    def _replays(self) -> Iterator[Metric]:
        replays, eager = Counter[Labels](), Counter[Labels]()
        for index, version in self._all:
            for place, bucket in enumerate(version.buckets):
                series, count = (version.name, str(bucket)), self._sum([index], VersionCell.REPLAYS + place)
                replays[series] += count
                eager[series] += count if bucket in version.eager_buckets else 0
        for name, text, counts in (
            ("tickpath_graph_replays_total", "Runs of a bucket, by its rows.", replays),
            ("tickpath_eager_runs_total", "Of these, runs without a graph, since it could not be captured.", eager),
        ):
            family = CounterMetricFamily(name, text, labels=("model", "bucket"))
            for labels, count in counts.items():
                family.add_metric(labels, count)
            yield family

    def _of_model(self, kind: Family, name: str, text: str, cell: int) -> Metric:
        family = kind(name, text, labels=("model",))
        for labels, indices in self._by_name.items():
            family.add_metric(labels, self._sum(indices, cell))
        return family

    def _by(self, name: str, text: str, label: str, cells: Mapping[str, int]) -> Metric:
        family = CounterMetricFamily(name, text, labels=("model", label))
        for (model,), indices in self._by_name.items():
            for value, cell in cells.items():
                family.add_metric((model, value), self._sum(indices, cell))
        return family

    def _of_version(self, name: str, text: str, cell: VersionCell) -> Metric:
        family = CounterMetricFamily(name, text, labels=("model", "version"))
        for labels, indices in self._by_version.items():
            family.add_metric(labels, self._sum(indices, cell))
        return family

    def _reload_gap(self) -> Metric:
        family = GaugeMetricFamily(
            "tickpath_reload_gap_seconds",
            "The most that the event loop was away at a stretch while the model was last loaded; 0: never since.",
            labels=("model",),
        )
        for labels, indices in self._by_name.items():
            live = [index for index in indices if self._snapshot.core.versions[index].role == "live"]
            family.add_metric(labels, self._sum(live, VersionCell.RELOAD_GAP_NS) / 1e9)
        return family

    def _state(self) -> Iterator[Metric]:
        info = InfoMetricFamily("tickpath_model", "The versions that are loaded.")
        for _, version in self._all:
            if version.role != "retired":
                info.add_metric((), _facts(version))
        ready = GaugeMetricFamily("tickpath_model_ready", "1 while the model answers requests.", labels=("model",))
        serving = self._snapshot.totals[GlobalCell.STATE] == State.READY
        for labels, places in self._by_name.items():
            live = any(self._snapshot.core.versions[place].role == "live" for place in places)
            ready.add_metric(labels, int(serving and live))
        yield info
        yield ready

    def _sum(self, indices: list[int], cell: int) -> int:
        return int(self._cells[indices, cell].sum())


class InfoCollector(Collector):
    """What tells this server from others."""

    def __init__(self, facts: dict[str, str]) -> None:
        self._facts = facts

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("tickpath_server", "The server's name and release.", value=self._facts)


class Exposition:
    """Renders snapshots. One thread."""

    def __init__(self, core_pid: int, server_name: str, triton_names: bool = False) -> None:
        self._triton_names = triton_names
        self._server = {"name": server_name, "version": version_of("tickpath")}
        self._of_machine = (
            # The names that every dashboard knows are the core's; the observer's own cost stands apart.
            ProcessCollector(pid=lambda: core_pid, registry=None),
            ProcessCollector(namespace="tickpath_observer", registry=None),
            GpuCollector(Nvml(installed())),
        )

    def render(self, snapshot: Snapshot, seen: Seen, accept: str) -> tuple[str, bytes]:
        """(content type, body) in the newest format that the Accept header names and the library has."""
        registry = CollectorRegistry()
        registry.register(SnapshotCollector(snapshot))
        registry.register(SeenCollector(seen))
        registry.register(InfoCollector(self._server))
        if self._triton_names:
            registry.register(TritonCollector(snapshot, shown(enumerate(snapshot.core.versions))))
        for collector in self._of_machine:
            registry.register(collector)
        encode, content_type = encoder(accept)
        return content_type, encode(registry)


def shown(versions: Iterable[tuple[int, VersionDescription]]) -> tuple[tuple[int, VersionDescription], ...]:
    """Of these places and versions those that are told of one by one: those loaded, and of those retired the last few
    of each model, so that whoever looks at a reload sees both sides of it."""
    left: Counter[str] = Counter()
    found = []
    for place, version in reversed(tuple(versions)):
        if version.role == "retired":
            left[version.name] += 1
            if left[version.name] > RETIRED_SHOWN:
                continue
        found.append((place, version))
    return tuple(reversed(found))


def _grouped(
    versions: Iterable[tuple[int, VersionDescription]], labels: Callable[[VersionDescription], Labels]
) -> dict[Labels, list[int]]:
    """Places of the versions by label values: two versions of a model are one series where the version is no label."""
    groups: dict[Labels, list[int]] = {}
    for place, version in versions:
        groups.setdefault(labels(version), []).append(place)
    return groups


def _facts(version: VersionDescription) -> dict[str, str]:
    return {
        "model": version.name,
        "version": version.version,
        "engine": version.engine,
        "precision": version.precision,
        "sha256": version.sha256,
        "executor": version.executor,
        "role": version.role,
    }
