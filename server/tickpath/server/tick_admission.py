"""Whether a Tick is taken: by its feed, by the version that is to run it, and by the room that its session has."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from tickpath.observe.records import GlobalCell
from tickpath.server.admission import DRAINING, Refusal, refuse_load
from tickpath.server.feed import Feed
from tickpath.server.service import Service
from tickpath.server.version import Version
from tickpath.wire import Code, Tick


@dataclass(frozen=True, slots=True)
class Admitted:
    """A tick that may be taken, and the version that runs it."""

    feed: Feed
    version: Version


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """One that is not taken. `version`: whose feed it was for, None where there is none."""

    version: Version | None
    refusal: Refusal


def admit(service: Service, session: object, in_flight: Mapping[int, object], tick: Tick) -> Admitted | TurnedAway:
    """`in_flight`: what the session waits for, by id. From here on the version that is to run the tick has its feed."""
    feed = service.feeds.find(tick.feed, session)
    if isinstance(feed, Refusal):
        return _turned_away(service, None, feed, feed.next_sequence)
    picked = feed.route.pick(feed.way)
    if picked is None:
        return _turned_away(service, None, feed.route.gone, feed.next_sequence)
    version = feed.version(picked)
    if (refusal := _refusal(service, in_flight, tick, feed, version)) is not None:
        return _turned_away(service, version, refusal, feed.next_sequence)
    feed.used_s = service.loop.time()
    return Admitted(feed, version)


def _refusal(
    service: Service, in_flight: Mapping[int, object], tick: Tick, feed: Feed, version: Version
) -> Refusal | None:
    if service.draining:
        return DRAINING
    if why := feed.moved(version):
        return Refusal(Code.FEED_GAP, f"{why}: open feed {feed.key!r} anew")
    if (refusal := feed.refuse(tick, service.limits.priority_levels)) is not None:
        return refusal
    return refuse_load(tick.id, in_flight, service.limits) if in_flight else None


def _turned_away(service: Service, version: Version | None, refusal: Refusal, next_sequence: int) -> TurnedAway:
    if refusal.code is Code.FEED_GAP:
        service.records.add(GlobalCell.FEED_GAPS)
    return TurnedAway(version, msgspec.structs.replace(refusal, next_sequence=next_sequence))
