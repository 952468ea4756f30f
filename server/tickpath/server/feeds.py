"""The feeds of one core: who has which, how many there may be, and when one is forgotten. Pure: time comes in.

A feed belongs to the client's name that opened it and to the model it was opened on, under its key. A client that
connects again under its name has its feeds again; the connection that had them before has them no more.
"""

from collections.abc import Iterator

from tickpath.server.admission import Refusal
from tickpath.server.catalogue import Route
from tickpath.server.config import ServerConfig
from tickpath.server.feed import Feed
from tickpath.server.feed_spec import FeedSpec
from tickpath.server.version import Version
from tickpath.wire import Code


class Feeds:
    """All open feeds. The loop's thread owns them."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._by_number: dict[int, Feed] = {}
        self._by_key: dict[tuple[int, str], Feed] = {}
        # Sessions come and go, and open feeds one by one: neither may cost as much as there are feeds of others.
        self._by_session: dict[object, dict[int, Feed]] = {}
        self._last = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._by_number)

    def __contains__(self, feed: Feed) -> bool:
        return self._by_number.get(feed.number) is feed

    def __iter__(self) -> Iterator[Feed]:
        return iter(tuple(self._by_number.values()))

    def find(self, number: int, session: object) -> Feed | Refusal:
        """The feed of this number, if this session has it."""
        feed = self._by_number.get(number)
        if feed is not None and feed.session is session:
            return feed
        if feed is not None:
            return Refusal(
                Code.FORBIDDEN,
                f"feed {number} is not this session's: who of its client's sessions opened it last has it; open it "
                "again, and give each program a name of its own",
            )
        if 0 < number <= self._last:
            return Refusal(
                Code.FEED_GAP,
                f"feed {number} is not open any more: it was closed, or idle for {self._config.feed_idle_s:g} s; "
                "open it again",
            )
        return Refusal(Code.BAD_VALUE, f"no feed has number {number}: use those that FeedOpened gives")

    def open(
        self, key: str, owner: str, session: object, route: Route, version: Version, spec: FeedSpec, now_s: float
    ) -> Feed | Refusal:
        """The feed of this key, as it is or a new one; from now on it is this session's."""
        feed = self._by_key.get((route.handle, key))
        if feed is not None and feed.owner != owner:
            return Refusal(
                Code.FORBIDDEN,
                f"feed {key!r} of model {version.name!r} belongs to another client: choose another key, or say Hello "
                "under that name",
            )
        if feed is None:
            if (refusal := self._refuse_more(session, spec)) is not None:
                return refusal
            self._last += 1
            feed = Feed(self._last, key, owner, route, version, spec)
            self._by_number[feed.number] = self._by_key[route.handle, key] = feed
            self._bytes += spec.kept_bytes
        self._give(feed, session)
        feed.used_s = now_s
        return feed

    def begin(self, feed: Feed, version: Version, spec: FeedSpec) -> None:
        """Start a feed anew."""
        self._bytes += spec.kept_bytes - feed.spec.kept_bytes
        feed.begin(version, spec)

    def close(self, feed: Feed) -> None:
        """Forget it."""
        del self._by_number[feed.number]
        del self._by_key[feed.route.handle, feed.key]
        self._bytes -= feed.spec.kept_bytes
        self._give(feed, None)
        feed.end()

    def left(self, session: object) -> None:
        """A connection has ended. Its feeds wait for their client."""
        for feed in self._by_session.pop(session, {}).values():
            feed.session = None

    def expire(self, now_s: float) -> int:
        """Forget the feeds that were idle for too long. Returns how many."""
        idle = [
            feed
            for feed in self._by_number.values()
            if not feed.in_flight and now_s - feed.used_s >= self._config.feed_idle_s
        ]
        for feed in idle:
            self.close(feed)
        return len(idle)

    def _give(self, feed: Feed, session: object | None) -> None:
        """The feed is this session's from now on, or nobody's."""
        if feed.session is not None:
            had = self._by_session[feed.session]
            del had[feed.number]
            if not had:
                del self._by_session[feed.session]
        feed.session = session
        if session is not None:
            self._by_session.setdefault(session, {})[feed.number] = feed

    def _refuse_more(self, session: object, spec: FeedSpec) -> Refusal | None:
        config = self._config
        if len(self._by_session.get(session, ())) >= config.feeds_per_session_max:
            return Refusal(
                Code.OVERLOADED,
                f"this session has {config.feeds_per_session_max} feeds, the most it may have: close one first "
                "(feeds_per_session_max)",
            )
        if len(self._by_number) >= config.feeds_max:
            return Refusal(Code.OVERLOADED, f"{config.feeds_max} feeds are open, the most there may be (feeds_max)")
        if self._bytes + spec.kept_bytes > config.feed_bytes_max:
            return Refusal(
                Code.OVERLOADED,
                f"the open feeds hold {self._bytes} bytes, and one more of {spec.kept_bytes} would be over "
                f"{config.feed_bytes_max} (feed_bytes_max)",
            )
        return None
