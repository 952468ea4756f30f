"""What the core does for a recording: it copies what a session hears and says into the recorder's ring.

Rules
- A session that is not recorded knows nothing of it: one that is is a class of its own.
- A request is copied once it has been dealt with: where its model runs inline, its answer has left by then. Until then
  its bytes hold. What was said meanwhile is copied behind it.
- A Hello is never copied, since it may hold a token, nor is anything that is said before one was taken.
- What has no room is dropped and counted (see tickpath.recorder.ring). Nothing here waits.
"""

import asyncio
import logging
import os
import uuid
from pathlib import Path
from time import monotonic, monotonic_ns, sleep
from typing import Final, Self

import msgspec

from tickpath.observe.records import GlobalCell
from tickpath.recorder.entries import DescribedModel, DescribedVersion, Description, Kind
from tickpath.recorder.folder_lock import open_lock, take
from tickpath.recorder.ring import RingWriter
from tickpath.server.config import ConfigError
from tickpath.server.guarded_session import GuardedSession
from tickpath.server.memory import available_bytes
from tickpath.server.record_config import RecordConfig
from tickpath.server.service import Service
from tickpath.server.session import Session
from tickpath.server.timer import Timer
from tickpath.wire import (
    PREFIX_BYTES,
    Cancel,
    ClientMessage,
    CloseFeed,
    Failure,
    FeedClosed,
    FeedOpened,
    FeedSnapshot,
    FrameDecoder,
    Infer,
    Models,
    OpenFeed,
    Result,
    SnapshotFeed,
    Tick,
)

log = logging.getLogger(__name__)

FOLDER_MODE: Final = 0o700
# A server that was killed leaves its recorder to write the rest, which the next one waits for.
LOCK_S_MAX: Final = 5.0
PUBLISH_S: Final = 0.1

_RARE: Final = (OpenFeed, CloseFeed, SnapshotFeed, Cancel)
# A frame's tag stands behind the 4 bytes of its length and the one that says how long its array is.
_TAG_AT: Final = PREFIX_BYTES + 1
_SAID: Final = frozenset(kind.__struct_config__.tag for kind in (Result, Failure, FeedOpened, FeedSnapshot, FeedClosed))


class Recording:
    """The core's side of a recording. `lock_fd` keeps the folder for this server and its recorder."""

    def __init__(self, config: RecordConfig) -> None:
        """Raises ConfigError where the folder or the memory can't be had."""
        self.config = config
        self.run = uuid.uuid4().hex
        self.lock_fd = _lock(Path(config.dir))
        try:
            _check_memory(config.ring_bytes)  # behind the lock: until then a killed server's ring may still be there
        except ConfigError:
            os.close(self.lock_fd)
            raise
        self.ring = RingWriter(config.ring_bytes)
        self._models: dict[int, DescribedModel] = {}
        self._versions: dict[tuple[str, str], DescribedVersion] = {}
        self._described = False
        self._service: Service | None = None
        self._timer: Timer | None = None

    def start(self, service: Service, loop: asyncio.AbstractEventLoop) -> None:
        """Everything is loaded: say what there is, and go on saying it."""
        self._service, self._timer = service, Timer(loop)
        self._publish_later()

    def stop(self) -> None:
        """The recorder has ended: the last counts, and whether anything is missing."""
        if self._timer is not None:
            self._timer.stop()
        written = self.ring.written()
        dropped = self.ring.sequence - written
        if self._service is not None:
            self._tell(self._service, written, dropped)
        log.info("recorded %d entries in %s; %d were dropped", written, self.config.dir, dropped)
        os.close(self.lock_fd)

    def describe_again(self) -> None:
        """A new recorder knows nothing yet."""
        self._described = False

    def describe(self) -> None:
        """Say what is served, where that is more than was said before: nobody is to hold a handle that was never
        described."""
        assert self._service is not None
        catalogue = self._service.catalogue
        for route, name, label in catalogue.ways():
            if route.handle not in self._models and route.live is not None:
                info = route.live.info
                model = DescribedModel(route.handle, name, label, info.inputs, info.outputs)
                self._models[route.handle], self._described = model, False
        for version in catalogue.versions:
            if (key := (version.name, version.label)) not in self._versions:
                told = version.description
                self._versions[key] = DescribedVersion(*key, told.sha256, told.engine, told.precision)
                self._described = False
        if not self._described:
            text = Description(tuple(self._models.values()), tuple(self._versions.values()))
            self._described = self.ring.put(Kind.DESCRIPTION, 0, monotonic_ns(), msgspec.json.encode(text))

    def _publish_later(self) -> None:
        assert self._timer is not None
        assert self._service is not None
        self.describe()
        self._tell(self._service, self.ring.written(), self.ring.dropped + self.ring.lost())
        self._timer.start(PUBLISH_S, self._publish_later)

    def _tell(self, service: Service, written: int, dropped: int) -> None:
        service.records.set_cell(GlobalCell.RECORDED, written)
        service.records.set_cell(GlobalCell.RECORD_DROPPED, dropped)


