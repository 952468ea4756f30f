"""What /status.json and /slow answer, as JSON: the one description of it, for the page, for `tickpath top` and `slow`,
and for programs of others.

Every time is in nanoseconds, as its name says; `*_ns` of a moment is the core's monotonic clock, unless it is
`unix_ns`. A number that is not known is null, never NaN. Fields are only ever added; `schema` rises when one changes
its meaning or goes.
"""

from typing import Final, Literal

import msgspec

SCHEMA: Final = 1

HARMLESS: Final = frozenset({"OK", "SUPERSEDED", "CANCELLED", "DEADLINE"})
"""Endings that are no fault: as it should be, asked for by the client, or counted as a deadline miss."""


class Percentiles(msgspec.Struct, frozen=True):
    """Of `samples` requests; all 0 where there are none. p99.9 of fewer than 10,000 rests on fewer than ten."""

    samples: int
    p50_ns: float
    p99_ns: float
    p999_ns: float


class Stage(msgspec.Struct, frozen=True):
    """One stage of a model's requests in the last minute. `share` of the requests' whole time, 0 to 1."""

    name: str
    mean_ns: float
    share: float
    percentiles: Percentiles


class Point(msgspec.Struct, frozen=True):
    """The requests of one step of time. `age_s`: how long ago the step began. `span_s`: how long it is, less than
    `Status.step_s` only for the one that still goes on."""

    age_s: float
    span_s: float
    max_ns: int
    percentiles: Percentiles


class Bucket(msgspec.Struct, frozen=True):
    """A batch size that is captured, and how often it was run."""

    rows: int
    replays: int


class VersionStatus(msgspec.Struct, frozen=True):
    """One version of a model. `answered` and `replays` count since the core's start."""

    version: str
    role: Literal["live", "loaded", "retired"]
    engine: str
    precision: str
    executor: str
    sha256: str
    answered: int
    buckets: tuple[Bucket, ...]


class ModelStatus(msgspec.Struct, frozen=True):
    """One model over all its versions. `latency` and `stages` are of the last minute, first byte to reply sent; what
    counts, counts since the core's start. `codes`: requests by how they ended, those that never happened left out.
    `warm_up`: of those that ended NOT_READY, ticks that were taken while their feed's window filled."""

    name: str
    ready: bool
    live: str | None
    rate_per_s: float
    in_flight: int
    queued: int
    latency: Percentiles
    stages: tuple[Stage, ...]
    codes: dict[str, int]
    deadline_misses: dict[str, int]
    warm_up: int
    padded_rows: int
    reloads: int
    reload_gap_ns: int
    versions: tuple[VersionStatus, ...]
    points: tuple[Point, ...]

    @property
    def errors(self) -> int:
        """Requests that ended otherwise than they should have. Every feed has its warm-up, so that is none."""
        ended = sum(count for code, count in self.codes.items() if code not in HARMLESS)
        return max(ended - self.warm_up, 0)  # two counts may be a request apart

    @property
    def misses(self) -> int:
        """Requests whose budget was not kept, wherever that was known."""
        return sum(self.deadline_misses.values())


class CoreStatus(msgspec.Struct, frozen=True):
    """The core process. `silent_ns`: how long ago its loop came round last. `loop_lag_ns`: the most that it was late in
    the last one to two minutes. `records_lost`: requests that are counted and missing in percentiles."""

    pid: int
    state: Literal["starting", "ready", "draining", "ended"]
    silent_ns: int
    loop_lag_ns: int
    gc_pause_ns: int
    context_switches: dict[str, int]
    quiet: bool
    loads_failed: int
    records_lost: int


class SessionStatus(msgspec.Struct, frozen=True):
    """Connections, since the core's start but for `open`."""

    open: int
    opened: int
    refused: int
    slow_readers_dropped: int
    protocol_errors: int


class FeedStatus(msgspec.Struct, frozen=True):
    """Feeds that the server keeps, since the core's start but for `open`."""

    open: int
    gaps: int
    expired: int


class Status(msgspec.Struct, frozen=True):
    """/status.json. `refused`: requests refused before their model was known, by code."""

    schema: int
    unix_ns: int
    now_ns: int
    window_s: int
    step_s: int
    core: CoreStatus
    sessions: SessionStatus
    feeds: FeedStatus
    refused: dict[str, int]
    models: tuple[ModelStatus, ...]


class Cause(msgspec.Struct, frozen=True):
    """Something that went on during a stage, for `overlap_ns` of it; `amount` in what `kind` counts in. `text` says it
    in words."""

    kind: str
    amount: int
    overlap_ns: int
    text: str


class SlowStage(msgspec.Struct, frozen=True):
    """One stage of a slow request. `usual_ns`: the median of its model's last minute, null without one. `late`: it is
    one of those that made the request slow."""

    name: str
    start_ns: int
    span_ns: int
    usual_ns: float | None
    late: bool
    causes: tuple[Cause, ...]


class SlowRequest(msgspec.Struct, frozen=True):
    """A request that was among the slowest of its model and second. `why`: its late stages and their causes in words.
    `session`: its number, from 1 as they came. `queued`: requests of its version that waited before it. `id` and
    `event_time_ns` are text, since they may be larger than 2^53, where JavaScript's whole numbers end."""

    id: str
    model: str
    version: str
    executor: str
    bucket: int
    rows: int
    session: int | None
    queued: int
    age_s: float
    event_time_ns: str
    stamps_ns: dict[str, int]
    duration_ns: int
    usual_ns: float | None
    stages: tuple[SlowStage, ...]
    why: str


class SlowReport(msgspec.Struct, frozen=True):
    """/slow: the slowest first. `kept_s`: how far back requests are kept."""

    schema: int
    unix_ns: int
    now_ns: int
    kept_s: int
    requests: tuple[SlowRequest, ...]
