"""Plays a recording: each recorded session on a connection of its own, each request when it is due, many in flight.

Rules
- What came on one connection leaves on one connection, in its order. A request that finds its connection full, or its
  feed not open yet, waits for that; so do all behind it, and the report says how late that made them.
- A feed is opened anew where it was new then. One that already held something when the recording began can't be played.
- A feed goes on to another connection when all that the one before had asked of it is answered: the server then took
  things in that order.
- Without a pace, what depends on time is left out: budgets, keys and cancellations.
"""

import os
import time
from array import array
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from tickpath.client import Tls
from tickpath.client.address import Address
from tickpath.client.token import Token, token_now
from tickpath.loadtest.link import Link, open_link
from tickpath.loadtest.room import Room
from tickpath.loadtest.rows import GapWriter, RowWriter
from tickpath.loadtest.sender import Sender
from tickpath.loadtest.target import UNBOUNDED
from tickpath.playback.comparing import Difference, Outcome, Tally, code_of, difference
from tickpath.playback.dialogue import FIRST_ID, PlaybackDialogue, Wanted
from tickpath.playback.exchanges import NONE, Bodies, Exchange, Exchanges, decode_reply, decode_request
from tickpath.playback.plan import Choice, Plan
from tickpath.wire import (
    Cancel,
    ClientMessage,
    CloseFeed,
    FeedOpened,
    Infer,
    OpenFeed,
    Result,
    ServerMessage,
    SnapshotFeed,
    Tick,
    encode_frame,
)

Asking = Infer | Tick | OpenFeed | CloseFeed | SnapshotFeed

# Between the moment when all is ready and the first request.
LEAD_NS: Final = 1_000_000
# Connections opened before the first request; those of later sessions open when they are first needed, which holds up
# what is due then by a round trip.
LINKS_BEFORE: Final = 64
# For the last answers.
SETTLE_NS: Final = 10_000_000_000

FEED_BEFORE: Final = "of feeds that held rows from before the recording"
FEED_REFUSED: Final = "of feeds that could not be opened here"
NOT_SERVED: Final = "of models that this server does not serve"
OF_TIME: Final = "cancellations, which mean nothing without the recorded times"


class Server(NamedTuple):
    """Who is asked, and what it is shown."""

    address: Address
    token: Token = ""
    tls: Tls | None = None


