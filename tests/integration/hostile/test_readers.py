"""Clients that do not read what they asked for, or take their time. Known failures A2, A14."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from tests.integration.hostile.arena import (
    echo,
    expect_answers,
    scrape,
    slow,
    wide,
)
from tests.peer import Peer
from tests.serving import RunningServer
from tests.waiting import wait_until

from tickpath.wire import Goodbye, ModelList, Models

RSS_BYTES_MAX = 16 * 1024 * 1024
"""For a client that never reads: 256 KiB may wait for it; the rest is what allocators keep."""


class SlowSocket(socket.socket):
    """Takes a pause before each read, which brings 64 KiB at the most; until `slow_s` of pauses are over."""

    pause_s = 0.15
    slow_s = 2.5  # longer than `write_stall_s` and `frame_s` together

    def recv_into(self, buffer: Any, *_: Any) -> int:
        if self.slow_s > 0:
            time.sleep(self.pause_s)
            self.slow_s -= self.pause_s
        return super().recv_into(buffer, min(64 * 1024, len(buffer)))


def narrow(server: RunningServer, connection: socket.socket | None = None, buffer_bytes: int = 16 * 1024) -> Peer:
    """A greeted peer whose own kernel holds little, so that replies pile up on the server's side."""
    connection = connection or socket.socket()
    host, _, port = server.address.rpartition(":")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    connection.settimeout(20)
    connection.connect((host, int(port)))
    peer = Peer(connection)
    peer.greet()
    return peer


@contextmanager
def one_more_dropped(server: RunningServer) -> Iterator[None]:
    """By the end of the block the server has dropped and counted one slow reader."""

    def dropped() -> float:
        return scrape(server).value("tickpath_slow_readers_dropped_total")

    before = dropped()
    yield
    wait_until(lambda: dropped() == before + 1, "the drop is counted")


@contextmanager
def sending(peer: Peer, data: bytes) -> Iterator[None]:
    """Send beside whatever the block does."""
    thread = threading.Thread(target=peer.socket.sendall, args=(data,))
    thread.start()
    yield
    thread.join()


def send_for_ever(peer: Peer, frame: bytes) -> None:
    """Until the server has closed."""
    with suppress(ConnectionResetError, BrokenPipeError):
        while True:
            peer.socket.sendall(frame)


@pytest.mark.parametrize("asking", ["as much as comes back", "little for much"])
def test_who_never_reads_is_dropped_and_counted(strict: RunningServer, asking: str) -> None:
    """Models is 6 bytes and is answered with a thousand: what waits is bounded all the same."""
    rss_bytes = strict.rss_bytes()
    with one_more_dropped(strict), narrow(strict) as peer:
        frame = peer.frame(Models(1)) * 5_000 if asking == "little for much" else peer.frame(wide(1))
        send_for_ever(peer, frame)
    assert strict.rss_bytes() - rss_bytes < RSS_BYTES_MAX


@pytest.mark.parametrize("last", ["Goodbye", "the end", "a bad frame"])
def test_who_leaves_and_never_reads_is_dropped_and_counted(strict: RunningServer, last: str) -> None:
    """A Unix socket's kernel buffer holds most of one such reply: so little waits that reading goes on."""
    with one_more_dropped(strict), Peer(strict.connect_unix()) as peer:
        peer.greet()
        peer.send(wide(1))
        match last:
            case "Goodbye":
                peer.send(Goodbye())
            case "the end":
                peer.socket.shutdown(socket.SHUT_WR)
            case _:
                peer.socket.sendall(bytes(4))
        wait_until(lambda: scrape(strict).value("tickpath_sessions") == 2, "only the neighbour is there")


def test_who_leaves_and_reads_late_gets_it_all(strict: RunningServer) -> None:
    requests = [wide(1), slow(2), slow(3)]
    with Peer(strict.connect_unix()) as peer:
        peer.greet()
        peer.send(*requests)
        peer.socket.shutdown(socket.SHUT_WR)
        time.sleep(0.3)
        expect_answers(peer, *requests)
        assert peer.receive() is None


def test_who_reads_slowly_but_steadily_gets_every_answer_as_it_was(strict: RunningServer) -> None:
    """At a pace that takes longer than `write_stall_s` until so little waits that the server reads on; or until the
    kernel, which holds most of it, asks the server for more."""
    requests = [wide(number) for number in range(1, 31)]
    with narrow(strict, SlowSocket(), 64 * 1024) as peer, sending(peer, b"".join(map(peer.frame, requests))):
        expect_answers(peer, *requests)


def test_a_frame_that_waits_for_a_slow_reader_is_not_late(strict: RunningServer) -> None:
    """Whole frames and a half wait in the server, which reads no more: it is not the client who is slow to send. Over a
    Unix socket, since the kernel of TCP takes so much that nothing waits in the server for long."""
    connection = SlowSocket(socket.AF_UNIX)
    connection.pause_s, connection.slow_s = 0.5, 3.0
    connection.settimeout(20)
    connection.connect(strict.uds.removeprefix("unix:"))
    with Peer(connection) as peer:
        peer.greet()
        frame = peer.frame(echo(1))
        with sending(peer, peer.frame(Models(1)) * 2_000 + frame[:100]):
            for number in range(2_000):
                assert isinstance(peer.receive(), ModelList)
                if number == 100:
                    peer.socket.sendall(frame[100:])
        expect_answers(peer, echo(1))
