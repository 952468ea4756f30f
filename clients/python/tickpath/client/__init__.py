"""tickpath's clients: `Client` blocks, `AsyncClient` awaits, and both have the same methods.

    from tickpath.client import Client

    with Client("127.0.0.1:7070") as client:
        prediction = client.infer("mlp", np.zeros((1, 64), np.float32))

Needs msgspec and numpy and nothing else; asyncio is imported only by who uses AsyncClient.
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
else:

    def __getattr__(name):
        if name != "AsyncClient":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from tickpath.client.aio import AsyncClient

        return AsyncClient

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = [
    "AddressError",
    "AsyncClient",
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
    "InternalError",
    "NotReadyError",
    "OverloadedError",
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
