"""A session on a server that asks who comes: the same, behind identity, rights and quotas. A server that asks nobody
has plain sessions, which pay for nothing of this.

Rules
- Hello must show who the client is. Who can't is told so a moment later, and nothing more of it is looked at.
- From then on the client goes by the name that the server knows it by: feeds and canaries are by that, whatever name
  Hello gave.
- What it may not ask it is not told of, and is refused by handle.
- Where there is no room for a session, the oldest that has not shown who it is makes room.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

import msgspec

from tickpath.observe.records import GlobalCell
from tickpath.server.access import Access
from tickpath.server.admission import Refusal, check_hello
from tickpath.server.feed import TakenTick
from tickpath.server.identity import Known, Stranger, certificate_names
from tickpath.server.quota import Account
from tickpath.server.rights import Rights, refuse_model
from tickpath.server.service import Service
from tickpath.server.session import Session
from tickpath.server.version import Version
from tickpath.wire import (
    ClientMessage,
    CloseFeed,
    Code,
    Infer,
    ModelInfo,
    OpenFeed,
    SnapshotFeed,
    Tick,
)

# How long a client that is not known waits for being told: who guesses gets four tries a second for each connection,
# and a probe that knows no token still has its answer within the second that it waits.
REFUSED_S: Final = 0.25


class Strangers:
    """Sessions that have not shown who they are, oldest first: one of them goes where there is no room for another, so
    that they never keep out who would."""

    def __init__(self) -> None:
        self._waiting: dict[GuardedSession, None] = {}

    def __iter__(self) -> "Iterator[GuardedSession]":
        return iter(self._waiting)

    def add(self, session: "GuardedSession") -> None:
        self._waiting[session] = None

    def discard(self, session: "GuardedSession") -> None:
        self._waiting.pop(session, None)


class GuardedSession(Session):
    """What is said on one connection, and by whom."""

    def __init__(self, service: Service, access: Access, strangers: Strangers) -> None:
        super().__init__(service)
        self._access = access
        self._strangers = strangers
        self._known: Known | None = None
        self._account: Account | None = None
        self._rights = Rights(frozenset())

    # -- connecting --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if len(self._service.sessions) >= self._service.limits.sessions_max:
            for oldest in self._strangers:
                self._strangers.discard(oldest)
                self._service.closed(oldest)
                oldest.abort()
                break
        super().connection_made(transport)
        if self in self._service.sessions:  # who was turned away has no room to give
            self._strangers.add(self)

    def _lost(self) -> None:
        super()._lost()
        self._strangers.discard(self)
        if self._account is not None:
            self._account.sessions -= 1

    def _greet(self, message: ClientMessage) -> None:
        hello = check_hello(message)
        assert self._transport is not None
        certificate = certificate_names(self._transport.get_extra_info("peercert"))
        known = self._access.keyring.identify(hello.token, certificate)
        if isinstance(known, Stranger):
            self._refuse_stranger(known)
            return
        account = self._access.account(known)
        if (refusal := account.refuse_session()) is not None:
            self._records.add(GlobalCell.REFUSED_SESSIONS)
            self._end_with(refusal.code, refusal.message)
            return
        account.sessions += 1
        self._known, self._account, self._rights = known, account, self._access.rights(known)
        self._strangers.discard(self)
        super()._greet(msgspec.structs.replace(hello, client=known.name, token=""))

    def _refuse_stranger(self, stranger: Stranger) -> None:
        self._records.add(GlobalCell.REFUSED_STRANGERS)
        self._access.refused(stranger.why, self._service.loop.time())
        self._deaf = True
        self._timer.stop()
        told = f"this server asks who comes, and did not recognise this client: {stranger.why}"
        self._timer.start(REFUSED_S, lambda: self._end_with(Code.UNAUTHENTICATED, told))

    def still_known(self) -> bool:
        """Whether what it came with would still do."""
        return self._known is None or self._access.keyring.still_knows(self._known)

    def withdrawn(self) -> None:
        """Its token is not listed any more: what is in flight is answered, then it ends."""
        self._end_with(Code.UNAUTHENTICATED, "the token of this session was withdrawn: connect with another")

    # -- asking --

    def _listed(self, versions: bool) -> tuple[ModelInfo, ...]:
        return tuple(info for info in super()._listed(versions) if self._rights.may_ask(info.name))

    def _infer(self, infer: Infer, first_byte_ns: int, received_ns: int) -> None:
        if (refusal := self._refused(infer.handle) or self._too_soon(received_ns)) is not None:
            self._refuse(infer.id, None, refusal)
        else:
            super()._infer(infer, first_byte_ns, received_ns)

    def _tick(self, tick: Tick, first_byte_ns: int, received_ns: int) -> None:
        feed = self._service.feeds.find(tick.feed, self)
        if not isinstance(feed, Refusal) and (refusal := self._too_soon(received_ns) or self._no_room()) is not None:
            self._refuse(tick.id, None, msgspec.structs.replace(refusal, next_sequence=feed.next_sequence))
        else:
            super()._tick(tick, first_byte_ns, received_ns)

    def _serve_rare(self, message: ClientMessage) -> None:
        if self._greeted and isinstance(message, OpenFeed | SnapshotFeed | CloseFeed):
            refusal = self._refused(message.handle) if isinstance(message, OpenFeed) else None
            if (refusal := refusal or self._too_soon(self._received_ns)) is not None:
                self._refuse(message.id, None, refusal)
                return
        super()._serve_rare(message)

    def _refused(self, handle: int) -> Refusal | None:
        """What it may not ask. A handle that never was there is refused like all others."""
        routes = self._service.catalogue.routes
        if handle >= len(routes) or self._rights.may_ask(routes[handle].model):
            return None
        self._records.add(GlobalCell.REFUSED_RIGHTS)
        assert self._known is not None
        return refuse_model(self._known.name, handle)

    def _too_soon(self, now_ns: int) -> Refusal | None:
        assert self._account is not None
        refusal = self._account.refuse_rate(now_ns)
        if refusal is not None:
            self._records.add(GlobalCell.REFUSED_RATE)
        return refusal

    # -- in flight --

    def _refusal(self, infer: Infer, version: Version) -> Refusal | None:
        return super()._refusal(infer, version) or self._no_room()

    def _no_room(self) -> Refusal | None:
        assert self._account is not None
        refusal = self._account.refuse_in_flight()
        if refusal is not None:
            self._records.add(GlobalCell.REFUSED_IN_FLIGHT)
        return refusal

    def _queue(self, infer: Infer, version: Version, first_byte_ns: int, received_ns: int) -> None:
        assert self._account is not None
        self._account.in_flight += 1
        super()._queue(infer, version, first_byte_ns, received_ns)

    def _forgotten(self, request_id: int) -> TakenTick | None:
        assert self._account is not None
        self._account.in_flight -= 1
        return super()._forgotten(request_id)
