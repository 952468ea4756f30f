"""What a session may ask of a feed as a whole: open it, copy it, close it. Each is answered when the ticks before it
are."""

from collections.abc import Callable

from tickpath.observe.records import GlobalCell
from tickpath.server.admission import DRAINING, Refusal, refuse_handle
from tickpath.server.catalogue import key_of
from tickpath.server.feed import Feed
from tickpath.server.feed_spec import FeedSpec
from tickpath.server.service import Service
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


class FeedTalk:
    """One such request of `session`, whose client is called `client`. All on the loop's thread."""

    def __init__(
        self,
        service: Service,
        session: object,
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
        if isinstance(message, OpenFeed):
            self._open(message)
            return
        feed = self._service.feeds.find(message.feed, self._session)
        if isinstance(feed, Refusal):
            self._refuse(message.id, None, feed)
            return
        do = self._close if isinstance(message, CloseFeed) else self._snapshot
        feed.when_idle(lambda: do(message.id, feed))

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
        # What it is to begin with outlives the receive buffer only as a copy.
        snapshot = None if message.snapshot is None else memoryview(bytes(message.snapshot))
        feed.when_idle(lambda: self._opened(message.id, message.anew, snapshot, feed, version, spec))

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

    def _opened(
        self, request_id: int, anew: bool, snapshot: memoryview | None, feed: Feed, version: Version, spec: FeedSpec
    ) -> None:
        if feed.session is not self._session:  # another took it while this waited, or the client is gone
            self._refuse(request_id, version, Refusal(Code.FORBIDDEN, f"feed {feed.key!r} was taken over meanwhile"))
            return
        if anew or (snapshot is not None and feed.spec != spec):
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
