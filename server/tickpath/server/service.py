"""What all sessions of a core share: the models, the limits, the records, and who is connected."""

import asyncio
from typing import Final, Protocol

import msgspec

from tickpath.observe.records import GlobalCell, RecordWriter
from tickpath.server.catalogue import Catalogue
from tickpath.server.config import ServerConfig
from tickpath.server.feeds import Feeds
from tickpath.server.model import request_bytes_max
from tickpath.server.polling import Polling
from tickpath.server.scheduling import PRIORITY_LEVELS
from tickpath.server.timer import Timer
from tickpath.server.version import Version
from tickpath.wire import Limits

# Hello and what clients may add to it later, whatever the models.
FRAME_BYTES_FLOOR: Final = 4096
# Idle feeds are looked for so often, as a share of the time that they may be idle: none outstays it by more.
EXPIRY_STEP: Final = 0.1
DISCARD_BYTES: Final = 64 * 1024
# Connections beyond sessions_max that still hold a descriptor while they learn so; core.DESCRIPTORS_RESERVED has them.
LINGERING_MAX: Final = 16


class Connected(Protocol):
    """A session, as far as the service has to know it."""

    key: int
    """Of its client; 0 until that has said its name."""
    number: int
    """From 1, in the order in which they came; 0: it was turned away."""

    def take_frames(self, frame_bytes_max: int) -> None: ...

    def say_goodbye(self) -> None: ...

    def leave(self) -> None: ...

    def abort(self) -> None: ...


class Service:
    """Read by sessions, written only on the loop's thread. `draining`: nothing new is taken any more."""

    def __init__(
        self,
        config: ServerConfig,
        catalogue: Catalogue,
        records: RecordWriter,
        loop: asyncio.AbstractEventLoop,
        sessions_max: int,
        polling: Polling,
    ) -> None:
        self.config = config
        self.catalogue = catalogue
        self.records = records
        self.loop = loop
        # No valid frame is longer than the largest request of any model, so nothing longer is ever received.
        self.sessions: set[Connected] = set()
        self.limits = Limits(
            FRAME_BYTES_FLOOR,
            config.in_flight_max,
            sessions_max,
            int(config.frame_s * 1e9),
            PRIORITY_LEVELS,
            config.feeds_per_session_max,
            config.feeds_max,
            config.feed_bytes_max,
            int(config.feed_idle_s * 1e9),
        )
        for version in catalogue.versions:
            self.make_room(version)
        self.polling = polling
        self._opened = 0
        self._turned_away: set[Connected] = set()
        self.draining = False
        self.feeds = Feeds(config)
        self._feed_timer = Timer(loop)
        # Where the bytes of a refused client go: written by all such sessions, read by none.
        self.discard = memoryview(bytearray(DISCARD_BYTES))

    def make_room(self, version: Version) -> None:
        """Take requests as large as this version's, on the sessions that are open too."""
        needed = max(request_bytes_max(version.rules), version.feed.snapshot_bytes if version.feed else 0)
        if needed > self.limits.frame_bytes_max:
            self.limits = msgspec.structs.replace(self.limits, frame_bytes_max=needed)
            for session in self.sessions:
                session.take_frames(needed)

    def feeds_changed(self) -> None:
        """A feed was opened or closed: count, and see to it that idle ones are forgotten."""
        self.records.set_cell(GlobalCell.FEEDS, len(self.feeds))
        if len(self.feeds) and not self._feed_timer.started:
            self._feed_timer.start(self.config.feed_idle_s * EXPIRY_STEP, self._expire_feeds)

    def _expire_feeds(self) -> None:
        self._feed_timer.stop()
        self.records.add(GlobalCell.FEEDS_EXPIRED, self.feeds.expire(self.loop.time()))
        self.feeds_changed()

    def opened(self, session: Connected) -> bool:
        """Note a new session. False: there are too many, and it must be refused."""
        if len(self.sessions) >= self.limits.sessions_max:
            self.records.add(GlobalCell.SESSIONS_REFUSED)
            return False
        self.sessions.add(session)
        self._opened += 1
        session.number = self._opened
        self.records.add(GlobalCell.SESSIONS_OPENED)
        self.records.set_cell(GlobalCell.SESSIONS, len(self.sessions))
        return True

    def may_linger(self, session: Connected) -> bool:
        """Whether a session for which there is no room may close gently."""
        if len(self._turned_away) >= LINGERING_MAX:
            return False
        self._turned_away.add(session)
        return True

    def closed(self, session: Connected) -> None:
        """Forget a session, whether it was taken or turned away."""
        self.sessions.discard(session)
        self._turned_away.discard(session)
        self.records.set_cell(GlobalCell.SESSIONS, len(self.sessions))
