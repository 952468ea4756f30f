"""As much HTTP as a scraper and a health check need: GET and HEAD, one request a connection, no body.

Anybody may connect, so nobody may hold what another needs: a connection is a small task and no thread, has a limited
time from its first moment to its last, and when there are too many the oldest goes.
"""

import asyncio
import io
import re
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException, parse_headers
from typing import Final

# A scraper's head has 300 bytes, a browser's with its cookies 2 KiB.
HEAD_BYTES_MAX: Final = 8 * 1024
# Prometheus gives a scrape up after 10 s unless told otherwise; who is slower than that wants nothing from us.
CONNECTION_S: Final = 10.0
# A scrape lasts milliseconds, so of 128 connections the oldest is an idle or a hostile one. 128 pages that nobody reads
# are 6 MB for one model, 260 MB for 64.
CONNECTIONS_MAX: Final = 128

PLAIN: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"

_REQUEST_LINE: Final = re.compile(rb"([A-Z]{1,16}) ([\x21-\x7e]+) HTTP/1\.[01]\r\n")


@dataclass(frozen=True)
class Request:
    """What was asked for. `path` and `query` are what stands before and behind the question mark; `accept` and
    `authorization` are empty where the header is missing."""

    method: str
    path: str
    accept: str
    query: str = ""
    authorization: str = field(default="", repr=False)

    @property
    def for_people(self) -> bool:
        """Whether a browser asks: nothing else names HTML."""
        return "text/html" in self.accept


@dataclass(frozen=True)
class Response:
    """What is answered: one body, and the headers that go with its status."""

    status: HTTPStatus
    body: bytes
    content_type: str = PLAIN
    headers: tuple[str, ...] = ()

    def encode(self, head_only: bool = False) -> bytes:
        """The bytes to send; without the body for a HEAD."""
        lines = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(self.body)}",
            "Connection: close",
            *self.headers,
        )
        head = "".join(f"{line}\r\n" for line in lines) + "\r\n"
        return head.encode("latin-1") + (b"" if head_only else self.body)


Answer = Callable[[Request], Awaitable[Response]]


class BadRequestError(Exception):
    """What came is not a request of HTTP/1."""


def say(status: HTTPStatus, line: str, *headers: str) -> Response:
    """A response of one line."""
    return Response(status, f"{line}\n".encode(), headers=headers)


def parse_request(head: bytes) -> Request:
    """The request of a head that ends in an empty line. Raises BadRequestError."""
    line = _REQUEST_LINE.match(head)
    if line is None:
        raise BadRequestError("a request line such as 'GET /metrics HTTP/1.1' expected")
    try:
        headers = parse_headers(io.BytesIO(head[line.end() :]))
    except HTTPException as error:
        raise BadRequestError(str(error)) from None
    path, _, query = line[2].decode("ascii").partition("?")
    accept, authorization = headers.get("Accept", ""), headers.get("Authorization", "")
    return Request(line[1].decode("ascii"), path, accept, query, authorization)


class HttpServer:
    """Listens, and has each request answered. One event loop."""

    def __init__(
        self, answer: Answer, connection_s: float = CONNECTION_S, connections_max: int = CONNECTIONS_MAX
    ) -> None:
        self._answer = answer
        self._connection_s = connection_s
        self._connections_max = connections_max
        self._connections: dict[asyncio.Task[None], None] = {}
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> str:
        """Serve from now on, at port 0 on a free one; returns the URL. Raises OSError where the address is taken."""
        self._server = await asyncio.start_server(
            self._connected, host, port, limit=HEAD_BYTES_MAX, backlog=self._connections_max
        )
        address, real_port, *_ = self._server.sockets[0].getsockname()
        return f"http://[{address}]:{real_port}" if ":" in address else f"http://{address}:{real_port}"

    def close(self) -> None:
        """Listen no longer."""
        if self._server is not None:
            self._server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._make_room()
        self._connections[task] = None
        try:
            async with asyncio.timeout(self._connection_s):
                await self._exchange(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            # It left, was too slow, had to make room, or the process ends. The cancellation stops here: Python 3.11
            # prints a cancelled handler as an error.
            _forget_unsent(writer)
        finally:
            self._connections.pop(task, None)
            writer.transport.abort()

    def _make_room(self) -> None:
        if len(self._connections) >= self._connections_max:
            oldest = next(iter(self._connections))
            del self._connections[oldest]
            oldest.cancel()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Nothing may wait in the transport: drain then returns when the kernel has it all.
        writer.transport.set_write_buffer_limits(0)
        writer.write(await self._reply(reader))
        await writer.drain()

    async def _reply(self, reader: asyncio.StreamReader) -> bytes:
        try:
            request = parse_request(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            too_large = f"a head of at most {HEAD_BYTES_MAX} bytes expected"
            return say(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, too_large).encode()
        except BadRequestError as error:
            return say(HTTPStatus.BAD_REQUEST, str(error)).encode()
        response = await self._answer(request)
        return response.encode(head_only=request.method == "HEAD")


def _forget_unsent(writer: asyncio.StreamWriter) -> None:
    """Have the kernel reset the connection as it closes; else it keeps for minutes what the peer does not read."""
    with suppress(OSError):  # closed already
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
