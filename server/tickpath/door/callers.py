"""Whoever asks at the door, as the core knows them: each token that comes has a session of its own with the core, which
alone decides who that is, what it may ask and how much.

Rules
- Without `bearer` nobody is asked for a token: all share the door's own session.
- With it, a request's token is passed on, and never kept for longer than its session, nor printed. One that brings none
  goes by the door's own token, where it has one.
- A token that the core does not know opens nothing: few are tried at a time, so that whoever guesses keeps out nobody.
- A session with a request in flight is never closed for another's sake: where all have one, a new token is refused.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from tickpath.client import ConnectError, OverloadedError, UnauthenticatedError
from tickpath.door.services import Services

# Sessions of callers that are kept: the core has 1024 by default, and the one that was idle for longest makes room.
CALLERS_MAX: Final = 64
# Tokens that are tried at once. The core answers one that is right within a millisecond.
TRIED_MAX: Final = 8
BEARER: Final = "bearer"


class Callers:
    """Of one door. `make`: what answers from a session with this token; empty: the door's own."""

    def __init__(self, make: Callable[[str], Services], bearer: bool) -> None:
        self._make = make
        self._bearer = bearer
        self._own = make("")
        self._known: dict[str, Services] = {}  # by token, the one that asked last at the end
        self._in_flight: Counter[str] = Counter()  # requests, by token
        self._trying: dict[str, asyncio.Task[Services]] = {}
        self._room = asyncio.Semaphore(TRIED_MAX)
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serving(self, authorization: str | None) -> AsyncIterator[Services]:
        """What answers a request with this header, until the end of the block. Raises UnauthenticatedError,
        ConnectError, OverloadedError and what else the core refuses a session with."""
        token = bearer_token(authorization) if self._bearer else ""
        if not token:
            yield self._own
            return
        self._in_flight[token] += 1
        try:
            yield await self._services(token)
        finally:
            self._in_flight[token] -= 1
            if not self._in_flight[token]:
                del self._in_flight[token]

    async def _services(self, token: str) -> Services:
        if (known := self._known.pop(token, None)) is not None:
            self._known[token] = known
            return known
        if (trying := self._trying.get(token)) is None:
            trying = self._trying[token] = asyncio.create_task(self._try(token))
            trying.add_done_callback(lambda task: self._tried(token, task))
        return await asyncio.shield(trying)

    async def ready(self) -> None:
        """Whether the core answers those who come. Raises ConnectError, whoever asks."""
        try:
            await self._own.upstream.listing()
        except UnauthenticatedError as error:
            if not self._bearer:
                raise ConnectError(f"the server does not take the door's own token: {error}") from None

    async def close(self) -> None:
        """Give up what is in flight."""
        for task in self._trying.values():
            task.cancel()
        for services in (self._own, *self._known.values()):
            await services.upstream.close()

    def _tried(self, token: str, task: asyncio.Task[Services]) -> None:
        self._trying.pop(token, None)
        if not task.cancelled():
            task.exception()  # whoever asked has it, or has left

    async def _try(self, token: str) -> Services:
        services = self._make(token)
        try:
            async with self._room:
                await services.upstream.listing()
            self._make_room()
        except BaseException:
            await services.upstream.close()
            raise
        self._known[token] = services
        return services

    def _make_room(self) -> None:
        while len(self._known) >= CALLERS_MAX:
            idle = next((token for token in self._known if token not in self._in_flight), None)
            if idle is None:
                raise OverloadedError(f"{CALLERS_MAX} tokens have requests in flight here, as many as may: come again")
            closing = asyncio.create_task(self._known.pop(idle).upstream.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


def bearer_token(authorization: str | None) -> str:
    """The token of an Authorization header; empty without one. Raises UnauthenticatedError where it is another kind."""
    if authorization is None:
        return ""
    kind, _, token = authorization.strip().partition(" ")
    if kind.lower() != BEARER or not token.strip():
        raise UnauthenticatedError("expected a header as `Authorization: Bearer TOKEN`; it says something else")
    return token.strip()