class Player:
    """One playback. `recorded_ns` and `replayed_ns` are the server's own latency, from a request's first byte to its
    outputs being read, of requests that were answered both times."""

    def __init__(
        self,
        exchanges: Exchanges,
        server: Server,
        choice: Choice,
        room: Room,
        in_flight_max: int,
    ) -> None:
        self.tally = Tally()
        self.left_out: Counter[str] = Counter()
        self.uncompared = 0
        self.recorded_ns = array("q")
        self.replayed_ns = array("q")
        self.server = ""
        self._exchanges = exchanges
        self._bodies = Bodies(exchanges.segments)
        self._server = server
        self.address = str(server.address)
        self._choice = choice
        self._paced = choice.speed is not None
        # At recorded times as many are in flight as were then.
        self._in_flight_max = UNBOUNDED if self._paced else in_flight_max
        self._stop, self._never = os.pipe()
        self._sender = Sender[PlaybackDialogue]((), RowWriter(room.rows), GapWriter(room.gaps), self._stop)
        self._links: dict[int, Link[PlaybackDialogue]] = {}
        self._ended: list[Link[PlaybackDialogue]] = []
        self._hashes: dict[tuple[str, str], str] = {}
        self._asked: dict[int, Exchange] = {}  # what is in flight, by row
        self._feeds: dict[tuple[str, int], int] = {}  # by life and recorded number; NONE while it is being opened
        self._opening: dict[int, tuple[str, int]] = {}
        self._lost_feeds: dict[tuple[str, int], str] = {}  # those that can't be played, and why
        # Of feeds that were opened here, the newest recorded number, by life, handle and key.
        self._known: dict[tuple[str, int, str], int] = {}
        self._of_feeds: dict[int, tuple[str, int]] = {}  # whose feed's they are, by row: of those in flight
        self._ids: dict[tuple[int, int], int] = {}  # by session and recorded id

    def play(self, plan: Plan, shown: Callable[[int], None]) -> None:
        """All of it. Raises TickpathError, ServerLostError, RecordingError, OSError."""
        for session in plan.sessions[:LINKS_BEFORE]:
            self._link(session)
        start_ns = time.monotonic_ns() + LEAD_NS
        offsets = plan.offsets_ns.tolist()
        for row, index in enumerate(plan.indices.tolist()):
            exchange = self._exchanges[index]
            intended_ns = start_ns + offsets[row] if self._paced else time.monotonic_ns()
            self._play(row, exchange, intended_ns)
            shown(row + 1)
        self._sender.settle(time.monotonic_ns() + SETTLE_NS)

    def hash_of(self, model: str, version: str) -> str:
        """The sha256 of the version that answered here for a recorded model; empty where this server does not tell."""
        return self._hashes.get((self._choice.models.get(model, Wanted(model)).name, version), "")

    @property
    def unanswered(self) -> int:
        """Requests that were sent and that nobody has answered."""
        return self._sender.in_flight

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        for link in self._ended:
            link.close()
        for descriptor in (self._stop, self._never):
            os.close(descriptor)

    def _play(self, row: int, exchange: Exchange, intended_ns: int) -> None:
        sender = self._sender
        if not exchange.length:
            self._end(exchange.session)
            return
        link = self._link(exchange.session)
        message = decode_request(self._bodies.read(exchange.segment, exchange.offset, exchange.length))
        assert message is not None, "it could be read when the recording was"
        self._wait_for_feed(message, exchange)
        made = self._make(row, message, exchange, link.dialogue)
        if isinstance(made, str):
            self.left_out[made] += 1
            return
        frame = encode_frame(made)
        now_ns = sender.wait(intended_ns, time.monotonic_ns())
        if isinstance(message, Cancel):
            sender.say(link, frame)
            return
        while len(link.waiting) >= link.in_flight_max or sender.in_flight >= self._in_flight_max:
            now_ns = sender.turn(now_ns)
        assert isinstance(message, Asking), "no other request is recorded"
        self._ids[exchange.session, message.id] = row + FIRST_ID
        self._asked[row] = exchange
        sender.send(link, frame, row, intended_ns, now_ns)
        sender.turn(now_ns)

    def _link(self, session: int) -> Link[PlaybackDialogue]:
        if (link := self._links.get(session)) is None:
            dialogue = PlaybackDialogue(
                self._exchanges.sessions[session].client, token_now(self._server.token), self._told
            )
            link = open_link(session, self._server.address, dialogue, self._in_flight_max, self._server.tls)
            self._sender.add(link)
            self.server = dialogue.server
            self._hashes |= dialogue.hashes()
            self._links[session] = link
        return link

    def _end(self, session: int) -> None:
        """A recorded session has ended: so does its connection, as soon as nothing is in flight on it."""
        if (link := self._links.pop(session, None)) is not None:
            self._ended.append(link)
        for link in [link for link in self._ended if not link.waiting]:
            self._ended.remove(link)
            self._sender.remove(link)

    def _wait_for_feed(self, message: ClientMessage, exchange: Exchange) -> None:
        now_ns = time.monotonic_ns()
        while self._not_yet(message, exchange) and self._sender.in_flight:
            now_ns = self._sender.turn(now_ns)

    def _not_yet(self, message: ClientMessage, exchange: Exchange) -> bool:
        """Whether its feed is still being opened, or still another connection's."""
        run = self._run(exchange)
        if isinstance(message, OpenFeed):
            had = run, self._known.get((run, exchange.handle, message.key), NONE)
            before = (row for row, feed in self._of_feeds.items() if feed == had)
            return any(self._asked[row].session != exchange.session for row in before)
        return isinstance(message, Tick | CloseFeed | SnapshotFeed) and self._feeds.get((run, message.feed)) == NONE

    def _run(self, exchange: Exchange) -> str:
        return self._exchanges.session(exchange).run

    def _make(
        self, row: int, message: ClientMessage, exchange: Exchange, dialogue: PlaybackDialogue
    ) -> ClientMessage | str:
        """The request as it is sent here; or why it is not."""
        if isinstance(message, Cancel):
            new_id = self._ids.get((exchange.session, message.id)) if self._paced else None
            return OF_TIME if new_id is None else Cancel(new_id)
        if isinstance(message, Infer | Tick) and not self._paced:
            message = msgspec.structs.replace(
                message, budget_ns=0, **({"key": 0} if isinstance(message, Infer) else {})
            )
        if isinstance(message, Infer | OpenFeed):
            if (handle := self._handle(exchange, dialogue)) is None:
                return NOT_SERVED
            if isinstance(message, OpenFeed):
                return self._open(row, message, exchange, handle)
            return msgspec.structs.replace(message, id=row + FIRST_ID, handle=handle)
        assert isinstance(message, Tick | CloseFeed | SnapshotFeed), "no other request is recorded"
        key = (self._run(exchange), message.feed)
        if (feed := self._feeds.get(key, NONE)) == NONE:
            return self._lost_feeds.get(key, FEED_REFUSED)
        self._of_feeds[row] = key
        return msgspec.structs.replace(message, id=row + FIRST_ID, feed=feed)

    def _open(self, row: int, message: OpenFeed, exchange: Exchange, handle: int) -> OpenFeed | str:
        run = self._run(exchange)
        key = (run, exchange.handle, message.key)
        then = self._recorded(exchange)
        anew = message.anew
        if isinstance(then, FeedOpened):
            if key not in self._known and message.snapshot is None:
                if then.next_sequence > 1 and not message.anew:
                    self._lost_feeds[run, then.feed] = FEED_BEFORE
                    return FEED_BEFORE
                anew = True
            self._feeds[run, then.feed] = NONE
            self._opening[row] = self._of_feeds[row] = (run, then.feed)
            self._known[key] = then.feed
        return OpenFeed(row + FIRST_ID, handle, message.key, anew, message.snapshot)

    def _handle(self, exchange: Exchange, dialogue: PlaybackDialogue) -> int | None:
        model = self._exchanges.model(exchange)
        assert model is not None, "a plan holds none without"
        wanted = self._choice.models.get(model.name, Wanted(model.name))
        info = dialogue.find(wanted, model)
        return None if info is None else info.handle

    def _recorded(self, exchange: Exchange) -> ServerMessage | None:
        if exchange.reply_segment == NONE:
            return None
        return decode_reply(self._bodies.read(exchange.reply_segment, exchange.reply_offset, exchange.reply_length))

    def _told(self, row: int, message: ServerMessage) -> None:
        """An answer has come."""
        self._of_feeds.pop(row, None)
        exchange = self._asked.pop(row, None)
        if exchange is None:
            return
        if (opening := self._opening.pop(row, None)) is not None:
            if isinstance(message, FeedOpened):
                self._feeds[opening] = message.feed
            else:
                del self._feeds[opening]
        then = self._recorded(exchange)
        if then is None:
            self.uncompared += 1
            return
        model = self._exchanges.model(exchange)
        assert model is not None, "a plan holds none without"
        found = None
        if isinstance(then, Result) and isinstance(message, Result):
            self.recorded_ns.append(then.stamps[-1] - then.stamps[0])
            self.replayed_ns.append(message.stamps[-1] - message.stamps[0])
            self.tally.versions[model.name, then.version, message.version] += 1
            if (by := difference(then, message, model.outputs)) is not None:
                client = self._exchanges.session(exchange)
                found = Difference(
                    model.name, client.client, client.number, then.id, *by, then.version, message.version
                )
        self.tally.add(model.name, Outcome(code_of(then), code_of(message), found))
