"""Segments that are made up: their entries went through a ring, as a server's do."""

from collections.abc import Iterable
from typing import Final, TypeAlias

from tickpath.playback.exchanges import Exchanges
from tickpath.recorder.entries import Batch, Kind, seal
from tickpath.recorder.reading import Segment
from tickpath.recorder.ring import RingReader, RingWriter
from tickpath.wire import PREFIX_BYTES, ClientMessage, ServerMessage, encode_frame

STAMPS: Final = (1, 2, 3, 4, 5, 6)

Put: TypeAlias = tuple[Kind, int, int, bytes]
"""What a core puts into its ring: kind, session, time in nanoseconds, body."""


def body(message: ClientMessage | ServerMessage) -> bytes:
    """The message as an entry holds it."""
    return encode_frame(message)[PREFIX_BYTES:]


def sealed(entries: Iterable[Put], ring_bytes: int = 1 << 16) -> Batch:
    """The entries as a segment holds them."""
    ring = RingWriter(ring_bytes)
    for entry in entries:
        assert ring.put(*entry), "there is room for it"
    chunk, _ = RingReader(ring.fd).peek(ring_bytes)
    ring.close()
    return seal(chunk)


def exchanges_of(segments: Iterable[Segment]) -> Exchanges:
    """What was asked and answered in them. Raises RecordingError."""
    exchanges = Exchanges()
    for segment in segments:
        exchanges.add(segment)
    return exchanges
