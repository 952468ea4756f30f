"""Lengths that lie, frames that stop, frames that take their time. Known failures A5, A6, A7, A18, A21."""

import socket
import struct
import time
from itertools import count

import pytest
from tests.integration.hostile.arena import (
    Model,
    crowd,
    echo,
    expect_answers,
    expect_end,
    wide,
)
from tests.peer import Peer
from tests.serving import RunningServer

from tickpath.wire import PROTOCOL_VERSION, Code, Hello, Ping, Pong, encode_frame

RSS_BYTES_MAX = 8 * 1024 * 1024
"""What fifty connections may cost: a buffer of 32 KiB and a session each come to 3 MiB."""

BAD_LENGTHS = [0, 1, 0x80000000, 0xFFFFFFFF, int.from_bytes((16).to_bytes(4, "big"), "little")]


@pytest.mark.parametrize("length", [*BAD_LENGTHS, None], ids=lambda length: "max+1" if length is None else hex(length))
@pytest.mark.parametrize("greeted", [True, False])
def test_a_bad_length_is_refused_and_what_came_before_is_answered(
    usual: RunningServer, length: int | None, greeted: bool
) -> None:
    with Peer(usual.connect()) as other:
        frame_bytes_max = other.greet().limits.frame_bytes_max
    length = frame_bytes_max + 1 if length is None else length
    with Peer(usual.connect()) as peer:
        if greeted:
            peer.greet()
            peer.socket.sendall(peer.frame(Ping(7)) + struct.pack("<I", length))
            assert isinstance(peer.receive(), Pong)
        else:
            peer.socket.sendall(struct.pack("<I", length))
        message = expect_end(peer, Code.BAD_FRAME)
        assert f"{length} came" in message
        assert "little-endian" in message


def test_a_length_costs_nothing_until_its_bytes_come(usual: RunningServer) -> None:
    with usual.peer() as first:
        first.send(Ping(1))
        assert isinstance(first.receive(), Pong)
        before = usual.rss_bytes()
        with Peer(usual.connect()) as other:
            largest = other.greet().limits.frame_bytes_max
        assert largest > 2 * RSS_BYTES_MAX
        with crowd(usual, 50) as stalled:
            for number, peer in enumerate(stalled):
                peer.greet()
                lie = (largest + 1, 0x80000000, 0xFFFFFFFF, largest)[number % 4]
                peer.socket.sendall(struct.pack("<I", lie) + b"\x95\x05\x01")
            first.send(Ping(2))
            assert isinstance(first.receive(), Pong)
            assert usual.rss_bytes() - before < RSS_BYTES_MAX


@pytest.mark.parametrize("sent_bytes", [1, 3, 4, 5, 100])
@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
def test_a_frame_cut_off_by_the_end(usual: RunningServer, sent_bytes: int, unix: bool) -> None:
    request = echo(1)
    with Peer(usual.connect_unix() if unix else usual.connect()) as peer:
        peer.greet()
        peer.socket.sendall(peer.frame(request) + peer.frame(echo(2))[:sent_bytes])
        peer.socket.shutdown(socket.SHUT_WR)
        expect_answers(peer, request)
        assert f"{sent_bytes} bytes of a frame" in expect_end(peer, Code.BAD_FRAME)


def test_a_frame_cut_off_by_closing_is_no_news(usual: RunningServer) -> None:
    for sent_bytes in (1, 4, 100):
        peer = usual.peer()
        peer.socket.sendall(peer.frame(echo(2))[:sent_bytes])
        peer.close()


def test_a_frame_may_come_byte_by_byte(usual: RunningServer) -> None:
    with Peer(usual.connect()) as peer:
        hello, requests = peer.frame(Hello(PROTOCOL_VERSION, "slow")), [echo(1), echo(2)]
        for byte in hello + b"".join(map(peer.frame, requests)):
            peer.socket.sendall(bytes([byte]))
        peer.receive()
        expect_answers(peer, *requests)


def test_trickling_costs_in_proportion(usual: RunningServer) -> None:
    """Four times the bytes in pieces of 1 KiB: four times the processor time, where a rescan would take sixteen."""
    with usual.peer() as peer:
        peer.send(wide(1, 64))
        expect_answers(peer, wide(1, 64))
        spent_s = []
        for rows in (16, 64):
            request = wide(rows, rows)
            frame = memoryview(peer.frame(request))
            before_s = usual.cpu_s()
            for start in range(0, len(frame), 1024):
                peer.socket.sendall(frame[start : start + 1024])
            expect_answers(peer, request)
            spent_s.append(usual.cpu_s() - before_s)
        assert spent_s[1] < 9 * (spent_s[0] + 0.01), spent_s  # 0.01: the clock's step


def test_a_frame_has_its_time_from_the_first_byte(strict: RunningServer) -> None:
    """Three stop at different places, one goes on trickling: a byte never buys more time."""
    frame = encode_frame(echo(3))
    with strict.peer() as a, strict.peer() as b, strict.peer() as trickler:
        a.send(echo(1), echo(2))
        a.socket.sendall(frame[:3])
        b.socket.sendall(frame[:-1])
        trickler.socket.settimeout(0.02)
        for sent in count():
            try:
                trickler.socket.send(frame[sent : sent + 1])
                trickler.socket.recv(1, socket.MSG_PEEK)
                break
            except TimeoutError:
                continue
        assert 1 < sent < len(frame) - 1
        trickler.socket.settimeout(20)
        assert f"{sent + 1} bytes" in expect_end(trickler, Code.BAD_FRAME)
        expect_answers(a, echo(1), echo(2))
        assert "3 bytes" in expect_end(a, Code.BAD_FRAME)
        assert "1 s of its first byte" in expect_end(b, Code.BAD_FRAME)


def test_a_new_frame_has_its_time_anew(strict: RunningServer) -> None:
    """Frames that each come in two halves, for longer than one frame may take in all."""
    with strict.peer() as peer:
        end_s = time.monotonic() + 1.5
        for number in count(1):
            request = echo(number)
            frame = peer.frame(request)
            peer.socket.sendall(frame[:100])
            time.sleep(0.05)
            peer.socket.sendall(frame[100:])
            expect_answers(peer, request)
            if time.monotonic() > end_s:
                break
        assert number > 1


def test_zero_length_tensors_are_not_frames_of_zero(usual: RunningServer) -> None:
    with usual.peer() as peer:
        peer.send(echo(1, inputs=[b""], handle=Model.ECHO), echo(2))
        assert "0 came" in str(peer.receive())
        expect_answers(peer, echo(2))
