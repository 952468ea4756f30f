"""Clients that go away: with a reset, half, politely, or in the middle. Known failure A16."""

import itertools
import socket

import pytest
from tests.integration.hostile.arena import (
    Model,
    echo,
    expect_answers,
    expect_end,
    expect_failure,
    gather,
    in_flight,
    scrape,
    slow,
    wide,
)
from tests.peer import Peer
from tests.serving import RunningServer
from tests.waiting import wait_until

from tickpath.wire import Cancel, Code, Goodbye, Ping, Pong

RESETS = 1000
RSS_BYTES_MAX = 16 * 1024 * 1024


def test_a_thousand_resets(usual: RunningServer) -> None:
    """Mid-request, mid-frame, mid-refusal, before Hello, and with requests on a thread. `usual` checks that gauges
    come back and that the log is short."""
    with usual.peer() as peer:
        frame = peer.frame
        parts = itertools.cycle(
            [
                frame(echo(1)),
                frame(echo(1)) * 50,
                frame(echo(1))[:100],
                frame(slow(1)),
                frame(slow(1)) + frame(slow(2)) + frame(echo(3))[:3],
                frame(slow(1, Model.CROWDED)) + bytes(4),
                bytes(4),
                b"",
                frame(wide(1)),
                frame(wide(1))[:40_000],
            ]
        )
        for number, part in zip(range(RESETS), parts, strict=False):
            if number == RESETS // 10:
                before = usual.rss_bytes()
            other = Peer(usual.connect())
            if number % 7:
                other.greet()
            other.socket.sendall(part)
            other.reset()
        peer.send(echo(2))
        expect_answers(peer, echo(2))
    assert usual.rss_bytes() - before < RSS_BYTES_MAX


def test_who_is_lost_takes_back_what_has_not_started(usual: RunningServer) -> None:
    def cancelled() -> float:
        samples = scrape(usual).samples
        return sum(
            sample.value
            for sample in samples
            if sample.name == "tickpath_requests_total" and sample.labels["code"] == "CANCELLED"
        )

    before = cancelled()
    peer = usual.peer()
    peer.send(*map(slow, range(1, 31)), Ping(1))
    while not isinstance(peer.receive(), Pong):  # some may have run already
        pass
    peer.reset()
    with usual.peer() as other:
        other.send(slow(1))
        expect_answers(other, slow(1))
    assert cancelled() > before
    assert in_flight(scrape(usual)) == 0


@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
def test_who_shuts_its_sending_side_still_gets_its_answers(usual: RunningServer, unix: bool) -> None:
    requests = [echo(1), slow(2), slow(3), slow(4)]
    with Peer(usual.connect_unix() if unix else usual.connect()) as peer:
        peer.greet()
        peer.send(*requests)
        peer.socket.shutdown(socket.SHUT_WR)
        expect_answers(peer, *requests)
        assert peer.receive() is None


def test_goodbye_with_requests_in_flight(usual: RunningServer) -> None:
    requests = [slow(number) for number in range(1, 6)]
    with usual.peer() as peer:
        peer.send(*requests, Goodbye("done"))
        expect_answers(peer, *requests)
        assert peer.receive() is None


def test_goodbye_with_nothing_in_flight(usual: RunningServer) -> None:
    with usual.peer() as peer:
        peer.send(echo(1), Goodbye())
        expect_answers(peer, echo(1))
        assert peer.receive() is None


def test_cancel_after_goodbye(usual: RunningServer) -> None:
    """The last one in flight may be one that is taken back: the session ends all the same."""
    with usual.peer() as peer:
        requests = [slow(number) for number in range(1, 21)]
        peer.send(*requests, Goodbye(), Cancel(20), Cancel(19))
        taken_back = gather(peer, *requests)
        assert [(failure.id, failure.code) for failure in taken_back] == [(20, Code.CANCELLED), (19, Code.CANCELLED)]
        assert peer.receive() is None


def test_a_session_goes_on_after_cancel(usual: RunningServer) -> None:
    """Whether it came before the request started or too late, nothing else is affected."""
    with usual.peer() as other, usual.peer() as peer:
        other.send(*map(slow, range(1, 21)), Ping(1))
        assert isinstance(other.receive(), Pong)
        peer.send(slow(1), Cancel(1), echo(2))
        expect_failure(peer, 1, Code.CANCELLED)
        expect_answers(peer, echo(2))
        peer.send(slow(1))
        expect_answers(peer, slow(1))
        expect_answers(other, *map(slow, range(1, 21)))


def test_the_last_answer_is_taken_back_after_goodbye(usual: RunningServer) -> None:
    """Behind another session's requests, so that it has not started."""
    with usual.peer() as other, usual.peer() as peer:
        other.send(*map(slow, range(1, 21)), Ping(1))
        assert isinstance(other.receive(), Pong)
        peer.send(slow(1), Goodbye(), Cancel(1))
        expect_failure(peer, 1, Code.CANCELLED)
        assert peer.receive() is None
        expect_answers(other, *map(slow, range(1, 21)))


def test_what_comes_after_goodbye_does_not_cost_the_answers(usual: RunningServer) -> None:
    """Bytes that nobody reads would become a reset, and take with them what the client has not read."""
    requests = [wide(number) for number in range(1, 9)]
    with usual.peer() as peer:
        peer.send(*requests, Goodbye(), *[Ping(number) for number in range(1, 10_000)])
        expect_answers(peer, *requests)
        assert peer.receive() is None


def test_a_frame_cut_off_with_requests_in_flight(usual: RunningServer) -> None:
    requests = [slow(1), slow(2)]
    with usual.peer() as peer:
        peer.socket.sendall(b"".join(map(peer.frame, requests)) + b"\x10")
        peer.socket.shutdown(socket.SHUT_WR)
        expect_answers(peer, *requests)
        expect_end(peer, Code.BAD_FRAME)


def test_sessions_are_counted(usual: RunningServer) -> None:
    peers = [usual.peer() for _ in range(5)]
    wait_until(lambda: scrape(usual).value("tickpath_sessions") == 7, "five, and the neighbour's two")
    for peer in peers:
        peer.close()
    wait_until(lambda: scrape(usual).value("tickpath_sessions") == 2, "the neighbour's two")