class RecordedSession(Session):
    """A session of which a recording is made. `record` comes before anything is heard."""

    def record(self, recording: Recording) -> Self:
        """Into this one."""
        self._decoder: KeepingDecoder = KeepingDecoder(self._service.limits.frame_bytes_max)
        self._recording = recording
        self._put = recording.ring.put
        self._is_open = False  # from the Hello on that was taken
        self._hearing = False
        self._said: list[tuple[int, bytes]] = []  # while a request is dealt with
        return self

    def _infer(self, infer: Infer, first_byte_ns: int, received_ns: int) -> None:
        self._hearing = True
        try:
            super()._infer(infer, first_byte_ns, received_ns)
        finally:
            self._heard(received_ns)

    def _tick(self, tick: Tick, first_byte_ns: int, received_ns: int) -> None:
        self._hearing = True
        try:
            super()._tick(tick, first_byte_ns, received_ns)
        finally:
            self._heard(received_ns)

    def _serve_rare(self, message: ClientMessage) -> None:
        if not self._is_open:
            super()._serve_rare(message)  # Hello, or nothing that is taken
            if self._greeted:
                self._opened()
        elif isinstance(message, _RARE):
            self._hearing = True
            try:
                super()._serve_rare(message)
            finally:
                self._heard(self._received_ns)
        else:
            super()._serve_rare(message)
            if isinstance(message, Models):  # it may have made handles
                self._recording.describe()

    def _send(self, frame: bytes) -> None:
        super()._send(frame)
        if not self._is_open or frame[_TAG_AT] not in _SAID:
            return
        if self._hearing:
            self._said.append((monotonic_ns(), frame))
        else:
            self._put(Kind.REPLY, self.number, monotonic_ns(), memoryview(frame)[PREFIX_BYTES:])

    def _lost(self) -> None:
        super()._lost()
        if self._is_open:
            self._put(Kind.CLOSED, self.number, monotonic_ns(), b"")

    def _opened(self) -> None:
        self._is_open = True
        self._recording.describe()
        self._put(Kind.OPENED, self.number, self._received_ns, self._client.encode())

    def _heard(self, received_ns: int) -> None:
        """A request has been dealt with: put it, and what was said meanwhile."""
        self._hearing = False
        frame = self._decoder.frame
        assert frame is not None
        self._put(Kind.REQUEST, self.number, received_ns, frame)
        if self._said:
            for at_ns, said in self._said:
                self._put(Kind.REPLY, self.number, at_ns, memoryview(said)[PREFIX_BYTES:])
            self._said.clear()


class RecordedGuardedSession(RecordedSession, GuardedSession):
    """One on a server that asks who comes."""


class KeepingDecoder(FrameDecoder):
    """One that still knows the frame it gave out last; good until the next `get_buffer()`, as that is."""

    __slots__ = ("frame",)

    def __init__(self, frame_bytes_max: int) -> None:
        super().__init__(frame_bytes_max)
        self.frame: memoryview | None = None

    def next_frame(self) -> memoryview | None:
        self.frame = frame = super().next_frame()
        return frame


def _check_memory(ring_bytes: int) -> None:
    """The ring's pages are all taken at once: more than there are would have the system end processes."""
    available = available_bytes()
    if available is not None and ring_bytes > available:
        raise ConfigError(
            f"record: ring_bytes is {ring_bytes}, and this machine, or the control group, has {available} bytes of "
            "memory available: lower it"
        )


def _lock(folder: Path) -> int:
    """A descriptor that keeps this folder for who has it. Raises ConfigError."""
    try:
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        descriptor = open_lock(folder)
    except OSError as error:
        raise ConfigError(
            f"can't record in {folder}: {error.strerror}: name a folder that this user may write"
        ) from None
    end_s = monotonic() + LOCK_S_MAX
    while True:
        try:
            take(descriptor)
            return descriptor
        except OSError as error:
            if not isinstance(error, BlockingIOError) or monotonic() > end_s:
                os.close(descriptor)
                raise ConfigError(
                    f"can't record in {folder}: another server records there: give each a folder of its own"
                ) from None
            sleep(0.05)
