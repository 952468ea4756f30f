"""Feeds over a pool: a key's feed stays on its server, and moves when that ends, by its last snapshot or from none."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from tests.feed_models import STEPS, Whole, rows, window_model
from tests.serving import RunningServer, serve

from tickpath.client import AsyncPool, Client, ConnectionLostError, Feed, FeedGapError, Pool

DATA = rows(60)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[RunningServer]]:
    with ExitStack() as stack:
        started = []
        for place in range(2):
            folder = tmp_path / f"{place}"
            folder.mkdir()
            (folder / "window.onnx").write_bytes(window_model().SerializeToString())
            model = {"path": str(folder / "window.onnx"), "feed": {"warm_up": "pad"}}
            started.append(stack.enter_context(serve(folder, [model], exit_code=None)))
        yield started


def home_of(servers: list[RunningServer], key: str) -> RunningServer:
    """The server that has this key's feed and more than nothing in it."""
    [home] = [server for server in servers if _next_sequence(server, key) > 1]
    return home


def _next_sequence(server: RunningServer, key: str) -> int:
    with Client(server.address) as client:
        return client.open_feed("window", key).next_sequence


def kill(server: RunningServer) -> None:
    server.process.kill()
    server.process.wait(30)


def tick(feed: Feed, whole: Whole, first: int, end: int) -> None:
    """Rows `first` to `end` of DATA, each answered as the whole window is."""
    for place in range(first, end):
        assert feed.next_sequence == place + 1
        (answer,) = feed.tick(DATA[place]).outputs.values()
        assert answer.tobytes() == whole.answer(DATA, place).tobytes(), place


def go_on(feed: Feed, place: int) -> int:
    """The row with which the feed goes on, after its server has gone."""
    with suppress(ConnectionLostError):  # the tick under which it was noticed: sent once, and never again
        while True:
            try:
                feed.tick(DATA[place])
            except FeedGapError as gap:
                return gap.next_sequence - 1
    return go_on(feed, place)


def test_a_feed_stays_and_then_moves_with_its_last_snapshot(servers: list[RunningServer], tmp_path: Path) -> None:
    whole = Whole(tmp_path / "0" / "window.onnx")
    with Pool([server.address for server in servers]) as pool:
        feed = pool.open_feed("window", "BTC")
        tick(feed, whole, 0, 20)
        feed.snapshot()
        tick(feed, whole, 20, 30)
        kill(home_of(servers, "BTC"))
        assert go_on(feed, 30) == 20
        tick(feed, whole, 20, 60)


def test_a_snapshot_of_now_moves_without_a_gap(servers: list[RunningServer], tmp_path: Path) -> None:
    whole = Whole(tmp_path / "0" / "window.onnx")
    with Pool([server.address for server in servers]) as pool:
        feed = pool.open_feed("window", "BTC")
        tick(feed, whole, 0, 20)
        home = home_of(servers, "BTC")
        feed.resume()  # the look at its home took it over
        feed.snapshot()
        kill(home)
        tick(feed, whole, 20, 40)


def test_without_a_snapshot_it_begins_again(servers: list[RunningServer], tmp_path: Path) -> None:
    whole = Whole(tmp_path / "0" / "window.onnx")
    with Pool([server.address for server in servers]) as pool:
        feed = pool.open_feed("window", "BTC")
        tick(feed, whole, 0, 20)
        feed.snapshot()
        feed.reset()  # what was kept is of a feed that is no more
        tick(feed, whole, 0, 30)
        kill(home_of(servers, "BTC"))
        assert go_on(feed, 30) == 0
        tick(feed, whole, 0, STEPS)


def test_the_awaited_pool_moves_a_feed_too(servers: list[RunningServer], tmp_path: Path) -> None:
    whole = Whole(tmp_path / "0" / "window.onnx")

    async def work() -> None:
        async with AsyncPool([server.address for server in servers], name="python") as pool:
            feed = await pool.open_feed("window", "BTC")
            for place in range(20):
                await feed.tick(DATA[place])
            home = await asyncio.to_thread(home_of, servers, "BTC")
            await feed.resume()
            await feed.snapshot()
            await asyncio.to_thread(kill, home)
            await pool.infer("window", DATA[None, :STEPS])
            (answer,) = (await feed.tick(DATA[20])).outputs.values()
            assert answer.tobytes() == whole.answer(DATA, 20).tobytes()

    asyncio.run(work())


def test_keys_lie_on_both_servers_and_stay_there(servers: list[RunningServer]) -> None:
    keys = [f"key {number}" for number in range(30)]

    def at_home(server: RunningServer) -> set[str]:
        return {key for key in keys if _next_sequence(server, key) > 1}

    with Pool([server.address for server in servers]) as pool:
        for key in keys:
            pool.open_feed("window", key).tick(DATA[0])
    first = [at_home(server) for server in servers]
    assert all(first)
    assert not first[0] & first[1]
    with Pool([server.address for server in reversed(servers)]) as pool:
        assert [pool.open_feed("window", key).next_sequence for key in keys] == [2] * len(keys)
