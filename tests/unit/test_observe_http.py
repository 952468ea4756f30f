"""The observer's HTTP: what is a request, and that nobody can hold up anybody else. Real sockets."""

import asyncio
import select
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickpath.observe.http import HEAD_BYTES_MAX, BadRequestError, HttpServer, Request, Response, parse_request, say

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

# More than a loopback connection holds in both its kernel buffers.
LARGE_BYTES = 64 * 1024 * 1024


async def answer(request: Request) -> Response:
    if request.path == "/large":
        return Response(HTTPStatus.OK, bytes(LARGE_BYTES))
    return say(HTTPStatus.OK, f"{request.method} {request.path} {request.accept}".strip())


def serving(test: Callable[[int], Awaitable[None]], server: HttpServer | None = None) -> None:
    """Run a test with the port of a server."""

    async def run() -> None:
        tested = server or HttpServer(answer)
        url = await tested.listen("127.0.0.1", 0)
        try:
            await test(int(url.rpartition(":")[2]))
        finally:
            tested.close()

    asyncio.run(run())


async def connect(port: int, sent: bytes = b"") -> Streams:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    return reader, writer


async def ask(port: int, sent: bytes) -> bytes:
    """All that comes back."""
    reader, writer = await connect(port, sent)
    reply = await reader.read()
    await close(writer)
    return reply


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


def test_a_request_is_read_from_its_head() -> None:
    head = b"GET /metrics?name[]=up HTTP/1.1\r\nHost: a\r\naccept: text/plain\r\n\r\n"
    assert parse_request(head) == Request("GET", "/metrics", "text/plain", "name[]=up")
    assert parse_request(b"HEAD / HTTP/1.0\r\n\r\n") == Request("HEAD", "/", "")


@pytest.mark.parametrize(
    "head",
    [
        b"\r\n\r\n",
        b"GET / HTTP/2.0\r\n\r\n",
        b"GET  / HTTP/1.1\r\n\r\n",
        b"get / HTTP/1.1\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 101 + b"\r\n",
    ],
)
def test_what_is_no_request_is_refused(head: bytes) -> None:
    with pytest.raises(BadRequestError):
        parse_request(head)


@given(st.one_of(st.binary(max_size=300), st.binary(max_size=300).map(lambda rest: b"GET / HTTP/1.1\r\n" + rest)))
def test_any_head_is_a_request_or_refused(head: bytes) -> None:
    with suppress(BadRequestError):
        assert parse_request(head).path


def test_a_response_says_how_long_it_is_and_that_it_is_the_last() -> None:
    async def test(port: int) -> None:
        assert await ask(port, b"GET /a HTTP/1.1\r\nAccept: x\r\n\r\n") == (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 9\r\n"
            b"Connection: close\r\n\r\nGET /a x\n"
        )
        assert (await ask(port, b"HEAD /a HTTP/1.1\r\n\r\n")).endswith(
            b"Content-Length: 8\r\nConnection: close\r\n\r\n"
        )

    serving(test)


def test_a_large_response_arrives_whole() -> None:
    async def test(port: int) -> None:
        reply = await ask(port, b"GET /large HTTP/1.1\r\n\r\n")
        assert len(reply.partition(b"\r\n\r\n")[2]) == LARGE_BYTES

    serving(test)


def test_garbage_and_large_heads_get_one_line() -> None:
    async def test(port: int) -> None:
        garbage = await ask(port, b"\x00\xff garbage\r\n\r\n")
        assert garbage.startswith(b"HTTP/1.1 400 ")
        assert garbage.partition(b"\r\n\r\n")[2].count(b"\n") == 1
        large = await ask(port, b"GET / HTTP/1.1\r\nCookie: " + b"x" * HEAD_BYTES_MAX + b"\r\n\r\n")
        assert large.startswith(b"HTTP/1.1 431 ")

    serving(test)


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP", b"GET /large HTTP/1.1\r\n\r\n"], ids=["idle", "unfinished", "unread"]
)
def test_a_connection_that_takes_too_long_is_closed(sent: bytes) -> None:
    async def test(port: int) -> None:
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.setblocking(False)
            await loop.sock_sendall(slow, sent)
            assert (await ask(port, b"GET /b HTTP/1.1\r\n\r\n")).endswith(b"GET /b\n")
            await hung_up(slow)
            with suppress(ConnectionError):
                received = 0
                while chunk := await loop.sock_recv(slow, 1 << 20):
                    received += len(chunk)
                assert received < LARGE_BYTES

    serving(test, HttpServer(answer, connection_s=1.0))


async def hung_up(sock: socket.socket) -> None:
    """Wait until the other side has closed, without reading a byte."""
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP | select.POLLHUP)
    while not poll.poll(0):
        await asyncio.sleep(0.01)


def test_when_there_are_too_many_connections_the_oldest_goes() -> None:
    async def test(port: int) -> None:
        first = await connect(port)
        second = await connect(port)
        assert (await ask(port, b"GET /c HTTP/1.1\r\n\r\n")).endswith(b"GET /c\n")
        with pytest.raises(ConnectionResetError):
            await first[0].read()
        second[1].write(b"GET /d HTTP/1.1\r\n\r\n")
        assert (await second[0].read()).endswith(b"GET /d\n")
        await close(first[1])
        await close(second[1])

    serving(test, HttpServer(answer, connections_max=2))
