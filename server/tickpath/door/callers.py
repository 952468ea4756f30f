"""Whoever asks at the door, as the core knows them: each token that comes has a session of its own with the core, which
alone decides who that is, what it may ask and how much.

Rules
- Without `bearer` nobody is asked for a token: all share the door's own session.
- With it, a request's token is passed on, and never kept for longer than its session, nor printed. One that brings none
  goes by the door's own token, where it has one.
- A token that the core does not know opens nothing: few are tried at a time, so that whoever guesses keeps out nobody.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from tickpath.client import UnauthenticatedError
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
        self._trying: dict[str, asyncio.Task[Services]] = {}
        self._room = asyncio.Semaphore(TRIED_MAX)
        self._closing: set[asyncio.Task[None]] = set()

    async def services(self, authorization: str | None) -> Services:
        """What answers a request with this header. Raises UnauthenticatedError, ConnectError and what else the core
        refuses a session with."""
        token = bearer_token(authorization) if self._bearer else ""
        if not token:
            return self._own
        if (known := self._known.pop(token, None)) is not None:
            self._known[token] = known
            return known
        if (trying := self._trying.get(token)) is None:
            trying = self._trying[token] = asyncio.create_task(self._try(token))
            trying.add_done_callback(lambda task: self._tried(token, task))
        return await asyncio.shield(trying)

    async def ready(self) -> None:
        """Whether the core answers. Raises ConnectError."""
        try:
            await self._own.upstream.listing()
        except UnauthenticatedError:
            if not self._bearer:
                raise

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
        except BaseException:
            await services.upstream.close()
            raise
        while len(self._known) >= CALLERS_MAX:
            idle = self._known.pop(next(iter(self._known)))
            closing = asyncio.create_task(idle.upstream.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        self._known[token] = services
        return services


def bearer_token(authorization: str | None) -> str:
    """The token of an Authorization header; empty without one. Raises UnauthenticatedError where it is another kind."""
    if authorization is None:
        return ""
    kind, _, token = authorization.strip().partition(" ")
    if kind.lower() != BEARER or not token.strip():
        raise UnauthenticatedError("expected a header as `Authorization: Bearer TOKEN`; it says something else")
    return token.strip()
