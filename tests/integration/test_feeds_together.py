"""Feeds of one step model that tick at the same instant and step together: each answer is that of its own whole window,
whatever becomes of the feed or its neighbours."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from tests.feed_models import STEPS, Whole, recurrent_model, rows
from tests.integration.test_feeds_live_on import reload, reseeded
from tests.repositories import add_version
from tests.serving import serve

from tickpath.client import AsyncClient, AsyncFeed, FeedGapError
from tickpath.engines.passes import stream

FEEDS = 6
BURSTS = 200
SETTINGS = 'executor = "{executor}"\n[feed]\nwarm_up = "pad"\ntogether = 4\n'


class Followed:
    """A feed, and the rows that it has seen since it began."""

    def __init__(self, number: int, feed: AsyncFeed) -> None:
        self.number = number
        self.feed = feed
        self.data = rows(2 * BURSTS + 2, number)
        self.at = self.first = 0

    async def tick(self, whole: Whole) -> None:
        answer = await self.feed.tick(self.data[self.at])
        expected = whole.answer(self.data[self.first :], self.at - self.first)
        assert answer["y"].tobytes() == expected.tobytes(), (self.number, self.at)
        self.at += 1

    async def disturb(self, client: AsyncClient, what: str) -> None:
        """Something that may befall a feed between ticks."""
        match what:
            case "reset":
                await self.feed.reset()
                self.first = self.at
            case "gap":
                with pytest.raises(FeedGapError):
                    await self.feed.tick(self.data[self.at], sequence=self.feed.next_sequence + 5)
                await self.feed.resume()
            case "restore":
                await self.feed.restore(await self.feed.snapshot())
            case "move":
                snapshot = await self.feed.snapshot()
                await self.feed.close()
                self.feed = await client.open_feed("m", f"feed {self.number}", snapshot=snapshot)


async def _talk(client: AsyncClient, followed: list[Followed], whole: Whole, seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(BURSTS):
        for each in followed:
            if random.random() < 0.03:
                await each.disturb(client, str(random.choice(["reset", "gap", "restore", "move"])))
        some = random.permutation(FEEDS)[: random.integers(1, FEEDS + 1)]
        await asyncio.gather(*(followed[place].tick(whole) for place in some))


@pytest.mark.parametrize("executor", ["inline", "thread", "auto"])
def test_feeds_that_tick_together_answer_as_their_own_windows(tmp_path: Path, executor: str) -> None:
    repository, admin = tmp_path / "models", tmp_path / "admin"
    model = recurrent_model()
    versions = [model, reseeded(model)]
    wholes = []
    for number, each in enumerate(versions):
        path = tmp_path / f"whole{number}.onnx"
        path.write_bytes(each.SerializeToString())
        wholes.append(Whole(path, STEPS))
    add_version(repository, "m", "1", stream(versions[0]).model)
    (repository / "m" / "model.toml").write_text(SETTINGS.format(executor=executor))

    async def talk(address: str) -> None:
        async with AsyncClient(address, name="desk") as client:
            followed = [Followed(number, await client.open_feed("m", f"feed {number}")) for number in range(FEEDS)]
            await _talk(client, followed, wholes[0], seed=1)
            add_version(repository, "m", "2", stream(versions[1]).model)
            await asyncio.to_thread(reload, admin)
            await _talk(client, followed, wholes[1], seed=2)

    with serve(tmp_path, [], repository=str(repository), admin=str(admin)) as server:
        asyncio.run(talk(server.address))
