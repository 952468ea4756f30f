"""/status.json: what the observer knows, as the page and `tickpath top` need it."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from tickpath.observe.histograms import Ints, SlidingWindow
from tickpath.observe.history import STEP_S, ModelHistory, Step, percentiles
from tickpath.observe.metrics import CODE_NAMES, LATE_CELLS, shown
from tickpath.observe.process import KINDS
from tickpath.observe.records import (
    CODE_COUNT,
    GLOBAL_CELLS,
    OK,
    VERSION_CELLS,
    VERSIONS_MAX,
    GlobalCell,
    State,
    VersionCell,
    VersionDescription,
)
from tickpath.observe.schema import (
    SCHEMA,
    Bucket,
    CoreStatus,
    FeedStatus,
    ModelStatus,
    Point,
    SessionStatus,
    Stage,
    Status,
    VersionStatus,
)
from tickpath.observe.tally import REQUEST, SPANS, Snapshot

_STATES: Final[dict[int, Literal["starting", "ready", "draining"]]] = {
    State.STARTING: "starting",
    State.READY: "ready",
    State.DRAINING: "draining",
}


@dataclass(frozen=True)
class CoreView:
    """What is known of the core from outside its memory. `context_switches`: by KINDS."""

    alive: bool
    silent_ns: int
    context_switches: tuple[int, int]


def status(snapshot: Snapshot, history: Mapping[str, ModelHistory], core: CoreView, now_ns: int) -> Status:
    """All of it. Changes nothing that it is given."""
    totals = snapshot.totals
    cells = totals[GLOBAL_CELLS:].reshape(VERSIONS_MAX, VERSION_CELLS).astype(np.int64)
    return Status(
        schema=SCHEMA,
        unix_ns=time.time_ns(),
        now_ns=now_ns,
        window_s=SlidingWindow.WINDOW_S,
        step_s=STEP_S,
        core=_core(snapshot, core),
        sessions=SessionStatus(
            open=int(totals[GlobalCell.SESSIONS]),
            opened=int(totals[GlobalCell.SESSIONS_OPENED]),
            refused=int(totals[GlobalCell.SESSIONS_REFUSED]),
            slow_readers_dropped=int(totals[GlobalCell.SLOW_READERS_DROPPED]),
            protocol_errors=int(totals[GlobalCell.PROTOCOL_ERRORS]),
        ),
        feeds=FeedStatus(
            open=int(totals[GlobalCell.FEEDS]),
            gaps=int(totals[GlobalCell.FEED_GAPS]),
            expired=int(totals[GlobalCell.FEEDS_EXPIRED]),
        ),
        refused=_codes(totals[GlobalCell.CODES : GlobalCell.CODES + CODE_COUNT].astype(np.int64)),
        models=tuple(_models(snapshot, cells, history, now_ns)),
    )


def _core(snapshot: Snapshot, core: CoreView) -> CoreStatus:
    totals = snapshot.totals
    return CoreStatus(
        pid=snapshot.core.pid,
        state=_STATES[int(totals[GlobalCell.STATE])] if core.alive else "ended",
        silent_ns=core.silent_ns,
        loop_lag_ns=int(totals[GlobalCell.LOOP_LAG_NS]),
        gc_pause_ns=int(totals[GlobalCell.GC_PAUSE_NS]),
        context_switches=dict(zip(KINDS, core.context_switches, strict=True)),
        quiet=bool(totals[GlobalCell.QUIET]),
        loads_failed=int(totals[GlobalCell.LOADS_FAILED]),
        records_lost=snapshot.lost,
    )


def _models(snapshot: Snapshot, cells: Ints, history: Mapping[str, ModelHistory], now_ns: int) -> Iterable[ModelStatus]:
    serving = int(snapshot.totals[GlobalCell.STATE]) == State.READY
    places: dict[str, list[int]] = {}
    for place, version in enumerate(snapshot.core.versions):
        places.setdefault(version.name, []).append(place)
    for name, of_model in places.items():
        # One that was described a moment ago has no history yet.
        if name in history:
            versions = [(place, snapshot.core.versions[place]) for place in of_model]
            yield _model(name, versions, cells, history[name], serving, now_ns)


def _model(
    name: str,
    versions: list[tuple[int, VersionDescription]],
    cells: Ints,
    history: ModelHistory,
    serving: bool,
    now_ns: int,
) -> ModelStatus:
    summed = cells[[place for place, _ in versions]].sum(axis=0)
    live = [(place, version) for place, version in versions if version.role == "live"]
    gap_ns = sum(int(cells[place, VersionCell.RELOAD_GAP_NS]) for place, _ in live)
    return ModelStatus(
        name=name,
        ready=serving and bool(live),
        live=live[0][1].version if live else None,
        rate_per_s=_rate_per_s(history.steps, now_ns),
        in_flight=int(summed[VersionCell.IN_FLIGHT]),
        queued=int(summed[VersionCell.QUEUE_DEPTH]),
        latency=percentiles(history.window[REQUEST]),
        stages=tuple(_stages(history)),
        codes=_codes(summed[VersionCell.CODES : VersionCell.CODES + CODE_COUNT]),
        deadline_misses={stage: int(summed[cell]) for stage, cell in LATE_CELLS.items()},
        warm_up=int(summed[VersionCell.WARM_UP]),
        padded_rows=int(summed[VersionCell.PADDED_ROWS]),
        reloads=int(summed[VersionCell.RELOADS]),
        reload_gap_ns=gap_ns,
        versions=tuple(_version(cells[place], version) for place, version in reversed(shown(versions))),
        points=tuple(_point(step, now_ns) for step in history.steps),
    )


def _version(cells: Ints, version: VersionDescription) -> VersionStatus:
    replays = cells[VersionCell.REPLAYS : VersionCell.REPLAYS + len(version.buckets)].tolist()
    return VersionStatus(
        version=version.version,
        role=version.role,
        engine=version.engine,
        precision=version.precision,
        executor=version.executor,
        sha256=version.sha256,
        answered=int(cells[VersionCell.CODES + OK]),
        buckets=tuple(map(Bucket, version.buckets, replays)),
    )


def _stages(history: ModelHistory) -> Iterable[Stage]:
    whole_ns = int(history.sums_ns[REQUEST])
    for span, name in enumerate(SPANS[:REQUEST]):
        found = percentiles(history.window[span])
        sum_ns = int(history.sums_ns[span])
        yield Stage(name, sum_ns / max(found.samples, 1), sum_ns / max(whole_ns, 1), found)


def _point(step: Step, now_ns: int) -> Point:
    age_s = (now_ns - step.start_ns) / 1e9
    return Point(round(age_s, 3), round(min(age_s, STEP_S), 3), step.max_ns, step.percentiles)


def _rate_per_s(steps: tuple[Step, ...], now_ns: int) -> float:
    """Over the last step that is complete and the one that goes on: 5 to 10 s."""
    begun_ns = (now_ns // (STEP_S * 10**9) - 1) * STEP_S * 10**9
    requests = sum(step.percentiles.samples for step in steps if step.start_ns >= begun_ns)
    return round(requests / ((now_ns - begun_ns) / 1e9), 1)


def _codes(counts: Ints) -> dict[str, int]:
    return {CODE_NAMES[code]: count for code, count in enumerate(counts.tolist()) if count and code in CODE_NAMES}
