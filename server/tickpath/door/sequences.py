"""Triton's sequences as the core's feeds: the first request of one opens a feed, each is a tick of it, the last closes
it.

Rules
- A sequence is known by model, version and id, to whoever comes by this door: HTTP knows no sessions, so two clients
  that choose one id share it.
- Its requests are ticks in the order in which they come; who sends them does not send one before the last is answered,
  or sends them on one stream.
- A request that the core refuses and does not take leaves the sequence where it was: it may come again. One that was
  taken and refused says so.
- A sequence whose rows or state the core has no more (it was started again, or another door took the id) is over: who
  sends it is told so with each request until he begins anew, since nothing that goes on from nothing may look right.
- A sequence that is never ended is forgotten here as it is in the core, once nothing has come for long.
"""

import asyncio
from contextlib import suppress
from typing import Final

import msgspec

from tickpath.client import (
    BadValueError,
    FeedGapError,
    ForbiddenError,
    OverloadedError,
    Prediction,
    RefusedError,
    TickpathError,
    UnknownModelError,
)
from tickpath.client.aio_feed import AsyncFeed
from tickpath.door.question import Question, SequenceStep, chosen
from tickpath.door.upstream import Upstream

# As many as the core keeps of one session, by default.
SEQUENCES_MAX: Final = 512
# When the core forgets a feed, by default.
IDLE_S: Final = 900.0

Key = tuple[str, str]


class _Open(msgspec.Struct, eq=False):
    """An open sequence. `again`: the number of the tick that was not taken, 0 where there is none: the feed has counted
    it, and the core has not."""

    feed: AsyncFeed
    used_s: float = 0.0
    again: int = 0

    async def tick(self, question: Question) -> tuple[Prediction, list[str]]:
        """The prediction, and the outputs that are asked for. Raises TickpathError."""
        outputs = chosen(question, self.feed.info.outputs)
        number, self.again = self.again or self.feed.next_sequence, 0
        try:
            budget_ns = question.wishes.budget_ns
            return await self.feed.tick(question.arrays, sequence=number, budget_ns=budget_ns), outputs
        except RefusedError as error:
            if error.next_sequence > number:
                raise type(error)(f"{error}; its row is taken: send the next one") from None
            self.again = number
            raise


class Sequences:
    """All that are open, that which has waited longest first."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._open: dict[Key, _Open] = {}

    async def step(self, question: Question, step: SequenceStep) -> tuple[Prediction, list[str]]:
        """One request of a sequence: its prediction, and the outputs that are asked for. Raises TickpathError."""
        key = (question.name, step.id)
        found = await self._begin(question, key) if step.start else self._find(key)
        found.used_s = asyncio.get_running_loop().time()
        self._open[key] = found
        try:
            return await found.tick(question)
        except UnknownModelError:  # it goes with its model
            self._forget(key, found)
            raise
        except (FeedGapError, ForbiddenError):
            await self._give_up(key, found)
            raise FeedGapError(
                f"sequence {key[1][:80]!r} of model {key[0][:80]!r} is lost: the server was started again, its model "
                "has changed, another door has taken it, or two of its requests came at once; begin it anew with "
                "sequence_start"
            ) from None
        finally:
            if step.end:
                await self._give_up(key, found)

    def _forget(self, key: Key, known: _Open) -> bool:
        """Whether it was still this one: another caller may have begun anew under its key meanwhile."""
        if self._open.get(key) is not known:
            return False
        del self._open[key]
        return True

    async def _give_up(self, key: Key, known: _Open) -> None:
        """What has begun anew is the same feed to the core, and stays open."""
        if self._forget(key, known):
            with suppress(TickpathError):
                await known.feed.close()

    def _find(self, key: Key) -> _Open:
        found = self._open.pop(key, None)
        if found is None:
            raise BadValueError(
                f"parameter sequence_id: sequence {key[1][:80]!r} of model {key[0][:80]!r} has not begun, or was given "
                "up: send sequence_start with its first request"
            )
        return found

    async def _begin(self, question: Question, key: Key) -> _Open:
        """A sequence that is open begins anew."""
        if not question.model.feeds:
            raise BadValueError(
                f"parameter sequence_id: model {question.model.name!r} keeps nothing from one request to the next; "
                "send each request whole, or serve it with a feed (docs/CONFIG.md)"
            )
        if self._open.pop(key, None) is None and len(self._open) >= SEQUENCES_MAX:
            self._make_room()
        return _Open(await self._upstream.open_feed(question.name, f"sequence {key[1]}"))

    def _make_room(self) -> None:
        oldest = next(iter(self._open))
        if asyncio.get_running_loop().time() - self._open[oldest].used_s < IDLE_S:
            raise OverloadedError(f"{SEQUENCES_MAX} sequences are open, which is the most: end one with sequence_end")
        del self._open[oldest]
