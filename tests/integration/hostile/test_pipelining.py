"""Many requests at once, and what comes behind them."""

import random

import pytest
from tests.integration.hostile.arena import echo, expect_answers, expect_end, is_answer, slow
from tests.peer import Peer
from tests.serving import RunningServer

from tickpath.wire import Code, Ping, Pong, Result


@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
def test_a_thousand_requests_at_once_are_answered_in_order(usual: RunningServer, unix: bool) -> None:
    requests = [echo(number) for number in range(1, 1001)]
    with Peer(usual.connect_unix() if unix else usual.connect()) as peer:
        peer.greet()
        peer.send(*requests)
        expect_answers(peer, *requests)


def test_requests_in_pieces_that_know_no_frames(usual: RunningServer) -> None:
    chance = random.Random(3)
    requests = [echo(number) for number in range(1, 301)]
    with usual.peer() as peer:
        stream = b"".join(map(peer.frame, requests))
        while stream:
            size = chance.choice([1, 3, 17, 284, 1000, 9000])
            peer.socket.sendall(stream[:size])
            stream = stream[size:]
        expect_answers(peer, *requests)


@pytest.mark.parametrize("garbage", [bytes(4), b"\xff" * 70_000, b"\x05\x00\x00\x00\xc1garbage" * 5_000])
@pytest.mark.parametrize("count", [0, 1, 200])
def test_what_came_before_garbage_is_answered(usual: RunningServer, garbage: bytes, count: int) -> None:
    """All of it, then one Failure, then the end: however much more comes, it takes nothing away."""
    requests = [echo(number) for number in range(1, count + 1)]
    with usual.peer() as peer:
        peer.socket.sendall(b"".join(map(peer.frame, requests)) + garbage)
        expect_answers(peer, *requests)
        expect_end(peer, Code.BAD_MESSAGE if garbage[0] == 5 else Code.BAD_FRAME)


def test_what_is_in_flight_before_garbage_is_answered(usual: RunningServer) -> None:
    requests = [slow(number) for number in range(1, 6)]
    with usual.peer() as peer:
        peer.socket.sendall(b"".join(map(peer.frame, requests)) + bytes(4) + peer.frame(echo(9)))
        expect_answers(peer, *requests)
        expect_end(peer, Code.BAD_FRAME)


def test_the_quick_overtake_the_slow(usual: RunningServer) -> None:
    with usual.peer() as peer:
        peer.send(*map(slow, range(1, 21)), echo(30), Ping(40))
        replies = [peer.receive() for _ in range(22)]
    assert [isinstance(reply, Pong) for reply in replies].index(True) < 21
    assert [is_answer(reply, echo(30)) for reply in replies].index(True) < 20
    assert [reply.id for reply in replies if isinstance(reply, Result) and reply.id < 30] == list(range(1, 21))
