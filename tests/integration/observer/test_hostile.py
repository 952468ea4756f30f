"""Whatever is said to the observer is answered in one response or with a closed connection, and never with a fault of
its own."""

import random
import socket
from collections.abc import Iterator
from typing import Final

import pytest
from tests.integration.observer.observing import MODELS, Observing, observing

from tickpath.observe.http import HEAD_BYTES_MAX
from tickpath.observe.records import RecordWriter

END: Final = b"\r\nHost: a\r\n\r\n"
SEED: Final = 5
MUTATIONS: Final = 400

STATUSES: Final = {
    b"GET /slow?count=0 HTTP/1.1": 400,
    b"GET /slow?count=-1 HTTP/1.1": 400,
    b"GET /slow?count=201 HTTP/1.1": 400,
    b"GET /slow?count=" + b"9" * 6000 + b" HTTP/1.1": 400,
    b"GET /slow?count=%FF HTTP/1.1": 400,
    b"GET /slow?count=%D9%A3 HTTP/1.1": 400,  # a digit, and not one of ours
    b"GET /slow?" + b"x" * 6000 + b"=1 HTTP/1.1": 400,
    b"GET /slow?" + b"a=1&" * 1500 + b" HTTP/1.1": 400,
    b"GET /slow?%00=%0d%0aX: y HTTP/1.1": 400,
    b"GET /slow?model=%ED%A0%80%00%0d%0a HTTP/1.1": 200,
    b"GET /slow?count=200&count=1 HTTP/1.1": 200,
    b"GET /slow?" + b"x" * HEAD_BYTES_MAX + b" HTTP/1.1": 431,
    b"GET /metrics HTTP/1.1\r\nAccept: " + b"a," * 3000: 200,
    b"GET /metrics HTTP/1.1\r\nAccept: \xff\xfe;q=z, application/openmetrics-text;version=\xff": 200,
    b"GET /livez HTTP/1.1\r\n" + b"a: b\r\n" * 500 + b"c: d": 400,
    b"HEAD /metrics HTTP/1.1": 200,
    b"HEAD /nothing HTTP/1.1": 404,
    b"GET \xff\xfe HTTP/1.1": 400,
    b"GET /livez HTTP/9.9": 400,
    b"\x16\x03\x01\x02\x00": 400,
    b"PRI * HTTP/2.0": 400,
}


@pytest.fixture(scope="module")
def observer() -> Iterator[Observing]:
    writer = RecordWriter()
    writer.describe(MODELS)
    with observing(writer) as started:
        yield started


def said(observer: Observing, words: bytes) -> bytes:
    """All that comes for it."""
    with socket.create_connection(("127.0.0.1", observer.port), timeout=30) as connection:
        got = b""
        try:
            connection.sendall(words)
            while part := connection.recv(65536):
                got += part
        except ConnectionResetError:
            pass
        return got


@pytest.mark.parametrize(("asked", "status"), STATUSES.items(), ids=[str(line[:40]) for line in STATUSES])
def test_one_response(observer: Observing, asked: bytes, status: int) -> None:
    head, _, body = said(observer, asked + END).partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode()), head
    assert (body == b"") == asked.startswith(b"HEAD")
    assert status == 200 or len(body) < 200


def test_of_requests_that_come_together_the_first_is_answered(observer: Observing) -> None:
    assert said(observer, (b"GET /livez HTTP/1.1" + END) * 50).count(b"HTTP/1.1 ") == 1


def test_anything_at_all(observer: Observing) -> None:
    rng = random.Random(SEED)
    for turn in range(MUTATIONS):
        line = bytearray(rng.choice(list(STATUSES)) + END)
        for _ in range(rng.randrange(1, 20)):
            line[rng.randrange(len(line))] = rng.randrange(256)
        got = said(observer, bytes(line) + b"\r\n\r\n")
        assert got == b"" or got.startswith((b"HTTP/1.1 2", b"HTTP/1.1 4", b"HTTP/1.1 503")), (SEED, turn, line, got)
    assert said(observer, b"GET /metrics HTTP/1.1" + END).startswith(b"HTTP/1.1 200 ")
    observer.process.terminate()
    assert observer.process.stderr is not None
    assert observer.process.stderr.read() == ""
