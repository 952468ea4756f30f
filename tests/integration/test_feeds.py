"""Feeds behind a real server: every answer is what onnxruntime gives for the whole window, or for the state that the
last tick left, bit for bit; and what is refused is refused with what comes next."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.feed_models import (
    FEATURES,
    STEPS,
    Floats,
    Whole,
    recurrent_model,
    rows,
    state_model,
    step_model,
    time_last_model,
    window_model,
)
from tests.integration.observer.observing import Scrape, get
from tests.reference import reference_session
from tests.serving import RunningServer, serve
from tests.unit.client.callers import LOOPS

from tickpath.client import (
    AsyncClient,
    BadShapeError,
    BadValueError,
    Client,
    Feed,
    FeedGapError,
    ForbiddenError,
    NotReadyError,
    OverloadedError,
    Prediction,
)
from tickpath.console.scrape import fetch
from tickpath.observe.schema import Status
from tickpath.server.feed import SEQUENCE_MAX, Snapshot

TICKS = 300
FILES = {"window": "window", "exact": "recurrent"}
STATE = {"state": {"state": "state_out"}}


def entries(folder: Path, executor: str) -> list[dict[str, Any]]:
    """Every kind of feed, on this executor."""
    made = {
        "window": window_model(),
        "time_last": time_last_model(),
        "state": state_model(),
        "recurrent": recurrent_model(),
        "step": step_model(),
    }
    for name, model in made.items():
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString())

    def entry(name: str, file: str, **feed: object) -> dict[str, Any]:
        made = {"path": str(folder / f"{file}.onnx"), "name": name, "executor": executor}
        return made | ({"feed": feed} if feed else {})

    return [
        entry("window", "window"),
        entry("padded", "window", warm_up="pad"),
        entry("time_last", "time_last", axis=2),
        entry("state", "state", **STATE),
        entry("recurrent", "recurrent"),
        entry("exact", "step"),
        entry("exact_padded", "step", warm_up="pad"),
        entry("carry", "step", mode="carry"),
    ]


@pytest.fixture(scope="module", params=["inline", "thread"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("feeds")
    with serve(folder, entries(folder, request.param), feeds_per_session_max=12, observer_port=0) as server:
        yield server


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with Client(server.address, name="desk") as client:
        yield client


def whole_of(server: RunningServer, file: str, axis: int = 1) -> Whole:
    return Whole(server.log.parent / f"{file}.onnx", axis=axis)


def answer_bytes(prediction: Prediction) -> bytes:
    (answer,) = prediction.outputs.values()
    return answer.tobytes()


def answers(feed: Feed, data: Floats) -> list[bytes | None]:
    """The feed's answers one by one, None for a tick of its warm-up, which it has taken."""
    got: list[bytes | None] = []
    for row in data:
        try:
            got.append(answer_bytes(feed.tick(row)))
        except NotReadyError as error:
            got += [None] * (error.next_sequence == feed.next_sequence)
    return got


def assert_answers(got: list[bytes | None], whole: Whole, data: Floats, first: int = STEPS - 1) -> None:
    assert [answer is None for answer in got] == [place < first for place in range(len(data))]
    for place, answer in enumerate(got):
        if answer is not None:
            assert answer == whole.answer(data, place).tobytes(), place


@pytest.mark.parametrize(
    ("name", "file", "axis", "first"),
    [
        ("window", "window", 1, STEPS - 1),
        ("padded", "window", 1, 0),
        ("time_last", "time_last", 2, STEPS - 1),
        ("recurrent", "recurrent", 1, STEPS - 1),
        ("exact", "recurrent", 1, STEPS - 1),
        ("exact_padded", "recurrent", 1, 0),
    ],
)
def test_a_window_answers_as_the_whole_window(
    server: RunningServer, client: Client, name: str, file: str, axis: int, first: int
) -> None:
    data = rows(TICKS)
    with client.open_feed(name, "one") as feed:
        assert (feed.info.window, feed.info.filled, feed.next_sequence) == (STEPS, 0, 1)
        assert_answers(answers(feed, data), whole_of(server, file, axis), data, first)


@pytest.mark.parametrize("name", ["window", "exact", "carry", "state"])
def test_feeds_of_one_model_do_not_touch_each_other(client: Client, name: str) -> None:
    data = [rows(40, seed) for seed in range(4)]
    feeds = [client.open_feed(name, f"mixed {seed}") for seed in range(4)]
    mixed: list[list[bytes | None]] = [[] for _ in feeds]
    for tick in np.random.default_rng(0).permutation(np.repeat(np.arange(4), 40)):
        mixed[tick] += answers(feeds[tick], data[tick][len(mixed[tick]) :][:1])
    for feed, each, got in zip(feeds, data, mixed, strict=True):
        feed.reset()
        assert answers(feed, each) == got
        feed.close()


