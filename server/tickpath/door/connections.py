"""The connections of both sides, bounded: anybody may connect, so nobody may hold what another needs. Those of REST are
counted here, those of gRPC by grpc."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

# Each costs a descriptor and some KiB. A crowd of tools keeps a few dozen open; past that the idle ones have to go.
CONNECTIONS_MAX: Final = 256
# Beside them, for probes and for those who are told that all others are at work: neither takes long.
SPARE_CONNECTIONS: Final = 32
PROBES: Final = ("/v2/health/live", "/v2/health/ready")
# With REST's and the sessions with the server within 1,024 descriptors, which is what many systems allow a process.
# grpc makes no room: where all places are taken, the newcomer is closed.
GRPC_CONNECTIONS_MAX: Final = 512
# From connecting to the first words of HTTP/2: who is silent is to leave its place soon.
GRPC_HANDSHAKE_S_MAX: Final = 10.0
# From connecting, or the last answer, to the whole head of the next request: longer than the pauses of tools that keep
# their connections, and no time in which to starve anybody, since an idle connection makes room when it must.
IDLE_S_MAX: Final = 75.0
# How long what still comes of a refused body is read and dropped, so that its sender gets to see why.
LINGER_S: Final = 1.0
LINE_BYTES_MAX: Final = 8 * 1024

_FULL: Final = b'{"error": "all connections are at work: try it later"}'
_FULL_RESPONSE: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
    b"Connection: close\r\n\r\n%b" % (len(_FULL), _FULL)
)

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class BoundedServer(web.Server):
    """aiohttp's server for requests of at most `connections_max` connections at once, and probes beside them. With all
    spare ones open too, the oldest that asks nothing at the moment makes room for a new one."""

    def __init__(self, answer: Answer, connections_max: int = CONNECTIONS_MAX) -> None:
        super().__init__(
            self._answer_one,
            handler_cancellation=True,  # who leaves takes back what he asked
            keepalive_timeout=IDLE_S_MAX,
            lingering_time=LINGER_S,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=LINE_BYTES_MAX,
            access_log=None,
            logger=_silent_logger(),
        )
        self._answer = answer
        self._connections_max = connections_max
        self._open: dict[RequestHandler, asyncio.Transport] = {}
        self._busy: set[RequestHandler] = set()

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self._open) >= self._connections_max + SPARE_CONNECTIONS and not self._make_room():
            transport.write(_FULL_RESPONSE)
            handler.force_close()
            return
        self._open[handler] = transport

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._open.pop(handler, None)

    def _make_room(self) -> bool:
        idle = next((handler for handler in self._open if handler not in self._busy), None)
        if idle is None:
            return False
        self._open.pop(idle).abort()  # what it has not read is not waited for
        return True

    async def _answer_one(self, request: web.BaseRequest) -> web.StreamResponse:
        if len(self._busy) >= self._connections_max and request.path not in PROBES:
            response = web.Response(status=503, body=_FULL, content_type="application/json")
            response.force_close()
            return response
        self._busy.add(request.protocol)
        try:
            return await self._answer(request)
        finally:
            self._busy.discard(request.protocol)


def _silent_logger() -> logging.Logger:
    """aiohttp's own lines, of which whatever comes that is no HTTP would make many. Faults of ours are logged where
    they are caught."""
    logger = logging.getLogger("tickpath.door.aiohttp")
    logger.disabled = True
    return logger
