"""A session: one client's connection, from its first byte to its last.

Rules
- Hello comes first and in time; until then nothing else is answered.
- A frame is decoded, admitted and (on an inline executor) answered before the next one is looked at; its bytes hold
  until then.
- Every Infer and every Tick, of which its feed makes an Infer (feed.py), gets exactly one Result or Failure, unless the
  client goes away first.
- What the client did to the protocol ends the session: what came before is answered, then one Failure with id 0, and
  nothing that comes after is looked at.
- A session has its turn: who has sent more than fits in it lets others go first.
- While replies pile up, frames have all the time they need: it is the server that does not take them.
"""

import logging
from importlib.metadata import version as version_of
from time import monotonic_ns
from typing import Final, cast

from tickpath.observe.records import VersionCell
from tickpath.server.admission import DRAINING, OUR_FAULT, Refusal, check_hello, refuse_form, refuse_handle, refuse_load
from tickpath.server.catalogue import Route, key_of
from tickpath.server.connection import Connection
from tickpath.server.dispatch import CANCELLED
from tickpath.server.executor import INLINE_COMPUTE_NS_MAX, Outcome
from tickpath.server.fallback import LastAnswers
from tickpath.server.feed import TakenTick, WarmUp
from tickpath.server.feed_talk import FeedTalk
from tickpath.server.lane import Answer
from tickpath.server.service import Service
from tickpath.server.tick_admission import TurnedAway, admit
from tickpath.server.version import Version
from tickpath.wire import (
    PROTOCOL_VERSION,
    Cancel,
    ClientMessage,
    CloseFeed,
    Code,
    Failure,
    Flag,
    FrameDecoder,
    Goodbye,
    Infer,
    ModelInfo,
    ModelList,
    Models,
    OpenFeed,
    Ping,
    Pong,
    RemoteProtocolError,
    SnapshotFeed,
    Tick,
    Welcome,
    decode_client_message,
)

log = logging.getLogger(__name__)

SERVER_NAME: Final = f"tickpath {version_of('tickpath')}"
# One session's turn: as long as the longest model that runs inline.
TURN_NS: Final = INLINE_COMPUTE_NS_MAX
_LAST_ANSWER: Final = int(Flag.LAST_ANSWER)


