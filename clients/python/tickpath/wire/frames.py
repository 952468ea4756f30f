"""Frames: a 4-byte little-endian length and that many bytes of MessagePack. No sockets and no clock.

Rules of FrameDecoder
- `get_buffer()` gives room to receive into; `received(n)` says how much was filled; then `next_frame()` until None.
- A frame is a view into the receive buffer, good until the next `get_buffer()`: who needs it longer copies it.
- A length is believed only so far as bytes have come: the buffer doubles as it fills, so a peer that declares much and
  sends little costs little. Each byte moves at most three times: a frame is moved to the front once, and doublings add
  up to twice its size.

Where decoding may run
MessagePack nests, and what a newer peer appends to a message is passed over by a C function that calls itself once a
level. Python's recursion limit ends that after 1000 levels, as a protocol error; tried: 64 KiB of stack hold so much,
32 KiB do not, and with the limit at a million not even 8 MiB do. So messages are decoded on the loop's thread, which is
the main thread and has a full-size stack, and nothing in this program raises `sys.setrecursionlimit`.
"""

import struct
from typing import Final

import msgspec

from tickpath.wire.codes import Code
from tickpath.wire.errors import LocalProtocolError, RemoteProtocolError
from tickpath.wire.messages import ClientMessage, ServerMessage

_PREFIX: Final = struct.Struct("<I")
PREFIX_BYTES: Final = _PREFIX.size

# The shortest message: Goodbye with its reason left out, `91 0e`.
FRAME_BYTES_MIN: Final = 2

# What a server may send in one frame, and the most that a client takes. Small enough to tell at once what is not
# tickpath ("HTTP" as a length is 1.3 GB, 16 in big-endian 256 MiB); memory is taken only as bytes come.
REPLY_BYTES_MAX: Final = 64 * 1024 * 1024

# Whole frames of the usual models (280 bytes for 64 floats, 16 kB for a DeepLOB window) come in one receive.
BUFFER_BYTES_START: Final = 32 * 1024


class FrameDecoder:
    """Finds frames in what a peer sends. `frame_bytes_max` bounds a frame's body, the prefix not counted."""

    __slots__ = ("_buffer", "_end", "_start", "_view", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int, buffer_bytes: int = BUFFER_BYTES_START) -> None:
        if frame_bytes_max < FRAME_BYTES_MIN:
            raise LocalProtocolError(
                f"frame_bytes_max is {frame_bytes_max}; no message fits in under {FRAME_BYTES_MIN} bytes"
            )
        self.frame_bytes_max = frame_bytes_max
        # Never less than the shortest whole frame, so that doubling gets anywhere.
        self._buffer = bytearray(max(PREFIX_BYTES + FRAME_BYTES_MIN, min(buffer_bytes, PREFIX_BYTES + frame_bytes_max)))
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0

    @property
    def bytes_waiting(self) -> int:
        """Bytes of a frame that has begun and not ended, its prefix included; 0 between frames."""
        return self._end - self._start

    def get_buffer(self) -> memoryview:
        """Room for at least one byte. Ends the life of all frames given out before."""
        if self._start == self._end:
            self._start = self._end = 0
            return self._view
        if self._end == len(self._buffer):
            self._make_room()
        return self._view[self._end :]

    def received(self, byte_count: int) -> None:
        """`byte_count` bytes were written at the start of what `get_buffer` gave."""
        self._end += byte_count

    def next_frame(self) -> memoryview | None:
        """The next whole frame's body, or None until more has come. Raises RemoteProtocolError(BAD_FRAME) at a length
        that is not allowed, before anything is allocated for it; the stream cannot go on after that."""
        body_start = self._start + PREFIX_BYTES
        if self._end < body_start:
            return None
        (body_bytes,) = _PREFIX.unpack_from(self._buffer, self._start)
        if not FRAME_BYTES_MIN <= body_bytes <= self.frame_bytes_max:
            raise RemoteProtocolError(Code.BAD_FRAME, self._bad_length(body_bytes))
        body_end = body_start + body_bytes
        if self._end < body_end:
            return None
        self._start = body_end
        return self._view[body_start:body_end]

    def _bad_length(self, body_bytes: int) -> str:
        return (
            f"a frame's length is {FRAME_BYTES_MIN} to {self.frame_bytes_max} bytes here, {body_bytes} came; "
            "the prefix is 4 bytes, little-endian, and does not count itself"
        )

    def _make_room(self) -> None:
        """A frame has reached the buffer's end: move it to the front, or double (to one frame) when it is there."""
        waiting = self.bytes_waiting
        capacity = len(self._buffer)
        if self._start == 0:
            frame_max = PREFIX_BYTES + self.frame_bytes_max
            assert capacity < frame_max, "a whole frame waits: next_frame() was not called until None"
            capacity = min(2 * capacity, frame_max)
        # Always a new buffer: views of the old one may live, and then it can't be resized.
        moved = bytearray(capacity)
        moved[:waiting] = self._view[self._start : self._end]
        self._buffer, self._view = moved, memoryview(moved)
        self._start, self._end = 0, waiting


_encode: Final = msgspec.msgpack.Encoder().encode
_client_message: Final = msgspec.msgpack.Decoder(ClientMessage)
_server_message: Final = msgspec.msgpack.Decoder(ServerMessage)


def encode_frame(message: ClientMessage | ServerMessage) -> bytes:
    """The message as one frame: new bytes that nobody changes, which a transport may keep as long as it likes. Raises
    LocalProtocolError where it has no form on the wire: an integer over 64 bits, text that is not Unicode, a tensor
    that is not contiguous, 4 GiB. Ranges are the sender's own care."""
    try:
        # Never slower than encoding behind the prefix into a kept buffer: resizing that costs more than this copy.
        body = _encode(message)
        return _PREFIX.pack(len(body)) + body
    except (OverflowError, ValueError, BufferError, struct.error) as error:
        raise LocalProtocolError(f"{type(message).__name__} does not fit the protocol: {error}") from None


def decode_client_message(frame: memoryview) -> ClientMessage:
    """What a client said; its tensors are views into `frame`. Raises RemoteProtocolError(BAD_MESSAGE). Call it on the
    main thread (see above)."""
    try:
        return _client_message.decode(frame)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _bad_message(error) from None


def decode_server_message(frame: memoryview) -> ServerMessage:
    """What a server said; its tensors are views into `frame`. Raises RemoteProtocolError(BAD_MESSAGE)."""
    try:
        return _server_message.decode(frame)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _bad_message(error) from None


def _bad_message(error: Exception) -> RemoteProtocolError:
    return RemoteProtocolError(Code.BAD_MESSAGE, f"not a message of this protocol: {error}")