def test_a_state_runs_on_as_the_model_says(server: RunningServer, client: Client) -> None:
    session = reference_session(server.log.parent / "state.onnx")
    state = np.zeros((1, 1, 5), np.float32)
    with client.open_feed("state", "one") as feed:
        assert [tensor.name for tensor in feed.info.outputs] == ["predictions"]
        for row in rows(TICKS):
            expected, state = session.run(None, {"data": row.reshape(1, 1, -1), "state": state})
            assert feed.tick(row)["predictions"].tobytes() == expected.tobytes()


def test_carry_begins_with_zeros_and_then_knows_more_than_a_window(server: RunningServer, client: Client) -> None:
    data = rows(2 * STEPS)
    with client.open_feed("carry", "one") as feed:
        got = answers(feed, data)
    whole = whole_of(server, "recurrent")
    at = STEPS - 1
    assert got[at] == whole.answer(data, at).tobytes()
    assert got[-1] != whole.answer(data, len(data) - 1).tobytes()


@pytest.mark.parametrize("name", ["window", "exact", "state", "carry"])
def test_pipelined_ticks_answer_as_single_ones(client: Client, name: str) -> None:
    data = rows(200)
    with client.open_feed(name, "piped") as feed:
        one_by_one = answers(feed, data)
        feed.reset()
        piped = feed.tick_many(data, in_flight=16)
    for one, other in zip(one_by_one, piped, strict=True):
        if one is None:
            assert isinstance(other, NotReadyError)
        else:
            assert isinstance(other, Prediction)
            assert one == answer_bytes(other)


@pytest.mark.parametrize("name", ["window", "exact", "state", "carry"])
def test_gaps_and_repeats_are_refused_and_nothing_is_lost(client: Client, name: str) -> None:
    data = rows(30)
    with client.open_feed(name, "gaps") as feed:
        expected = answers(feed, data)
        feed.reset()
        assert answers(feed, data[:20]) == expected[:20]
        for wrong in (0, 19, 22, 2**63):
            with pytest.raises(FeedGapError, match="tick 21 is next") as refused:
                feed.tick(data[20], sequence=wrong)
            assert refused.value.next_sequence == 21
        with pytest.raises(BadShapeError):
            feed.tick(data[20][:2], sequence=21)
        with pytest.raises(BadValueError, match="which would stay in feed") as nan:
            feed.tick(np.full(FEATURES, np.nan, np.float32), sequence=21)
        assert nan.value.next_sequence == 21
        assert answer_bytes(feed.tick(data[20], sequence=21)) == expected[20]


@pytest.mark.parametrize("name", ["window", "time_last", "exact", "state", "carry"])
def test_a_snapshot_goes_on_elsewhere(client: Client, server: RunningServer, name: str) -> None:
    data = rows(60)
    with client.open_feed(name, "from") as feed:
        answers(feed, data[:25])
        snapshot = feed.snapshot()
        expected = answers(feed, data[25:])
    with Client(server.address, name="another desk") as other, other.open_feed(name, "to", snapshot=snapshot) as feed:
        assert feed.next_sequence == 26
        got = answers(feed, data[25:])
    assert got == expected


@pytest.mark.parametrize(("name", "to"), [("recurrent", "exact"), ("exact", "recurrent")])
def test_a_snapshot_of_rows_fits_a_window_and_its_steps(
    client: Client, server: RunningServer, name: str, to: str
) -> None:
    data = rows(40)
    with client.open_feed(name, "rows") as feed, client.open_feed(to, "rows") as other:
        got = answers(feed, data[:20])
        other.restore(feed.snapshot())
        assert_answers(got + answers(other, data[20:]), whole_of(server, "recurrent"), data)


def test_a_snapshot_that_does_not_fit_changes_nothing(client: Client) -> None:
    with client.open_feed("window", "whole") as feed, client.open_feed("state", "other") as other:
        answers(feed, rows(8))
        for snapshot in (b"", b"\x96\x01", other.snapshot(), feed.snapshot()[:-1]):
            with pytest.raises(BadValueError, match="snapshot"):
                feed.restore(snapshot)
        feed.resume()
        assert (feed.next_sequence, feed.info.filled) == (9, STEPS)


@pytest.mark.parametrize("name", ["window", "exact", "state", "carry"])
def test_numbers_go_on_from_the_largest_that_a_snapshot_may_name(client: Client, name: str) -> None:
    data = rows(12)
    with client.open_feed(name, "numbers") as feed:
        answers(feed, data[:8])
        snapshot, expected = feed.snapshot(), answers(feed, data[8:])
        for number in (0, SEQUENCE_MAX + 1, 2**64 - 1):
            with pytest.raises(BadValueError, match=f"its next tick can be 1 to {SEQUENCE_MAX}, {number} came"):
                feed.restore(renumbered(snapshot, number))
        feed.restore(renumbered(snapshot, SEQUENCE_MAX))
        assert answers(feed, data[8:]) == expected
        assert feed.next_sequence == SEQUENCE_MAX + 4


def renumbered(snapshot: bytes, next_sequence: int) -> bytes:
    """As somebody else might write it."""
    told = msgspec.msgpack.decode(snapshot, type=Snapshot)
    return msgspec.msgpack.encode(msgspec.structs.replace(told, next_sequence=next_sequence))


