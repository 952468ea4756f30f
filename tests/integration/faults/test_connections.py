"""Crowds that connect: each is answered or refused, and the client beside them gets all its answers. Known failures
A16, A18, A19, F3."""

import socket
import ssl
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pytest
from tests.certificates import Authority
from tests.integration.faults.figures import Usage, crowd, outcome, row, slow, usage, write_models
from tests.integration.faults.innocent import innocent
from tests.integration.hostile.arena import echo
from tests.processes import children
from tests.secured import secured
from tests.serving import RunningServer, serve, write_zoo

from tickpath.client import Client, Tls
from tickpath.door.connections import CONNECTIONS_MAX as DOOR_CONNECTIONS_MAX
from tickpath.door.connections import SPARE_CONNECTIONS
from tickpath.observe.http import CONNECTIONS_MAX as OBSERVER_CONNECTIONS_MAX
from tickpath.wire import PROTOCOL_VERSION, Hello, encode_frame

SLOWLORIS: Final = 500
CONNECTS: Final = 2000
RESETS: Final = 1000
SESSIONS: Final = 1024
HELLO: Final = encode_frame(Hello(PROTOCOL_VERSION, "stranger"))
HELD_MAX: Final = {"observer": OBSERVER_CONNECTIONS_MAX, "door": DOOR_CONNECTIONS_MAX + SPARE_CONNECTIONS}
SHORT: Final[dict[str, Any]] = {"hello_s": 1.0, "frame_s": 1.0}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("crowds")
    settings: dict[str, Any] = {"observer_port": 0, "oip_port": 0, "oip_grpc_port": 0, "sessions_max": SESSIONS}
    with serve(folder, write_models(folder), **SHORT, **settings) as server:
        yield server
    assert "Traceback" not in server.log.read_text()


WORDS: Final = {
    "half a Hello": (HELLO[:3], ["UNAUTHENTICATED"]),
    "half a request": (HELLO + encode_frame(echo(1))[:-1], ["Welcome", "BAD_FRAME"]),
}


@pytest.mark.parametrize("said", WORDS)
def test_500_slowloris(server: RunningServer, table: list[str], said: str) -> None:
    """Each is told, once it has had the second that it is given; nobody is held up as long as that."""
    words, expected = WORDS[said]
    with (
        innocent(server) as client,
        usage(server.ready.pid) as seen,
        client.beside(),
        crowd(server, SLOWLORIS, words) as strangers,
    ):
        outcomes = Counter(", ".join(outcome(stranger) for _ in expected) for stranger in strangers)
    table.append(row(f"500 slowloris, {said}", outcomes, client, seen))
    assert outcomes == {", ".join(expected): SLOWLORIS}


def test_2000_simultaneous_connects(server: RunningServer, table: list[str]) -> None:
    """Of those for whom there is no room few linger until what they said is read: a reset may overtake what the others
    are told."""
    with (
        innocent(server) as client,
        usage(server.ready.pid) as seen,
        client.beside(),
        crowd(server, CONNECTS, HELLO) as strangers,
    ):
        outcomes = Counter(map(outcome, strangers))
    table.append(row("2,000 connects, 1,024 sessions", outcomes, client, seen))
    assert outcomes["Welcome"] == SESSIONS - 1, "one is the client beside them"
    assert outcomes["OVERLOADED"] > 0
    assert outcomes["OVERLOADED"] + outcomes["ended"] == CONNECTS - SESSIONS + 1


def test_1000_resets(server: RunningServer, table: list[str]) -> None:
    """Before a word, in the middle of a frame, with requests inline, in flight and queued."""
    several = b"".join(encode_frame(slow(number)) for number in range(1, 7))
    words = (b"", HELLO[:3], HELLO + encode_frame(echo(1)), HELLO + encode_frame(echo(2))[:-1], HELLO + several)
    outcomes = Counter[str]()
    with innocent(server) as client, usage(server.ready.pid) as seen, client.beside():
        for number in range(RESETS):
            connection = server.connect()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.sendall(words[number % len(words)])
            connection.close()
            outcomes["reset by the client"] += 1
    table.append(row("1,000 resets", outcomes, client, seen))


# -- TLS --


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, Tls]]:
    folder = tmp_path_factory.mktemp("encrypted")
    authority = Authority(folder)
    models = write_zoo(folder, "null")
    with secured(folder, models, authority, clients=None, observer_port=0, **SHORT) as made:
        yield made.server, made.tls
    assert "Traceback" not in made.server.log.read_text()


def _client_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    sent = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="127.0.0.1").do_handshake()
    return sent.read()