class Session(Connection):
    """What is said on one connection. All methods run on the loop's thread."""

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self._decoder = FrameDecoder(service.limits.frame_bytes_max)
        self._greeted = False
        self._received_ns = 0  # when bytes came last; nothing is read while frames wait in the buffer
        self._first_byte_ns = 0  # of the frame that has begun; 0: none has
        self._turn_over = False  # frames wait in the buffer for the session's next turn
        self._client = ""  # once it has said its name
        self._in_flight: dict[int, Version] = {}
        self._ticks: dict[int, TakenTick] = {}  # of what is in flight, the ticks of feeds
        self._last = LastAnswers()
        self.talks = 0

    # -- the transport's side --

    def _begun(self) -> None:
        self._timer.start(self._service.config.hello_s, self._hello_late)

    def _busy(self) -> bool:
        return bool(self._in_flight or self.talks)

    def _lost(self) -> None:
        for request_id in list(self._in_flight):
            self._take_back(request_id)
        self._service.feeds.left(self)

    def take_frames(self, frame_bytes_max: int) -> None:
        self._decoder.frame_bytes_max = frame_bytes_max

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._service.discard if self._deaf else self._decoder.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._received_ns = received_ns = monotonic_ns()
        if self._deaf:
            return
        self._decoder.received(nbytes)
        self._serve_frames(received_ns + TURN_NS)
        if not self._in_flight:  # else the processor is the model's, which takes longer than any polling lasts
            self._service.polling.extend(monotonic_ns())

    def eof_received(self) -> bool:
        """The client sends no more. It still gets the answers to what is in flight."""
        self._done_reading = self._leaving = True
        if (waiting := self._decoder.bytes_waiting) and not self._deaf:
            self._refuse_session(
                Code.BAD_FRAME, f"the connection ended within a frame: {waiting} bytes of a frame came"
            )
        else:
            self._end_when_done()
        return not self._closing and self._half_closes

    # -- frames --

    def _serve_frames(self, turn_ends_ns: int) -> None:
        """Serve what has come, until the turn is over."""
        decoder, received_ns = self._decoder, self._received_ns
        try:
            while self._writable and not self._deaf and (frame := decoder.next_frame()) is not None:
                first_byte_ns = received_ns
                if self._first_byte_ns:
                    first_byte_ns = self._end_partial_frame()
                message = decode_client_message(frame)
                if type(message) is Infer and self._greeted:
                    self._infer(message, first_byte_ns, received_ns)
                elif type(message) is Tick and self._greeted:
                    self._tick(message, first_byte_ns, received_ns)
                else:
                    self._serve_rare(message)
                if not decoder.bytes_waiting:
                    return
                if monotonic_ns() >= turn_ends_ns:
                    self._end_turn()
                    return
        except RemoteProtocolError as error:
            self._refuse_session(error.code, error.message)
        except Exception:
            log.exception("a fault of the server ended a session")
            self._records.refused(None, Code.INTERNAL)
            self._end_with(Code.INTERNAL, OUR_FAULT)
        self._watch_partial_frame(received_ns)

    def _end_turn(self) -> None:
        """Others go first: what is left is served on the loop's next round, and nothing more is read until then."""
        if self._transport is not None and not self._turn_over:
            self._turn_over = True
            self._transport.pause_reading()
            self._service.loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_over = False
        self._take_up()

    def _take_up(self) -> None:
        """Go on with what waits in the buffer, then read again."""
        if self._transport is None or self._turn_over:
            return
        if not self._closing:
            self._serve_frames(monotonic_ns() + TURN_NS)
        if self._writable and not self._turn_over and not self._done_reading:
            self._transport.resume_reading()

    def _watch_partial_frame(self, received_ns: int) -> None:
        """The deadline of a frame that has begun and not ended counts from its first byte, whatever trickles in
        after."""
        if self._decoder.bytes_waiting and self._greeted and self._writable and not self._deaf:
            self._first_byte_ns = self._first_byte_ns or received_ns
            if not self._timer.started:
                self._timer.start(self._service.config.frame_s, self._frame_late)

    def _end_partial_frame(self) -> int:
        """The frame that had begun is whole. Returns when it began."""
        first_byte_ns, self._first_byte_ns = self._first_byte_ns, 0
        self._timer.stop()
        return first_byte_ns

    def _infer(self, infer: Infer, first_byte_ns: int, received_ns: int) -> None:
        routes = self._service.catalogue.routes
        if infer.handle >= len(routes):
            self._refuse(infer.id, None, refuse_handle(infer.handle))
            return
        route = routes[infer.handle]
        version = route.live if route.canary is None else route.pick(self.key)
        if version is None:
            self._refuse(infer.id, None, route.gone)
            return
        if (refusal := self._refusal(infer, version)) is not None:
            self._refuse(infer.id, version, refusal)
            return
        if version.executor.kind == "inline":
            outcome = cast(Outcome, version.executor.submit(self, infer, first_byte_ns, received_ns))
            self._answer(infer, version, outcome, route)
        else:
            self._queue(infer, version, first_byte_ns, received_ns)

    def _queue(self, infer: Infer, version: Version, first_byte_ns: int, received_ns: int) -> None:
        """It is in flight before it is submitted: others may be finished meanwhile, and none is to be the last."""
        self._in_flight[infer.id] = version
        refusal = cast(Refusal | None, version.executor.submit(self, infer, first_byte_ns, received_ns))
        if refusal is not None:
            if (taken := self._forgotten(infer.id)) is not None:
                refusal = taken.feed.turned_away(taken, refusal)
            self._refuse(infer.id, version, refusal)
            return
        self._records.add_version(version.place, VersionCell.IN_FLIGHT)
        if infer.key:  # an older one may still wait for the version that was live before
            for executor in {each.executor for each in self._in_flight.values() if each is not version}:
                executor.supersede(self, infer.handle, infer.key)

    def _tick(self, tick: Tick, first_byte_ns: int, received_ns: int) -> None:
        admitted = admit(self._service, self, self._in_flight, tick)
        if isinstance(admitted, TurnedAway):
            self._refuse(tick.id, admitted.version, admitted.refusal)
            return
        (feed, version), (infer, taken) = (admitted.feed, admitted.version), admitted.feed.take(tick, received_ns)
        if not taken.ready and not feed.must_run:
            self._answer(infer, version, feed.ended(taken, feed.warming(taken), received_ns), feed.route)
        elif (outcome := version.executor.answer_tick(infer, first_byte_ns, received_ns)) is not None:
            feed.keep(tick)
            self._answer(infer, version, feed.ended(taken, outcome, monotonic_ns()), feed.route)
            if version.lane.unsettled:
                self._service.loop.call_soon(version.executor.settle)
        else:
            self._ticks[tick.id] = taken
            self._queue(infer, version, first_byte_ns, received_ns)
            if tick.id in self._ticks:
                feed.keep(tick)

    def _refusal(self, infer: Infer, version: Version) -> Refusal | None:
        service = self._service
        if service.draining:
            return DRAINING
        if (refusal := refuse_form(infer, version.rules, service.limits.priority_levels)) is not None:
            return refusal
        if self._in_flight or version.executor.kind != "inline":
            return refuse_load(infer.id, self._in_flight, service.limits)
        return None

    def finish(self, infer: Infer, outcome: Outcome, queued: int = 0) -> None:
        """A request that waited has run."""
        version = self._in_flight[infer.id]
        if (taken := self._ended(infer.id, version)) is not None:
            outcome = taken.feed.ended(taken, outcome, monotonic_ns())
        self._answer(infer, version, outcome, self._service.catalogue.routes[infer.handle], queued)
        if taken is not None:
            taken.feed.take_up()
        self._end_when_done()

    def talked(self) -> None:
        self.talks -= 1
        self._end_when_done()

    def _answer(self, infer: Infer, version: Version, outcome: Outcome, route: Route, queued: int = 0) -> None:
        """Send the answer of a request that has run, and record its way."""
        if type(outcome) is not Answer:
            outcome = self._last.stand_in(infer, cast(Refusal, outcome), version.config, monotonic_ns())
            if type(outcome) is not Answer:
                if infer.budget_ns:
                    version.executor.took(infer, outcome, 0)
                is_inline = version.executor.kind == "inline"
                stage = VersionCell.LATE_AT_ADMISSION if is_inline else VersionCell.LATE_IN_QUEUE
                self._refuse(infer.id, version, cast(Refusal, outcome), stage)
                return
        self._send(outcome.frame)
        sent_ns = monotonic_ns()
        self._records.answered(
            version.place,
            outcome.bucket_index,
            outcome.bucket,
            infer.rows,
            infer.id,
            outcome.stamps,
            sent_ns,
            infer.event_time_ns,
            outcome.replays,
            self.number,
            queued,
        )
        if infer.budget_ns:
            version.executor.took(infer, outcome, sent_ns)
            if sent_ns - outcome.stamps[1] > infer.budget_ns:
                self._records.add_version(version.place, VersionCell.LATE_ANSWERS)
        if version.is_watched:
            self._note(infer, version, outcome)
        # A tick that goes on from a state is one that a shadow can't repeat.
        if route.shadow is not None and not outcome.flags & _LAST_ANSWER and not infer.feed:
            route.shadow.offer(infer, outcome.frame)

    def _note(self, infer: Infer, version: Version, answer: Answer) -> None:
        """Count what was seen of an answer; keep a good one, where it may have to stand in for another."""
        if answer.flags:
            self._records.flagged(version.place, answer.flags)
        elif version.config.fallback == "last":
            self._last.keep(infer, answer)

    # -- everything but Infer --

    def _serve_rare(self, message: ClientMessage) -> None:
        if not self._greeted:
            self._greet(message)
            return
        match message:
            case Models(id=request_id, versions=versions):
                self._write(ModelList(request_id, self._listed(versions), self._service.limits))
            case Ping(id=request_id):
                self._write(Pong(request_id, monotonic_ns()))
            case Cancel(id=request_id):
                self._take_back(request_id)
                self._end_when_done()
            case OpenFeed() | CloseFeed() | SnapshotFeed():
                FeedTalk(self._service, self, self._client, self._write, self._refuse).answer(message)
            case Goodbye():
                self.leave()
            case _:
                raise RemoteProtocolError(
                    Code.BAD_MESSAGE, "Hello is the first message of a session, and only the first"
                )

    def _greet(self, message: ClientMessage) -> None:
        hello = check_hello(message)
        self._greeted = True
        self.key = key_of(hello.client)
        self._client = hello.client
        self._timer.stop()
        self._write(Welcome(PROTOCOL_VERSION, SERVER_NAME, self._service.limits, self._listed(False)))
        if self._service.draining:
            self.say_goodbye()

    def _listed(self, versions: bool) -> tuple[ModelInfo, ...]:
        catalogue = self._service.catalogue
        return catalogue.version_infos() if versions else catalogue.infos()

    def _take_back(self, request_id: int) -> None:
        """Refuse a request that had not started, and now never will; one that runs goes on."""
        version, taken = self._in_flight.get(request_id), self._ticks.get(request_id)
        if version is not None and not (taken and taken.feed.must_run) and version.executor.take_back(self, request_id):
            self._ended(request_id, version)
            refusal = CANCELLED if taken is None else taken.feed.ended(taken, CANCELLED, monotonic_ns())
            self._refuse(request_id, version, cast(Refusal, refusal))
            if taken is not None:
                taken.feed.take_up()

    def say_goodbye(self) -> None:
        """Tell the client that nothing new is taken any more."""
        if self._greeted and not self._closing:
            self._write(Goodbye("the server is shutting down"))

    # -- refusals and the end --

    def _refuse(
        self,
        request_id: int,
        version: Version | None,
        refusal: Refusal,
        stage: VersionCell = VersionCell.LATE_AT_ADMISSION,
    ) -> None:
        """`stage`: where it is counted, if it is too late."""
        self._write(Failure(request_id, refusal.code, refusal.message, refusal.next_sequence))
        self._records.refused(None if version is None else version.place, refusal.code)
        if version is None:
            return
        if refusal.code is Code.DEADLINE:
            self._records.add_version(version.place, stage)
        elif type(refusal) is WarmUp:
            self._records.add_version(version.place, VersionCell.WARM_UP)
        if refusal.flags:
            self._records.flagged(version.place, refusal.flags)

    def _ended(self, request_id: int, version: Version) -> TakenTick | None:
        """A request that waited does so no more. Returns what its feed knows of it, if it is a tick."""
        self._records.add_version(version.place, VersionCell.IN_FLIGHT, -1)
        return self._forgotten(request_id)

    def _forgotten(self, request_id: int) -> TakenTick | None:
        """As `_ended`, of one that never waited, too: what `_queue` put in flight."""
        del self._in_flight[request_id]
        return self._ticks.pop(request_id, None) if self._ticks else None

    # -- timers --

    def _hello_late(self) -> None:
        self._refuse_session(Code.UNAUTHENTICATED, f"no Hello within {self._service.config.hello_s:g} s of connecting")

    def _frame_late(self) -> None:
        frame_s, waiting = self._service.config.frame_s, self._decoder.bytes_waiting
        late = f"a frame must be whole within {frame_s:g} s of its first byte; {waiting} bytes of one came"
        self._refuse_session(Code.BAD_FRAME, late)
