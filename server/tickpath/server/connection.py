"""How a client's connection lives and ends, whatever is said on it. Session, which extends it, is what is said.

Rules
- A connection ends gently: what is in flight is answered first, then come the last words, if there are any. Bytes that
  the client had under way are received and dropped for a moment, since a reset would take the last replies with it.
- A client that does not read is not read from; if it takes nothing for a while, it is dropped.

Flags, each set once: `_leaving`, it ends when nothing is in flight; `_deaf`, what comes is dropped; `_closing`,
nothing is written any more either.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import Final, cast

from tickpath.observe.records import GlobalCell
from tickpath.server.reader_watch import ReaderWatch
from tickpath.server.service import Service
from tickpath.server.timer import Timer
from tickpath.wire import Code, Failure, ServerMessage, encode_frame

log = logging.getLogger(__name__)

# How long a refused client's bytes are still received and dropped: a round trip anywhere on earth, and a little.
LINGER_S: Final = 1.0


class Connection(asyncio.BufferedProtocol, ABC):
    """One connection of a client. All methods run on the loop's thread."""

    def __init__(self, service: Service) -> None:
        self.key = 0  # of its client; 0 until that has said its name
        self.number = 0  # given by the service
        self._service = service
        self._records = service.records
        self._transport: asyncio.Transport | None = None
        self._leaving = False
        self._deaf = False
        self._closing = False
        self._done_reading = False  # nothing more can come, or there is no room to wait for it
        self._writable = True
        self._half_closes = True  # TLS ends both ways at once
        self._last_words: Failure | None = None
        self._timer = Timer(service.loop)  # what the client is waited for: Hello, a frame's rest, its end
        self._watch: ReaderWatch  # from connection_made on

    # -- what is said on it --

    @abstractmethod
    def _begun(self) -> None:
        """There is room for this client: wait for its first words."""

    @abstractmethod
    def _busy(self) -> bool:
        """Whether it waits for an answer."""

    @abstractmethod
    def _take_up(self) -> None:
        """Replies can be written again: go on where it stopped."""

    @abstractmethod
    def say_goodbye(self) -> None:
        """Tell the client that nothing new is taken any more."""

    @abstractmethod
    def take_frames(self, frame_bytes_max: int) -> None:
        """Larger frames than before are allowed."""

    @abstractmethod
    def _lost(self) -> None:
        """The client is gone: what waits for it is taken back."""

    # -- the transport's side --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        config, loop = self._service.config, self._service.loop
        self._transport = cast(asyncio.Transport, transport)
        self._half_closes = self._transport.can_write_eof()
        self._transport.set_write_buffer_limits(high=config.write_bytes_max)
        self._watch = ReaderWatch(loop, self._transport, config.write_stall_s, self._stalled)
        if self._service.opened(self):
            self._begun()
        else:
            self._turn_away()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._closing = True
        self._timer.stop()
        self._watch.stop()
        # It knows this connection: with the collector off, a cycle would keep both, and the receive buffer.
        del self._watch
        self._lost()
        self._service.closed(self)

    def pause_writing(self) -> None:
        """Replies pile up: nothing more is read until the client has taken some."""
        self._writable = False
        self._timer.stop()
        if self._transport is not None:
            self._transport.pause_reading()
        self._watch.start()

    def resume_writing(self) -> None:
        self._writable = True
        if self._transport is not None and not self._closing:
            self._watch.stop()
        self._take_up()

    # -- writing --

    def _write(self, message: ServerMessage) -> None:
        if self._transport is not None and not self._closing:
            self._send(encode_frame(message))

    def _send(self, frame: bytes) -> None:
        """Where the client is gone, its answer is dropped; that it was computed is counted all the same."""
        if self._transport is None or self._closing:
            return
        if not self._writable:
            self._watch.wrote(len(frame))
        self._transport.write(frame)

    # -- the end --

    def leave(self) -> None:
        """End as soon as what is in flight is answered."""
        self._leaving = True
        self._end_when_done()

    def abort(self) -> None:
        """End now, whatever is under way."""
        if self._transport is not None:
            self._transport.abort()

    def _end_with(self, code: Code, message: str) -> None:
        """End with a Failure of id 0, as soon as what is in flight is answered."""
        self._last_words = Failure(0, code, message)
        self._deaf = True
        self._timer.stop()
        self.leave()

    def _refuse_session(self, code: Code, message: str) -> None:
        """The client broke the protocol."""
        self._records.add(GlobalCell.PROTOCOL_ERRORS)
        self._end_with(code, message)

    def _turn_away(self) -> None:
        """There is no room for this client. While few such linger, it learns so whatever it has sent already."""
        limit = self._service.limits.sessions_max
        self._done_reading = not self._service.may_linger(self)
        self._end_with(Code.OVERLOADED, f"{limit} sessions are open, the most this server takes: try again later")

    def _end_when_done(self) -> None:
        if not self._leaving or self._busy() or self._closing or self._transport is None:
            return
        if self._last_words is not None:
            self._write(self._last_words)
        self._deaf = self._closing = True
        if self._done_reading or not self._half_closes:
            self._transport.close()
        else:
            self._transport.write_eof()
        self._watch.start()
        self._timer.start(LINGER_S, self._lingered)

    def _lingered(self) -> None:
        if self._watch.undelivered_bytes():
            self._timer.start(LINGER_S, self._lingered)
        else:
            self.abort()

    def _stalled(self) -> None:
        log.warning("dropped a client that had read none of its replies for %g s", self._service.config.write_stall_s)
        self._records.add(GlobalCell.SLOW_READERS_DROPPED)
        self.abort()
