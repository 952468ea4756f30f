"""Where clients come in: each listener with the sessions that belong there, plain or guarded, with TLS or without."""

import logging
import socket
from typing import Final, Protocol

from tickpath.observe.records import GlobalCell
from tickpath.server.access import Access
from tickpath.server.access_config import is_loopback
from tickpath.server.guarded_session import GuardedSession, Strangers
from tickpath.server.listeners import BACKLOG, address_of
from tickpath.server.recording import RecordedGuardedSession, RecordedSession, Recording
from tickpath.server.service import Service
from tickpath.server.session import Session
from tickpath.server.tls import TlsListener

log = logging.getLogger(__name__)

TLS_SCHEME: Final = "tls://"


class Closes(Protocol):
    """A listener in use."""

    def close(self) -> None: ...


class Gate:
    """Of one core."""

    def __init__(self, service: Service, access: Access, recording: Recording | None) -> None:
        self._service = service
        self._recording = recording
        self._access = access
        self._strangers = Strangers()

    async def open(self, listener: socket.socket) -> Closes:
        """Take clients from now on."""
        loop = self._service.loop
        if listener.family == socket.AF_UNIX:
            return await loop.create_unix_server(self._session, sock=listener, backlog=BACKLOG)
        config = self._service.config
        if config.tls is not None:
            return TlsListener(
                loop, listener, self._session, self._access.tls_context, config.hello_s, self._handshake_failed
            )
        if self._access.asks and not is_loopback(config.host):
            log.warning("tokens travel to %s unencrypted: whoever can listen on the way has them ([tls])", config.host)
        return await loop.create_server(self._session, sock=listener, backlog=BACKLOG)

    def address_of(self, listener: socket.socket) -> str:
        """What a client is given to connect to."""
        encrypted = self._service.config.tls is not None and listener.family != socket.AF_UNIX
        return f"{TLS_SCHEME if encrypted else ''}{address_of(listener)}"

    async def renew(self) -> list[str]:
        """Read tokens and certificates again, and end the sessions of tokens that are listed no more. Raises
        ConfigError, and then all stays as it was."""
        told = await self._access.renew()
        gone = [
            session
            for session in self._service.sessions
            if isinstance(session, GuardedSession) and not session.still_known()
        ]
        for session in gone:
            session.withdrawn()
        if gone:
            log.info("ended %d sessions whose token was withdrawn", len(gone))
        return told

    def may_administer(self, token: str) -> bool:
        """Whether who comes through the door with this token may load and unload."""
        return not self._access.asks or self._access.may_administer(token)

    def _session(self) -> Session:
        if self._recording is not None:
            return self._recorded().record(self._recording)
        if self._access.asks:
            return GuardedSession(self._service, self._access, self._strangers)
        return Session(self._service)

    def _recorded(self) -> RecordedSession:
        if self._access.asks:
            return RecordedGuardedSession(self._service, self._access, self._strangers)
        return RecordedSession(self._service)

    def _handshake_failed(self) -> None:
        self._service.records.add(GlobalCell.HANDSHAKES_FAILED)
