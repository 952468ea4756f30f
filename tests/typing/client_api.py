"""Every public name of tickpath.client as its users' type checkers see it: read by mypy and pyright, never run.

It stands for a user's program: what is wrong here would be wrong there.
"""

from collections.abc import Sequence
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import tickpath.client as api
from tickpath.wire import Code, FeedOpened, Limits, ModelInfo

X = np.zeros((1, 64), np.float32)


def blocking() -> None:
    with api.Client("127.0.0.1:7070", name="desk", token="t", timeout_s=1.0, reconnect=None) as client:
        assert_type(client, api.Client)
        assert_type(client.connect(), None)
        assert_type(client.limits, Limits)
        assert_type(client.server, str)
        assert_type(client.models(versions=True, timeout_s=1), tuple[ModelInfo, ...])
        assert_type(client.model("mlp", timeout_s=1), ModelInfo)
        assert_type(client.ping(timeout_s=1), int)
        assert_type(client.infer("mlp", X), api.Prediction)
        assert_type(
            client.infer("mlp", {"x": X}, rows=1, budget_ns=1, event_time_ns=1, priority=1, key=1, timeout_s=1),
            api.Prediction,
        )
        assert_type(
            client.infer_many(
                "mlp", (X for _ in range(3)), in_flight=2, rows=1, budget_ns=1, event_time_ns=1, priority=1, timeout_s=1
            ),
            list[api.Prediction | api.RefusedError],
        )
        assert_type(client.open_feed("deeplob", "BTC", anew=True, snapshot=b"", timeout_s=1), api.Feed)
        assert_type(client.close(), None)


async def awaited() -> None:
    async with api.AsyncClient(("::1", 7070), reconnect=api.Reconnect(wait_s_first=0.1, wait_s_max=2)) as client:
        assert_type(client, api.AsyncClient)
        assert_type(await client.connect(), None)
        assert_type(client.limits, Limits)
        assert_type(client.server, str)
        assert_type(await client.models(versions=True), tuple[ModelInfo, ...])
        assert_type(await client.model("mlp"), ModelInfo)
        assert_type(await client.ping(), int)
        assert_type(await client.infer("mlp", [X, None], rows=1, key=1), api.Prediction)
        assert_type(
            await client.infer_many("mlp", [X], rows=1, event_time_ns=1, priority=1),
            list[api.Prediction | api.RefusedError],
        )
        assert_type(await client.open_feed("deeplob", "BTC"), api.AsyncFeed)
        assert_type(await client.close(), None)


def feed(feed: api.Feed) -> None:
    with feed as same:
        assert_type(same, api.Feed)
        assert_type(feed.info, FeedOpened)
        assert_type(feed.next_sequence, int)
        assert_type(feed.tick(X, sequence=1, budget_ns=1, event_time_ns=1, timeout_s=1), api.Prediction)
        assert_type(feed.tick_many([X], in_flight=1), list[api.Prediction | api.RefusedError])
        assert_type(feed.snapshot(), bytes)
        assert_type(feed.restore(b""), None)
        assert_type(feed.reset(), None)
        assert_type(feed.resume(), None)
        assert_type(feed.close(), None)


async def awaited_feed(feed: api.AsyncFeed) -> None:
    async with feed as same:
        assert_type(same, api.AsyncFeed)
        assert_type(feed.info, FeedOpened)
        assert_type(feed.next_sequence, int)
        assert_type(await feed.tick(X, sequence=1), api.Prediction)
        assert_type(await feed.tick_many([X]), list[api.Prediction | api.RefusedError])
        assert_type(await feed.snapshot(), bytes)
        assert_type(await feed.restore(b""), None)
        assert_type(await feed.reset(), None)
        assert_type(await feed.resume(), None)
        assert_type(await feed.close(), None)


def pool(addresses: Sequence[str]) -> None:
    hedge = api.Hedge(percentile=99, share_max=0.01)
    health = api.Health(ping_after_s=1, pong_s_max=1)
    with api.Pool(
        addresses, name="desk", token="t", timeout_s=1, hedge=hedge, health=health, reconnect=api.Reconnect()
    ) as pool:
        assert_type(pool, api.Pool)
        assert_type(pool.connect(), None)
        assert_type(pool.model("mlp"), ModelInfo)
        assert_type(pool.infer("mlp", X, rows=1, budget_ns=1, key=1, timeout_s=1), api.Prediction)
        assert_type(
            pool.infer_many("mlp", [X], rows=1, event_time_ns=1, priority=1), list[api.Prediction | api.RefusedError]
        )
        assert_type(pool.open_feed("deeplob", "BTC", snapshot=b""), api.Feed)
        assert_type([server.ready for server in pool.servers], list[bool])
        assert_type([server.address for server in pool.servers], list[str])
        assert_type(pool.close(), None)


async def awaited_pool() -> None:
    async with api.AsyncPool([("10.0.0.1", 7070), "10.0.0.2:7070"], hedge=None) as pool:
        assert_type(pool, api.AsyncPool)
        assert_type(await pool.connect(), None)
        assert_type(await pool.model("mlp"), ModelInfo)
        assert_type(await pool.infer("mlp", X), api.Prediction)
        assert_type(
            await pool.infer_many("mlp", [X], rows=1, event_time_ns=1, priority=1),
            list[api.Prediction | api.RefusedError],
        )
        assert_type(await pool.open_feed("deeplob", "BTC"), api.AsyncFeed)
        assert_type([server.in_flight for server in pool.servers], list[int])
        assert_type(await pool.close(), None)


def prediction(prediction: api.Prediction) -> None:
    assert_type(prediction.outputs, dict[str, npt.NDArray[Any]])
    assert_type(prediction["y"], npt.NDArray[Any])
    assert_type(prediction.version, str)
    assert_type(prediction.stamps, tuple[int, int, int, int, int, int])
    assert_type(prediction.stages, dict[str, int])
    assert_type(prediction.server_ns, int)
    assert_type(prediction.flags, api.Flag)
    assert_type(prediction.age_ns, int)


def errors(error: api.RefusedError) -> None:
    assert_type(error.code, Code)
    assert_type(error.next_sequence, int)


REFUSALS: list[type[api.RefusedError]] = [
    api.BadDtypeError,
    api.BadFrameError,
    api.BadMessageError,
    api.BadShapeError,
    api.BadValueError,
    api.CancelledError,
    api.DeadlineError,
    api.EngineFailedError,
    api.FeedGapError,
    api.ForbiddenError,
    api.InternalError,
    api.NotReadyError,
    api.OverloadedError,
    api.SupersededError,
    api.UnauthenticatedError,
    api.UnknownModelError,
]
OTHERS: list[type[api.TickpathError]] = [
    api.AddressError,
    api.ConnectError,
    api.ConnectionLostError,
    api.ProtocolError,
    api.RequestTimeoutError,
    *REFUSALS,
]
