"""What is asked of a feed as a whole while its ticks are under way: each is answered once, behind the ticks that were
sent before it, whatever was asked of the feed meanwhile."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import onnx
import pytest
from tests.feed_models import STEPS, Whole, recurrent_model, rows, step_model, window_model
from tests.peer import Peer
from tests.serving import RunningServer, serve

from tickpath.wire import (
    ClientMessage,
    CloseFeed,
    Code,
    Failure,
    FeedClosed,
    FeedOpened,
    FeedSnapshot,
    Goodbye,
    OpenFeed,
    Ping,
    Pong,
    Result,
    ServerMessage,
    SnapshotFeed,
    Tick,
)

WINDOW, STEP = range(2)
TICKS = 16
IN_FLIGHT_MAX = 24
OPEN, CLOSE, COPY = "open", "close", "copy"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("talk")
    made = {"window": window_model(), "step": step_model()}
    for name, model in made.items():
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    models = [{"path": str(folder / f"{name}.onnx"), "executor": "thread"} for name in made]
    with serve(folder, models, in_flight_max=IN_FLIGHT_MAX) as server:
        yield server
    assert "Traceback" not in server.log.read_text()


@pytest.fixture
def peer(server: RunningServer) -> Iterator[Peer]:
    with server.peer() as peer:
        yield peer


def opened(peer: Peer, handle: int, key: str) -> FeedOpened:
    peer.send(OpenFeed(1, handle, key, True))
    answer = peer.receive()
    assert isinstance(answer, FeedOpened)
    return answer


def ticks(feed: FeedOpened) -> list[Tick]:
    """Of ids 1 to TICKS. The last of them have answers."""
    return [
        Tick(place + 1, feed.feed, feed.next_sequence + place, [memoryview(row.tobytes())])
        for place, row in enumerate(rows(TICKS))
    ]


def asked(what: Sequence[str], handle: int, key: str, feed: int) -> list[ClientMessage]:
    """These of one feed, of ids from 100."""
    made: list[ClientMessage] = []
    for request_id, each in enumerate(what, 100):
        if each == OPEN:
            made.append(OpenFeed(request_id, handle, key))
        else:
            made.append(CloseFeed(request_id, feed) if each == CLOSE else SnapshotFeed(request_id, feed))
    return made


def received(peer: Peer, count: int) -> list[ServerMessage]:
    got = [peer.receive() for _ in range(count)]
    assert None not in got
    return [message for message in got if message is not None and not isinstance(message, Pong)]


@pytest.mark.parametrize("handle", [WINDOW, STEP])
@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ((CLOSE, CLOSE), (FeedClosed, Code.FEED_GAP)),
        ((CLOSE, COPY), (FeedClosed, Code.FEED_GAP)),
        ((COPY, CLOSE), (FeedSnapshot, FeedClosed)),
        ((CLOSE, OPEN), (FeedClosed, FeedOpened)),
        ((OPEN, CLOSE), (FeedOpened, FeedClosed)),
        ((CLOSE, OPEN, CLOSE, OPEN), (FeedClosed, FeedOpened, Code.FEED_GAP, FeedOpened)),
    ],
)
def test_each_is_answered_once_behind_the_ticks_before_it(
    peer: Peer, handle: int, what: Sequence[str], expected: Sequence[type | Code]
) -> None:
    key = f"{handle} {what}"
    feed = opened(peer, handle, key)
    peer.send(*ticks(feed), *asked(what, handle, key, feed.feed), Ping(1000))
    got = received(peer, TICKS + len(what) + 1)
    assert [answer.id for answer in got if hasattr(answer, "id")] == [
        *range(1, TICKS + 1),
        *range(100, 100 + len(what)),
    ]
    told = [answer.code if isinstance(answer, Failure) else type(answer) for answer in got[TICKS:]]
    assert told == list(expected)
    assert all(isinstance(answer, Result) for answer in got[STEPS - 1 : TICKS])


@pytest.mark.parametrize(("handle", "model"), [(WINDOW, window_model), (STEP, recurrent_model)])
def test_ticks_that_pass_others_answer_to_their_own_rows(
    peer: Peer, tmp_path: Path, handle: int, model: Callable[[], onnx.ModelProto]
) -> None:
    """The later one is the stricter, so over a plain window it may be first."""
    (tmp_path / "whole.onnx").write_bytes(model().SerializeToString())
    whole, data = Whole(tmp_path / "whole.onnx"), rows(TICKS)
    feed = opened(peer, handle, "passing")
    asked = [msgspec.structs.replace(tick, priority=(TICKS - tick.id) // 4) for tick in ticks(feed)]
    peer.send(*asked)
    got = received(peer, TICKS)
    assert sorted(answer.id for answer in got if isinstance(answer, Result | Failure)) == list(range(1, TICKS + 1))
    for answer in got:
        if isinstance(answer, Result):
            assert bytes(answer.outputs[0]) == whole.answer(data, answer.id - 1).tobytes()
    assert sum(isinstance(answer, Result) for answer in got) == TICKS - STEPS + 1
    peer.send(CloseFeed(1, feed.feed))
    assert isinstance(peer.receive(), FeedClosed)


def test_a_feed_that_was_closed_is_opened_anew(peer: Peer) -> None:
    feed = opened(peer, WINDOW, "anew")
    peer.send(*ticks(feed), *asked((CLOSE, OPEN), WINDOW, "anew", feed.feed))
    *_, anew = received(peer, TICKS + 2)
    assert isinstance(anew, FeedOpened)
    assert (anew.next_sequence, anew.filled) == (1, 0)
    assert anew.feed != feed.feed


def test_so_many_may_wait_and_no_more(peer: Peer) -> None:
    """Each keeps a copy of its snapshot until its turn comes."""
    feed = opened(peer, STEP, "many")
    more = 3
    peer.send(*ticks(feed), *asked([OPEN] * (IN_FLIGHT_MAX + more), STEP, "many", feed.feed))
    got = received(peer, TICKS + IN_FLIGHT_MAX + more)
    refused = [answer for answer in got if isinstance(answer, Failure) and answer.id >= 100]
    assert len([answer for answer in got if isinstance(answer, FeedOpened)]) >= IN_FLIGHT_MAX
    assert {answer.code for answer in refused} <= {Code.OVERLOADED}
    peer.send(*asked([OPEN, CLOSE], STEP, "many", feed.feed))
    assert [type(answer) for answer in received(peer, 2)] == [FeedOpened, FeedClosed]


def test_who_leaves_is_answered_first(server: RunningServer, peer: Peer) -> None:
    """Even where it waits for the ticks of another session."""
    feed = opened(peer, STEP, "taken over")
    with server.peer() as other:
        peer.send(*ticks(feed))
        other.send(OpenFeed(1, STEP, "taken over"), Goodbye(""))
        assert isinstance(other.receive(), FeedOpened)
        assert other.receive() is None
    assert len(received(peer, TICKS)) == TICKS


def test_what_the_window_holds_is_told_as_it_was_at_that_tick(peer: Peer) -> None:
    feed = opened(peer, STEP, "told")
    peer.send(*ticks(feed))
    told = [answer.message for answer in received(peer, TICKS) if isinstance(answer, Failure)]
    assert [f"holds {place} of {STEPS} rows" in text for place, text in enumerate(told, 1)] == [True] * (STEPS - 1)