def test_a_client_of_the_same_name_takes_its_feed_over(server: RunningServer, client: Client) -> None:
    data = rows(20)
    feed = client.open_feed("window", "mine")
    expected = answers(feed, data[:10])
    with Client(server.address, name="stranger") as stranger, pytest.raises(ForbiddenError, match="another client"):
        stranger.open_feed("window", "mine")
    with Client(server.address, name="desk") as again:
        taken = again.open_feed("window", "mine")
        assert (taken.next_sequence, taken.info.filled) == (11, STEPS)
        with pytest.raises(ForbiddenError, match="not this session's"):
            feed.tick(data[10])
        expected += answers(taken, data[10:])
        assert_answers(expected, whole_of(server, "window"), data)
        taken.close()


def test_a_client_that_reconnects_goes_on(server: RunningServer, client: Client) -> None:
    data = rows(20)
    feed = client.open_feed("exact", "lost")
    got = answers(feed, data[:10])
    client.close()
    client.connect()
    got += answers(feed, data[10:])
    assert_answers(got, whole_of(server, "recurrent"), data)
    feed.close()


def test_a_session_has_so_many_feeds(client: Client) -> None:
    feeds = [client.open_feed("window", f"many {number}") for number in range(12)]
    with pytest.raises(OverloadedError, match="feeds_per_session_max"):
        client.open_feed("window", "one more")
    for feed in feeds:
        feed.close()
    client.open_feed("window", "one more").close()


def test_feeds_count_for_whoever_has_them(server: RunningServer, client: Client) -> None:
    keys = [f"count {number}" for number in range(12)]
    for key in keys:
        client.open_feed("window", key)
    with Client(server.address, name="desk") as again:
        for key in keys:
            again.open_feed("window", key)
        with pytest.raises(OverloadedError, match="feeds_per_session_max"):
            again.open_feed("window", "one more")
        for feed in [client.open_feed("window", f"more {number}") for number in range(12)]:
            feed.close()
    for key in keys:
        client.open_feed("window", key).close()
    client.open_feed("window", "one more").close()


def test_what_was_closed_is_gone(client: Client) -> None:
    feed = client.open_feed("window", "closed")
    number = feed.info.feed
    feed.close()
    feed = client.open_feed("window", "closed")
    assert (feed.info.feed > number, feed.next_sequence) == (True, 1)
    feed.close()


@pytest.mark.parametrize("loop", LOOPS)
def test_tasks_share_a_feed(server: RunningServer, loop: str) -> None:
    data, whole = rows(100), whole_of(server, "window")

    async def talk() -> None:
        async with (
            AsyncClient(server.address, name=f"tasks on {loop}") as client,
            await client.open_feed("padded", f"shared on {loop}") as feed,
        ):
            got = await asyncio.gather(*(feed.tick(row) for row in data[:16]))
            got += [await feed.tick(row) for row in data[16:]]
            for place, answer in enumerate(got):
                assert answer["y"].tobytes() == whole.answer(data, place).tobytes()
            snapshot = await feed.snapshot()
            await feed.reset()
            many = await feed.tick_many(data)
            assert [answer_bytes(each) for each in many if isinstance(each, Prediction)] == list(map(answer_bytes, got))
            assert await feed.snapshot() == snapshot
            await feed.restore(snapshot)
            assert feed.next_sequence == 101

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(talk())


@pytest.mark.parametrize("name", ["window", "exact"])
def test_the_warm_up_of_a_feed_is_counted_and_no_error(server: RunningServer, client: Client, name: str) -> None:
    def counts() -> tuple[int, int, int]:
        """(ticks of warm-up, all that ended NOT_READY, errors)"""
        client.ping()
        assert server.ready.observer is not None
        status = msgspec.json.decode(get(f"{server.ready.observer}/status.json")[1], type=Status)
        (model,) = (model for model in status.models if model.name == name)
        return model.warm_up, model.codes.get("NOT_READY", 0), model.errors

    before = counts()
    with client.open_feed(name, "warming") as feed:
        assert_answers(answers(feed, rows(TICKS)), whole_of(server, FILES[name]), rows(TICKS))
        warmed = (before[0] + STEPS - 1, before[1] + STEPS - 1, before[2])
        assert counts() == warmed
        with pytest.raises(FeedGapError):
            feed.tick(rows(1)[0], sequence=1)
        assert counts() == (*warmed[:2], warmed[2] + 1)


def test_feeds_are_counted(server: RunningServer, client: Client) -> None:
    def value(name: str) -> float:
        client.ping()
        assert server.ready.observer is not None
        return Scrape("\n".join(fetch(server.ready.observer))).value(name)

    before = value("tickpath_feeds"), value("tickpath_feed_gaps_total")
    feed = client.open_feed("window", "counted")
    with pytest.raises(FeedGapError):
        feed.tick(rows(1)[0], sequence=5)
    assert (value("tickpath_feeds"), value("tickpath_feed_gaps_total")) == (before[0] + 1, before[1] + 1)
    feed.close()
    assert value("tickpath_feeds") == before[0]
    assert value("tickpath_feeds_expired_total") == 0
