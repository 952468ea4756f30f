"""FrameDecoder against a simple model, and its promises about memory and work. Known failures A5, A6, A7, A11, A21."""

import tracemalloc
from collections import deque
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tickpath.wire import FRAME_BYTES_MIN, PREFIX_BYTES, Code, FrameDecoder, LocalProtocolError, RemoteProtocolError


def prefix(body_bytes: int) -> bytes:
    """A frame's first four bytes."""
    return body_bytes.to_bytes(PREFIX_BYTES, "little")


def receive(decoder: FrameDecoder, data: bytes) -> int:
    """Offer `data`; returns how many bytes of it there was room for."""
    room = decoder.get_buffer()
    taken = min(len(data), len(room))
    room[:taken] = data[:taken]
    decoder.received(taken)
    return taken


def frames_now(decoder: FrameDecoder) -> list[memoryview]:
    """All frames that are whole."""
    return list(iter(decoder.next_frame, None))


class Peers(RuleBasedStateMachine):
    """Any frames in any pieces come out as they went in. The model is a queue of bodies and two counts of bytes."""

    @initialize(
        frame_bytes_max=st.integers(FRAME_BYTES_MIN, 300),
        buffer_bytes=st.integers(0, 100),
    )
    def connect(self, frame_bytes_max: int, buffer_bytes: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.decoder = FrameDecoder(frame_bytes_max, buffer_bytes)
        self.expected: deque[bytes] = deque()
        self.on_the_way = b""
        self.lent: list[tuple[memoryview, bytes]] = []
        self.broken = False
        self.received_bytes = 0
        self.framed_bytes = 0
        self.moved_bytes = 0
        self.memory: object = None
        self.memory_bytes = self.memory_bytes_start = len(self.decoder.get_buffer())

    @precondition(lambda self: not self.broken)
    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        body = data.draw(st.binary(min_size=FRAME_BYTES_MIN, max_size=self.frame_bytes_max))
        self.expected.append(body)
        self.on_the_way += prefix(len(body)) + body

    @precondition(lambda self: not self.broken)
    @rule(data=st.data())
    def send_bad_length(self, data: st.DataObject) -> None:
        over = st.integers(self.frame_bytes_max + 1, 2**32 - 1)
        self.on_the_way += prefix(data.draw(st.integers(0, FRAME_BYTES_MIN - 1) | over))
        self.broken = True

    @precondition(lambda self: self.on_the_way)
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        self.check_memory(self.decoder.get_buffer())
        self.lent.clear()
        piece = self.on_the_way[: data.draw(st.integers(1, len(self.on_the_way)))]
        taken = receive(self.decoder, piece)
        assert taken, "no room for a single byte"
        self.received_bytes += taken
        self.on_the_way = self.on_the_way[taken:]
        try:
            self.take_frames()
        except RemoteProtocolError as error:
            self.refused(error)

    def take_frames(self) -> None:
        while (frame := self.decoder.next_frame()) is not None:
            body = self.expected.popleft()
            assert frame == body
            self.framed_bytes += PREFIX_BYTES + len(body)
            self.lent.append((frame, body))
        assert self.decoder.bytes_waiting == self.received_bytes - self.framed_bytes

    def refused(self, error: RemoteProtocolError) -> None:
        assert self.broken
        assert not self.expected, "a bad length may not hide the frames before it"
        assert error.code == Code.BAD_FRAME
        with pytest.raises(RemoteProtocolError):
            self.decoder.next_frame()
        self.connect(self.frame_bytes_max, self.memory_bytes_start)

    def check_memory(self, room: memoryview) -> None:
        memory = room.obj
        if self.memory is not None and memory is not self.memory:
            self.moved_bytes += self.decoder.bytes_waiting
        assert isinstance(memory, bytearray)
        self.memory, self.memory_bytes = memory, len(memory)
        most = min(2 * self.received_bytes, PREFIX_BYTES + self.frame_bytes_max)
        assert self.memory_bytes <= max(self.memory_bytes_start, most)
        assert self.moved_bytes <= 3 * self.received_bytes

    @invariant()
    def frames_lent_are_unchanged(self) -> None:
        assert all(frame == body for frame, body in getattr(self, "lent", ()))


TestPeers = Peers.TestCase
TestPeers.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("body_bytes", [0, 1, 1025, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_a_bad_length_is_refused_before_anything_is_allocated(body_bytes: int) -> None:
    decoder = FrameDecoder(1024)
    before = decoder.get_buffer().obj
    receive(decoder, prefix(body_bytes))
    tracemalloc.start()
    try:
        with pytest.raises(
            RemoteProtocolError, match=f"{body_bytes} came; the prefix is 4 bytes, little-endian"
        ) as refused:
            decoder.next_frame()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert refused.value.code == Code.BAD_FRAME
    assert decoder.get_buffer().obj is before
    assert peak_bytes < 64 * 1024


def test_a_declared_length_costs_nothing_until_its_bytes_come() -> None:
    decoder = FrameDecoder(1 << 30)
    before = decoder.get_buffer().obj
    receive(decoder, prefix(1 << 30) + b"\x99")
    assert decoder.next_frame() is None
    assert decoder.get_buffer().obj is before


@pytest.mark.parametrize("frames_before", [0, 1])
def test_a_megabyte_in_single_bytes_moves_each_byte_a_bounded_number_of_times(frames_before: int) -> None:
    body = bytes(range(256)) * 4096
    decoder = FrameDecoder(len(body))
    stream = (prefix(2) + b"\x91\x0e") * frames_before + prefix(len(body)) + body
    receive(decoder, stream[: 6 * frames_before + 1])
    assert len(frames_now(decoder)) == frames_before
    memory, moved_bytes, frame = decoder.get_buffer().obj, 0, None
    for at in range(6 * frames_before + 1, len(stream)):
        assert frame is None
        room = decoder.get_buffer()
        if room.obj is not memory:
            memory, moved_bytes = room.obj, moved_bytes + decoder.bytes_waiting
        room[0] = stream[at]
        decoder.received(1)
        frame = decoder.next_frame()
    assert frame is not None
    assert bytes(frame) == body
    assert 0 < moved_bytes <= 2 * len(body)


def test_a_stream_of_whole_frames_is_never_moved() -> None:
    decoder = FrameDecoder(1024)
    memory = decoder.get_buffer().obj
    for number in range(1000):
        body = bytes([number % 256]) * (2 + number)
        receive(decoder, prefix(len(body)) + body)
        assert frames_now(decoder) == [body]
        assert decoder.get_buffer().obj is memory


def test_frames_of_one_piece_hold_together_until_the_next_buffer() -> None:
    decoder = FrameDecoder(1024, 16)
    receive(decoder, prefix(3) + b"abc" + prefix(4) + b"defg" + b"\x05")
    first, second = frames_now(decoder)
    assert (bytes(first), bytes(second)) == (b"abc", b"defg")
    receive(decoder, b"\0\0\0hello")
    # The move made a new buffer, since the old one can't be resized while it is lent: these views still hold by luck.
    assert (bytes(first), bytes(second)) == (b"abc", b"defg")
    assert frames_now(decoder) == [b"hello"]
    receive(decoder, prefix(6) + b"world!")
    (world,) = frames_now(decoder)
    decoder.get_buffer()[:10] = b"overwritten"[:10]
    assert bytes(world) != b"world!", "a view does not outlive get_buffer(): its holder must have copied it"


def test_a_prefix_of_the_other_byte_order_is_refused_and_says_so() -> None:
    decoder = FrameDecoder(1024)
    receive(decoder, (16).to_bytes(PREFIX_BYTES, "big") + bytes(16))
    with pytest.raises(RemoteProtocolError, match="268435456 came; the prefix is 4 bytes, little-endian"):
        decoder.next_frame()


def test_receiving_on_while_whole_frames_wait_is_our_own_fault() -> None:
    decoder = FrameDecoder(4, 8)
    receive(decoder, prefix(4) + b"full")
    with pytest.raises(AssertionError, match="next_frame"):
        decoder.get_buffer()


@pytest.mark.parametrize("frame_bytes_max", [-1, 0, 1])
def test_a_limit_in_which_no_message_fits_is_refused(frame_bytes_max: int) -> None:
    with pytest.raises(LocalProtocolError, match="no message fits"):
        FrameDecoder(frame_bytes_max)


MEGABYTE: Final = 1 << 20


@pytest.mark.parametrize("body_bytes", [16 * 1024, 17 * 1024, 100_000, MEGABYTE - 1, MEGABYTE])
def test_frames_of_one_size_settle_in_one_buffer(body_bytes: int) -> None:
    """Memory follows the largest frame, never the number of frames."""
    decoder = FrameDecoder(MEGABYTE)
    stream = (prefix(body_bytes) + bytes(body_bytes)) * 8
    frame_count = 0
    while stream:
        stream = stream[receive(decoder, stream) :]
        frame_count += len(frames_now(decoder))
        memory = decoder.get_buffer().obj
        assert isinstance(memory, bytearray)
        assert len(memory) <= max(32 * 1024, 2 * (PREFIX_BYTES + body_bytes))
    assert frame_count == 8
