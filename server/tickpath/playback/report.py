"""What a playback found, as one struct: printed as JSON, or in words."""

from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec
import numpy as np

from tickpath.loadtest.latency import Summary, summarise
from tickpath.loadtest.rows import Rows
from tickpath.loadtest.run import OK
from tickpath.playback.comparing import Difference
from tickpath.playback.exchanges import Exchanges
from tickpath.playback.plan import Plan
from tickpath.playback.player import Player

Ending = Literal["complete", "interrupted", "server lost"]

SAME: Final = 0
DIFFERENT: Final = 7
INCOMPLETE: Final = 1


class Latency(msgspec.Struct, frozen=True):
    """A distribution of spans in nanoseconds; `thin`: under ten samples lie beyond p99.9."""

    count: int
    p50_ns: int
    p99_ns: int
    p999_ns: int
    max_ns: int
    thin: bool


class CodeChange(msgspec.Struct, frozen=True):
    """Requests that ended otherwise than they did: OK, or a code of the protocol."""

    model: str
    recorded: str
    replayed: str
    count: int


class VersionPair(msgspec.Struct, frozen=True):
    """Answers that one version gave then, and one now. `recorded_sha256`: of the recorded model file, empty where the
    recording does not tell."""

    model: str
    recorded: str
    replayed: str
    count: int
    recorded_sha256: str
    replayed_sha256: str

    @property
    def model_is_same(self) -> bool | None:
        """None: one of the two is not known."""
        if not (self.recorded_sha256 and self.replayed_sha256):
            return None
        return self.recorded_sha256 == self.replayed_sha256


class Report(msgspec.Struct, frozen=True):
    """`played`: requests that were sent; `compared` of them had a recorded and a new answer. `lateness` is the sender's
    own, from when a request was due to when it left; `round_trip` counts from when it was due."""

    server: str
    address: str
    speed: float | None
    ending: Ending
    reason: str
    played: int
    compared: int
    same: int
    differ: int
    decided_otherwise: int
    not_recorded: int
    unanswered: int
    left_out: Mapping[str, int]
    codes: tuple[CodeChange, ...]
    versions: tuple[VersionPair, ...]
    differences: tuple[Difference, ...]
    abs_max: float
    ulp_max: int
    recorded: Latency | None
    replayed: Latency | None
    round_trip: Latency | None
    lateness: Latency | None
    torn: tuple[str, ...]
    missing: int

    @property
    def exit_code(self) -> int:
        """0: every answer is the recorded one; 7: some are not; 1: it could not be played to its end."""
        if self.differ or self.decided_otherwise:
            return DIFFERENT
        return SAME if self.ending == "complete" and not self.unanswered else INCOMPLETE


def make_report(
    exchanges: Exchanges, plan: Plan, player: Player, rows: Rows, speed: float | None, ending: Ending, reason: str
) -> Report:
    """Of a playback that is over. `rows` are as many as the plan has, those of no request untouched."""
    tally = player.tally
    sent = rows[rows["sent_ns"] > 0]
    done = sent[(sent["done_ns"] > 0) & (sent["code"] == OK)]
    return Report(
        server=player.server,
        address=player.address,
        speed=speed,
        ending=ending,
        reason=reason,
        played=len(sent),
        compared=tally.compared,
        same=tally.same.total(),
        differ=tally.differ.total(),
        decided_otherwise=tally.decided_otherwise,
        not_recorded=player.uncompared,
        unanswered=player.unanswered,
        left_out=dict(plan.left_out + player.left_out),
        codes=tuple(CodeChange(*key, count) for key, count in tally.codes.most_common()),
        versions=tuple(_versions(exchanges, player)),
        differences=tuple(tally.shown),
        abs_max=tally.abs_max,
        ulp_max=tally.ulp_max,
        recorded=_latency(np.array(player.recorded_ns, np.int64)),
        replayed=_latency(np.array(player.replayed_ns, np.int64)),
        round_trip=_latency(done["done_ns"] - done["intended_ns"]),
        lateness=_latency(np.maximum(sent["sent_ns"] - sent["intended_ns"], 0)),
        torn=tuple(f"{segment.path.name}: {segment.torn}" for segment in exchanges.segments if segment.torn),
        missing=sum(segment.missing for segment in exchanges.segments),
    )


def _versions(exchanges: Exchanges, player: Player) -> Iterator[VersionPair]:
    for (model, then, now), count in player.tally.versions.most_common():
        there = player.hash_of(model, now)
        yield VersionPair(model, then, now, count, exchanges.hashes.get((model, then), ""), there)


def _latency(spans_ns: np.ndarray) -> Latency | None:
    if not len(spans_ns):
        return None
    found: Summary = summarise(spans_ns)
    return Latency(found.count, found.p50_ns, found.p99_ns, found.p999_ns, found.max_ns, found.thin)