def test_500_half_done_handshakes(encrypted: tuple[RunningServer, Tls], table: list[str]) -> None:
    server, tls = encrypted
    hello = _client_hello()
    with innocent(server) as client, usage(server.ready.pid) as seen, client.beside():
        with crowd(server, SLOWLORIS, hello[: len(hello) // 2]) as strangers:
            outcomes = Counter(map(outcome, strangers))
        with Client(server.address, tls=tls, timeout_s=60) as newcomer:
            newcomer.ping()
    table.append(row("500 half-done handshakes", outcomes, client, seen))
    assert outcomes == {"ended": SLOWLORIS}


def test_1000_handshakes_cut_off(encrypted: tuple[RunningServer, Tls], table: list[str]) -> None:
    """By a reset behind the first flight: who comes next does not wait as long as a thousand handshakes take."""
    server, tls = encrypted
    hello = _client_hello()
    with innocent(server) as client, usage(server.ready.pid) as seen, client.beside():
        for _ in range(RESETS):
            connection = server.connect()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.sendall(hello)
            connection.close()
        with Client(server.address, tls=tls, timeout_s=60) as newcomer:
            newcomer.ping()
    table.append(row("1,000 handshakes cut off", Counter({"reset by the client": RESETS}), client, seen))


# -- the observer and the door --


def _observer(server: RunningServer) -> int:
    (pid,) = (pid for pid in children(server.ready.pid) if b"tickpath.observe" in _command(pid))
    return pid


def _door(server: RunningServer) -> int:
    (pid,) = (pid for pid in children(server.ready.pid) if b"tickpath.door" in _command(pid))
    return pid


def _command(pid: int) -> bytes:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read()


def _get(url: str, count: int) -> None:
    for _ in range(count):
        with urllib.request.urlopen(url, timeout=30) as answer:
            assert answer.status == 200
            assert answer.read()


def _silent_at(url: str, words: bytes) -> list[socket.socket]:
    host, _, port = url.partition("://")[2].rpartition(":")
    held = []
    for _ in range(SLOWLORIS):
        connection = socket.create_connection((host, int(port)), timeout=30)
        connection.send(words)
        held.append(connection)
    return held


def _left(held: list[socket.socket]) -> Counter[str]:
    """How many the other end still holds, without waiting for any."""
    outcomes = Counter[str]()
    for connection in held:
        connection.setblocking(False)
        try:
            outcomes["closed" if connection.recv(1) == b"" else "answered"] += 1
        except BlockingIOError:
            outcomes["still held"] += 1
        except OSError:
            outcomes["reset"] += 1
        connection.close()
    return outcomes


@pytest.mark.parametrize(
    ("what", "path", "words", "process"),
    [
        ("observer", "/metrics", b"GET /metrics HTTP/1.1\r\nHost: a", _observer),
        ("door", "/v2/health/ready", b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: a", _door),
    ],
)
def test_500_slowloris_over_http(
    server: RunningServer, table: list[str], what: str, path: str, words: bytes, process: Any
) -> None:
    """Whoever asks there beside them is answered; the core knows nothing of it."""
    url = server.ready.observer if what == "observer" else server.ready.oip
    assert url is not None
    _get(url + path, 1)  # the door has its session with the core from then on
    with innocent(server) as client, usage(server.ready.pid) as core, usage(process(server)) as seen, client.beside():
        held = _silent_at(url, words)
        _get(url + path, 20)
        outcomes = _left(held)
    table.append(row(f"500 slowloris at the {what}", outcomes, client, core, seen))
    assert outcomes["still held"] <= HELD_MAX[what]


def test_a_scraper_that_reads_a_byte_at_a_time(server: RunningServer, table: list[str]) -> None:
    url = server.ready.observer
    assert url is not None
    host, _, port = url.partition("://")[2].rpartition(":")
    with (
        innocent(server) as client,
        usage(server.ready.pid) as core,
        usage(_observer(server)) as seen,
        client.beside(),
        socket.socket() as sluggish,
    ):
        sluggish.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        sluggish.settimeout(30)
        sluggish.connect((host, int(port)))
        sluggish.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        read = 0
        for _ in range(20):
            read += len(sluggish.recv(1))
            _get(f"{url}/metrics", 1)
    table.append(row("a scraper of a byte a scrape", Counter({"bytes": read}), client, core, seen))


def test_500_silent_at_the_grpc_door(server: RunningServer, table: list[str]) -> None:
    assert server.ready.oip is not None
    assert server.ready.oip_grpc is not None
    _get(f"{server.ready.oip}/v2/health/ready", 1)  # the door has its session with the core from then on
    with innocent(server) as client, usage(server.ready.pid) as core, client.beside():
        held = _silent_at(f"grpc://{server.ready.oip_grpc}", b"PRI * HTTP/2.0\r\n")
        before = Usage(_door(server))
        _get(f"{server.ready.oip}/v2/health/ready", 20)
        outcomes = _left(held)
    outcomes["descriptors of the door"] = before.descriptors
    table.append(row("500 silent at the gRPC door", outcomes, client, core))
