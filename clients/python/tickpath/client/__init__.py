"""tickpath's clients: `Client` blocks, `AsyncClient` awaits, and both have the same methods.

    from tickpath.client import Client

    with Client("127.0.0.1:7070") as client:
        prediction = client.infer("mlp", np.zeros((1, 64), np.float32))

`Pool` and `AsyncPool` are the same over several servers of the same models.

Needs msgspec and numpy and nothing else; asyncio is imported only by who uses AsyncClient or AsyncPool.
"""

from typing import TYPE_CHECKING

from tickpath.client.blocking import Client
from tickpath.client.blocking_feed import Feed
from tickpath.client.errors import (
    AddressError,
    BadDtypeError,
    BadFrameError,
    BadMessageError,
    BadShapeError,
    BadValueError,
    CancelledError,
    ConnectError,
    ConnectionLostError,
    CredentialsError,
    DeadlineError,
    EngineFailedError,
    FeedGapError,
    ForbiddenError,
    InternalError,
    NotReadyError,
    OverloadedError,
    ProtocolError,
    RefusedError,
    RequestTimeoutError,
    SupersededError,
    TickpathError,
    UnauthenticatedError,
    UnknownModelError,
)
from tickpath.client.prediction import Prediction
from tickpath.client.reconnect import Reconnect
from tickpath.client.tls import Tls
from tickpath.client.token import token_file
from tickpath.wire import Flag

if TYPE_CHECKING:
    from tickpath.client.aio import AsyncClient
    from tickpath.client.aio_feed import AsyncFeed
    from tickpath.client.pool.aio import AsyncPool
    from tickpath.client.pool.blocking import Pool
    from tickpath.client.pool.options import Health, Hedge
else:
    # Imported when they are first asked for: most programs need few of them.
    _HOMES = {
        "AsyncClient": "tickpath.client.aio",
        "AsyncFeed": "tickpath.client.aio_feed",
        "AsyncPool": "tickpath.client.pool.aio",
        "Health": "tickpath.client.pool.options",
        "Hedge": "tickpath.client.pool.options",
        "Pool": "tickpath.client.pool.blocking",
    }

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = [
    "AddressError",
    "AsyncClient",
    "AsyncFeed",
    "AsyncPool",
    "BadDtypeError",
    "BadFrameError",
    "BadMessageError",
    "BadShapeError",
    "BadValueError",
    "CancelledError",
    "Client",
    "ConnectError",
    "ConnectionLostError",
    "CredentialsError",
    "DeadlineError",
    "EngineFailedError",
    "Feed",
    "FeedGapError",
    "Flag",
    "ForbiddenError",
    "Health",
    "Hedge",
    "InternalError",
    "NotReadyError",
    "OverloadedError",
    "Pool",
    "Prediction",
    "ProtocolError",
    "Reconnect",
    "RefusedError",
    "RequestTimeoutError",
    "SupersededError",
    "TickpathError",
    "Tls",
    "UnauthenticatedError",
    "UnknownModelError",
    "token_file",
]
