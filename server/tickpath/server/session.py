"""A session: one client's connection, from its first byte to its last.

Rules
- Hello comes first and in time; until then nothing else is answered.
- A frame is decoded, admitted and (on an inline executor) answered before the next one is looked at; its bytes hold
  until then.
- Every Infer gets exactly one Result or Failure, unless the client goes away first.
- What the client did to the protocol ends the session: one Failure with id 0, then the connection closes. It closes
  gently: bytes the
  client had under way are received and dropped for a moment, since a reset would take the Failure with it.
- A client that does not read is not read from; if it stays so, it is dropped.
"""

import asyncio
import logging
from collections.abc import Callable
from time import monotonic_ns
from typing import Final, cast

from tickpath.observe.records import GlobalCell, ModelCell
from tickpath.server.admission import Refusal, refuse_form, refuse_load
from tickpath.server.executor import Outcome
from tickpath.server.lane import Answer
from tickpath.server.model import ServedModel
from tickpath.server.service import Service
from tickpath.wire import (
    PROTOCOL_VERSION,
    Cancel,
    ClientMessage,
    Code,
    Failure,
    FrameDecoder,
    FrameEncoder,
    Goodbye,
    Hello,
    Infer,
    ModelList,
    Models,
    Ping,
    Pong,
    RemoteProtocolError,
    ServerMessage,
    Welcome,
    decode_client_message,
)

log = logging.getLogger(__name__)

# How long a refused client's bytes are still received and dropped: a round trip anywhere on earth, and a little.
LINGER_S: Final = 1.0
SERVER_NAME: Final = "tickpath"


