"""The core, as the door sees it: one session, opened when it is needed, and what it served when it was last asked.

Theory of operation
- A request for a model that is known goes straight to the core, whatever the list's age: a handle that leads nowhere
  any more is refused there and then the list is asked for anew.
- All else (health, metadata, names that are not known) is answered from a list that is at most FRESH_S old, so that a
  flood of it costs the core two short messages in FRESH_S.
- A connection is opened in one attempt: who asks while the core is away is told so at once.
"""

import asyncio
import logging
from typing import Final

import msgspec

from tickpath.client import AsyncClient, ConnectError, CredentialsError, Prediction, Tls, UnknownModelError
from tickpath.client.aio_feed import AsyncFeed
from tickpath.client.token import Token
from tickpath.door.question import Question
from tickpath.wire import Limits, ModelInfo

log = logging.getLogger(__name__)

# A probe comes once a second, an operator looks again after a second: neither sees that a list is 100 ms old.
FRESH_S: Final = 0.1
# A model that takes longer is a batch job; whoever asks has a time limit of his own anyway.
ANSWER_S_MAX: Final = 30.0
# The core's loop turns every few hundred microseconds, unless it starts or ends.
LIST_S_MAX: Final = 1.0


class Listing(msgspec.Struct, frozen=True):
    """What the core served `at_s`: the live version of each model, and every version that is loaded."""

    at_s: float = float("-inf")
    live: dict[str, ModelInfo] = {}
    versions: dict[tuple[str, str], ModelInfo] = {}

    def find(self, name: str, version: str) -> ModelInfo | None:
        """The model; of no version where its live one is asked for."""
        return self.versions.get((name, version)) if version else self.live.get(name)

    def versions_of(self, name: str) -> list[str]:
        """Those that are loaded."""
        return [version for model, version in self.versions if model == name]


class Upstream:
    """One core. Its methods raise TickpathError: ConnectError where the core is away."""

    def __init__(self, address: str, token: Token = "", tls: Tls | None = None) -> None:
        self._address = address
        self._client = AsyncClient(
            address, name="oip-door", token=token, tls=tls, reconnect=None, timeout_s=ANSWER_S_MAX
        )
        self._listing = Listing()
        self._asking = asyncio.Lock()

    async def close(self) -> None:
        """What is in flight is given up."""
        await self._client.close()

    async def limits(self) -> Limits:
        """What the core takes at the most now."""
        await self._connect()
        return self._client.limits

    async def listing(self) -> Listing:
        """What is served, at most FRESH_S ago."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._listing.at_s >= FRESH_S:
            try:
                async with asyncio.timeout(LIST_S_MAX), self._asking:
                    if now_s > self._listing.at_s:  # nobody asked while we waited
                        self._listing = await self._list()
            except TimeoutError:
                raise self._silent() from None
        return self._listing

    async def model(self, name: str, version: str) -> ModelInfo:
        """The model of this name, live or of this version, as it was when last asked for. Raises UnknownModelError."""
        return self._listing.find(name, version) or await self.fresh_model(name, version)

    async def fresh_model(self, name: str, version: str) -> ModelInfo:
        """The same, at most FRESH_S ago."""
        listing = await self.listing()
        found = listing.find(name, version)
        if found is None:
            raise _unknown(listing, name, version)
        return found

    def forget(self) -> None:
        """What is served has changed: whoever asks next asks the core."""
        self._listing = Listing()

    async def infer(self, question: Question, level: int) -> Prediction:
        """One prediction of the model, live or of a version. Raises what AsyncClient.infer does."""
        await self._connect()
        name, arrays, budget_ns = question.name, question.arrays, question.wishes.budget_ns
        try:
            return await self._client.infer(name, arrays, budget_ns=budget_ns, priority=level)
        except UnknownModelError:  # never run: its handle went as another version became live
            self.forget()
            await self.model(question.model.name, question.version)
            return await self._client.infer(name, arrays, budget_ns=budget_ns, priority=level)

    async def open_feed(self, model: str, key: str) -> AsyncFeed:
        """A feed of NAME or NAME@VERSION that begins anew. Raises what AsyncClient.open_feed does."""
        await self._connect()
        return await self._client.open_feed(model, key, anew=True)

    async def _list(self) -> Listing:
        at_s = asyncio.get_running_loop().time()
        await self._open()
        live = await self._client.models()
        versions = await self._client.models(versions=True)
        return Listing(
            at_s,
            {model.name: model for model in live},
            {(model.name, model.version): model for model in versions},
        )

    async def _connect(self) -> None:
        """Costs nothing where we are connected."""
        try:
            async with asyncio.timeout(LIST_S_MAX):
                await self._open()
        except TimeoutError:
            raise self._silent() from None

    async def _open(self) -> None:
        try:
            await self._client.connect()
        except CredentialsError as error:  # names files of this machine, which is nothing for who asks
            log.warning("the door can't show itself to the core: %s", error)
            raise ConnectError("the door can't show itself to the server: its log says why") from None

    def _silent(self) -> ConnectError:
        return ConnectError(f"the core at {self._address} does not answer: it starts, ends or stands still")


def _unknown(listing: Listing, name: str, version: str) -> UnknownModelError:
    if version and name in listing.live:
        loaded = ", ".join(listing.versions_of(name))
        return UnknownModelError(f"model {name!r} has no version {version[:80]!r} loaded; there are: {loaded}")
    return UnknownModelError(f"no model {name[:80]!r} is served; there are: {', '.join(listing.live) or 'none'}")
