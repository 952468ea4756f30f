"""What a sender is told, and what it tells."""

from typing import TypeAlias

import msgspec

from tickpath.loadtest.run import Ending
from tickpath.loadtest.target import UNBOUNDED, Options


class Plan(msgspec.Struct, frozen=True):
    """One run of a sender. The files `rows` and `gaps` exist. First come `warmup` rows that are sent one at a time and
    are not measured, then the schedule. With a `concurrency` the loop is closed and ends after `seconds`; without, the
    rows hold intended times as offsets from the start."""

    rows: str
    gaps: str
    target: str
    options: Options
    connections: int = 1
    in_flight_max: int = UNBOUNDED  # of each connection, and never more than the target takes
    warmup: int = 200
    concurrency: int = 0
    seconds: float = 0.0
    drain_ns: int = 5_000_000_000  # after the last request, for the answers that are missing
    cpu: int | None = None


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The connections are open and warm: what comes now is measured."""

    target: str
    model: str
    connect_ns: list[int]


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """All was done, the server was lost, or the sender was told to stop. From `start_ns` to `asked_ns` it asked, by its
    monotonic clock; what comes after that are the last answers."""

    ending: Ending
    reason: str
    start_ns: int
    asked_ns: int
    unasked: int


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """There is nothing to measure."""

    reason: str


Message: TypeAlias = Started | Ended | Failed