class Session(asyncio.BufferedProtocol):
    """One connection of a client. All methods run on the loop's thread."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._records = service.records
        self._decoder = FrameDecoder(service.limits.frame_bytes_max)
        self._encoder = FrameEncoder()
        self._transport: asyncio.Transport | None = None
        self._greeted = False
        self._closing = False
        self._writable = True
        self._eof = False
        self._timer: asyncio.TimerHandle | None = None  # Hello, then the frame's deadline, then lingering
        self._stall_timer: asyncio.TimerHandle | None = None
        self._first_byte_ns = 0  # of the frame that has begun; 0: none has
        self._in_flight: dict[int, ServedModel] = {}

    # -- the transport's side --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._service.config.write_bytes_max)
        if not self._service.opened(self):
            limit = self._service.limits.sessions_max
            self._write(
                Failure(0, Code.OVERLOADED, f"{limit} sessions are open, the most this server takes: try again later")
            )
            self._transport.close()
            self._closing = True
            return
        self._set_timer(self._service.config.hello_s, self._hello_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._closing = True
        self._cancel_timers()
        for request_id, model in list(self._in_flight.items()):
            if model.executor.take_back(self, request_id):
                self._ended(request_id, model)
                self._records.refused(model.handle, Code.CANCELLED)
        self._service.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._service.discard if self._closing else self._decoder.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        received_ns = monotonic_ns()
        if self._closing:
            return
        self._decoder.received(nbytes)
        self._serve_frames(received_ns)
        self._service.polling.extend(monotonic_ns())

    def eof_received(self) -> bool:
        """The client sends no more. It still gets the answers to what is in flight."""
        self._eof = True
        return bool(self._in_flight) and not self._closing

    def pause_writing(self) -> None:
        """Replies pile up: nothing more is read until the client has taken some."""
        self._writable = False
        if self._transport is not None:
            self._transport.pause_reading()
        self._stall_timer = self._service.loop.call_later(self._service.config.write_stall_s, self._stalled)

    def resume_writing(self) -> None:
        self._writable = True
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        if self._transport is None or self._closing:
            return
        self._serve_frames(monotonic_ns())
        if self._writable:
            self._transport.resume_reading()

    # -- frames --

    def _serve_frames(self, received_ns: int) -> None:
        decoder = self._decoder
        try:
            while self._writable and not self._closing and (frame := decoder.next_frame()) is not None:
                first_byte_ns = received_ns
                if self._first_byte_ns:
                    first_byte_ns = self._end_partial_frame()
                message = decode_client_message(frame)
                if type(message) is Infer and self._greeted:
                    self._infer(message, first_byte_ns, received_ns)
                else:
                    self._serve_rare(message)
        except RemoteProtocolError as error:
            self._refuse_session(error.code, error.message)
            return
        if decoder.bytes_waiting:
            self._watch_partial_frame(received_ns)

    def _watch_partial_frame(self, received_ns: int) -> None:
        """The deadline of a frame that has begun and not ended counts from its first byte, whatever trickles in
        after."""
        if self._first_byte_ns == 0 and self._greeted and not self._closing:
            self._first_byte_ns = received_ns
            self._set_timer(self._service.config.frame_s, self._frame_late)

    def _end_partial_frame(self) -> int:
        """The frame that had begun is whole. Returns when it began."""
        first_byte_ns, self._first_byte_ns = self._first_byte_ns, 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return first_byte_ns

    def _infer(self, infer: Infer, first_byte_ns: int, received_ns: int) -> None:
        service = self._service
        if infer.handle >= len(service.models):
            self._refuse(infer.id, None, _unknown_model(infer.handle, len(service.models)))
            return
        model = service.models[infer.handle]
        if (refusal := self._refusal(infer, model)) is not None:
            self._refuse(infer.id, model, refusal)
            return
        if model.executor.kind != "inline":
            self._in_flight[infer.id] = model
            self._records.add_model(model.handle, ModelCell.IN_FLIGHT)
        model.executor.submit(self, infer, first_byte_ns, received_ns)

    def _refusal(self, infer: Infer, model: ServedModel) -> Refusal | None:
        service = self._service
        if service.draining:
            return Refusal(Code.NOT_READY, "the server is shutting down: go to another")
        if (refusal := refuse_form(infer, model.rules, service.limits.priority_levels)) is not None:
            return refusal
        if self._in_flight or model.executor.kind != "inline":
            return refuse_load(infer.id, self._in_flight, service.limits, model.executor.has_room(), model.info.name)
        return None

    def finish(self, infer: Infer, outcome: Outcome) -> None:
        """Send the answer of a request that has run, and record its way."""
        model = self._service.models[infer.handle]
        if infer.id in self._in_flight:
            self._ended(infer.id, model)
        if type(outcome) is not Answer:
            self._refuse(infer.id, model, cast(Refusal, outcome))
        elif self._transport is None or self._closing:
            self._records.refused(model.handle, Code.CANCELLED)
        else:
            self._transport.write(outcome.frame)
            sent_ns = monotonic_ns()
            self._records.answered(
                model.handle,
                outcome.bucket_index,
                outcome.bucket,
                infer.rows,
                infer.id,
                outcome.stamps,
                sent_ns,
                infer.event_time_ns,
            )
            if infer.budget_ns and sent_ns - outcome.stamps[1] > infer.budget_ns:
                self._records.add_model(model.handle, ModelCell.DEADLINE_MISSES)
        if self._eof and not self._in_flight:
            self.close()

    # -- everything but Infer --

    def _serve_rare(self, message: ClientMessage) -> None:
        if not self._greeted:
            self._greet(message)
            return
        match message:
            case Models(id=request_id):
                self._write(ModelList(request_id, self._service.model_infos))
            case Ping(id=request_id):
                self._write(Pong(request_id, monotonic_ns()))
            case Cancel(id=request_id):
                self._cancel(request_id)
            case Goodbye():
                self._eof = True
                if not self._in_flight:
                    self.close()
            case _:
                raise RemoteProtocolError(
                    Code.BAD_MESSAGE, "Hello is the first message of a session, and only the first"
                )

    def _greet(self, message: ClientMessage) -> None:
        if not isinstance(message, Hello):
            raise RemoteProtocolError(
                Code.UNAUTHENTICATED, f"Hello must be the first message, {type(message).__name__} came"
            )
        if message.protocol != PROTOCOL_VERSION:
            raise RemoteProtocolError(
                Code.BAD_MESSAGE, f"this server speaks protocol {PROTOCOL_VERSION}, {message.protocol} was asked for"
            )
        self._greeted = True
        self._cancel_timers()
        self._write(Welcome(PROTOCOL_VERSION, SERVER_NAME, self._service.limits, self._service.model_infos))
        if self._service.draining:
            self.say_goodbye()

    def _cancel(self, request_id: int) -> None:
        model = self._in_flight.get(request_id)
        if model is not None and model.executor.take_back(self, request_id):
            self._ended(request_id, model)
            self._refuse(request_id, model, Refusal(Code.CANCELLED, "taken back before it ran"))

    def say_goodbye(self) -> None:
        """Tell the client that nothing new is taken any more."""
        if self._greeted and not self._closing:
            self._write(Goodbye("the server is shutting down"))

    @property
    def idle(self) -> bool:
        """Nothing in flight and nothing of the replies left to send."""
        unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return not self._in_flight and unsent == 0

    # -- refusals and the end --

    def _refuse(self, request_id: int, model: ServedModel | None, refusal: Refusal) -> None:
        self._write(Failure(request_id, refusal.code, refusal.message))
        self._records.refused(None if model is None else model.handle, refusal.code)
        if model is not None and refusal.code is Code.DEADLINE:
            self._records.add_model(model.handle, ModelCell.DEADLINE_MISSES)

    def _refuse_session(self, code: Code, message: str) -> None:
        self._records.add(GlobalCell.PROTOCOL_ERRORS)
        self._write(Failure(0, code, message))
        self._closing = True
        self._cancel_timers()
        if self._transport is not None:
            if self._transport.can_write_eof():
                self._transport.write_eof()
            self._set_timer(LINGER_S, self._abort)

    def _ended(self, request_id: int, model: ServedModel) -> None:
        del self._in_flight[request_id]
        self._records.add_model(model.handle, ModelCell.IN_FLIGHT, -1)

    def _write(self, message: ServerMessage) -> None:
        if self._transport is not None and not self._closing:
            self._transport.write(self._encoder.frame(message))

    def close(self) -> None:
        """Close once what is written has been sent."""
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- timers --

    def _set_timer(self, delay_s: float, call: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._service.loop.call_later(delay_s, call)

    def _cancel_timers(self) -> None:
        for timer in (self._timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._stall_timer = None

    def _hello_late(self) -> None:
        self._refuse_session(Code.UNAUTHENTICATED, f"no Hello within {self._service.config.hello_s:g} s of connecting")

    def _frame_late(self) -> None:
        waiting = self._decoder.bytes_waiting
        self._refuse_session(
            Code.BAD_FRAME,
            f"a frame must be whole within {self._service.config.frame_s:g} s of its first byte; "
            f"{waiting} bytes of one came",
        )

    def _stalled(self) -> None:
        log.warning("dropped a client that had not read its replies for %g s", self._service.config.write_stall_s)
        self._records.add(GlobalCell.SLOW_READERS_DROPPED)
        self._abort()


def _unknown_model(handle: int, model_count: int) -> Refusal:
    return Refusal(
        Code.UNKNOWN_MODEL, f"no model has handle {handle}: Welcome and ModelList name handles 0 to {model_count - 1}"
    )
