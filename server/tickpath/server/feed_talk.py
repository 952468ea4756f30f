"""What a session may ask of a feed as a whole: open it, copy it, close it. Each is answered when the ticks before it
are."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from tickpath.observe.records import GlobalCell
from tickpath.server.admission import DRAINING, Refusal, refuse_handle
from tickpath.server.catalogue import key_of
from tickpath.server.feed import Feed
from tickpath.server.feed_spec import FeedSpec
from tickpath.server.service import Connected, Service
from tickpath.server.version import Version
from tickpath.wire import (
    CloseFeed,
    Code,
    FeedClosed,
    FeedOpened,
    FeedSnapshot,
    OpenFeed,
    ServerMessage,
    SnapshotFeed,
)


class Talking(Connected, Protocol):
    """Who asks."""

    talks: int
    """How many of its requests about feeds wait for ticks: they count for how long it is busy."""

    def talked(self) -> None:
        """One of them has been answered: it counts no more."""
        ...


class FeedTalk:
    """One such request of `session`, whose client is called `client`. All on the loop's thread."""

    def __init__(
        self,
        service: Service,
        session: Talking,
        client: str,
        write: Callable[[ServerMessage], None],
        refuse: Callable[[int, Version | None, Refusal], None],
    ) -> None:
        self._service = service
        self._session = session
        self._client = client
        self._write = write
        self._refuse = refuse

    def answer(self, message: OpenFeed | CloseFeed | SnapshotFeed) -> None:
        if (refusal := self._refuse_more()) is not None:
            self._refuse(message.id, None, refusal)
            return
        if isinstance(message, OpenFeed):
            self._open(message)
            return
        feed = self._service.feeds.find(message.feed, self._session)
        if isinstance(feed, Refusal):
            self._refuse(message.id, None, feed)
        else:
            self._when_idle(feed, lambda: self._do(message, feed))

    def _refuse_more(self) -> Refusal | None:
        """The refusal of one more that would wait, or None: each keeps a copy of what it brings."""
        limit = self._service.limits.in_flight_max
        if self._session.talks < limit:
            return None
        return Refusal(
            Code.OVERLOADED,
            f"{limit} requests of this session about feeds wait for ticks, the most it may have: wait for an answer",
        )

    def _when_idle(self, feed: Feed, do: Callable[[], None]) -> None:
        """Do it once every tick before has been answered."""
        self._session.talks += 1

        def answered() -> None:
            try:
                do()
            finally:
                self._session.talked()

        feed.when_idle(answered)

    def _do(self, message: CloseFeed | SnapshotFeed, feed: Feed) -> None:
        """It may have been closed or taken over while this waited; a feed whose client is gone is still closed."""
        now = self._service.feeds.find(feed.number, None if feed.session is None else self._session)
        if isinstance(now, Refusal):
            self._refuse(message.id, None, now)
        elif isinstance(message, CloseFeed):
            self._close(message.id, feed)
        else:
            self._snapshot(message.id, feed)

    def _open(self, message: OpenFeed) -> None:
        service = self._service
        found = self._version(message.handle, message.key)
        if isinstance(found, Refusal):
            self._refuse(message.id, None, found)
            return
        version, spec = found
        route = service.catalogue.routes[message.handle]
        feed = service.feeds.open(message.key, self._client, self._session, route, version, spec, service.loop.time())
        if isinstance(feed, Refusal):
            self._refuse(message.id, version, feed)
            return
        service.feeds_changed()
        if feed.in_flight and message.snapshot is not None:  # it outlives the receive buffer only as a copy
            message = msgspec.structs.replace(message, snapshot=memoryview(bytes(message.snapshot)))
        self._when_idle(feed, lambda: self._opened(message, feed, version, spec))

    def _version(self, handle: int, key: str) -> tuple[Version, FeedSpec] | Refusal:
        service = self._service
        if service.draining:
            return DRAINING
        if handle >= len(service.catalogue.routes):
            return refuse_handle(handle)
        route = service.catalogue.routes[handle]
        version = route.pick(key_of(key))
        if version is None:
            return route.gone
        if version.feed is None:
            return Refusal(
                Code.BAD_VALUE,
                f"model {version.name!r} keeps no feeds: say in its configuration what a feed keeps, such as "
                '[feed] window = 100 or state = { h = "hn" }, or send whole requests',
            )
        return version, version.feed

    def _opened(self, message: OpenFeed, feed: Feed, version: Version, spec: FeedSpec) -> None:
        if feed not in self._service.feeds and self._session in self._service.sessions:
            self._open(message)  # what was asked before this has closed it
            return
        request_id, snapshot = message.id, message.snapshot
        if feed.session is not self._session:  # another took it while this waited, or the client is gone
            self._refuse(request_id, version, Refusal(Code.FORBIDDEN, f"feed {feed.key!r} was taken over meanwhile"))
            return
        if message.anew or (snapshot is not None and feed.spec != spec):
            self._service.feeds.begin(feed, version, spec)
        why = feed.moved(version)
        if not why and snapshot is not None and (unfit := feed.restore(snapshot)):
            self._refuse(
                request_id,
                version,
                Refusal(Code.BAD_VALUE, f"the snapshot does not fit feed {feed.key!r}: {unfit}", 0, feed.next_sequence),
            )
            return
        feed.recover()
        if why := why or feed.lost:
            self._service.records.add(GlobalCell.FEED_GAPS)
            refusal = Refusal(
                Code.FEED_GAP, f"feed {feed.key!r} can't go on ({why}): open it anew", 0, feed.next_sequence
            )
            self._refuse(request_id, version, refusal)
            return
        self._write(
            FeedOpened(
                request_id,
                feed.number,
                feed.next_sequence,
                spec.window,
                feed.filled,
                spec.pads,
                version.label,
                spec.tick_infos,
                spec.outputs,
            )
        )

    def _close(self, request_id: int, feed: Feed) -> None:
        self._service.feeds.close(feed)
        self._service.feeds_changed()
        self._write(FeedClosed(request_id))

    def _snapshot(self, request_id: int, feed: Feed) -> None:
        self._write(FeedSnapshot(request_id, feed.next_sequence, memoryview(feed.snapshot())))
