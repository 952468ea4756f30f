"""What is done to the door is the door's trouble: the core's own clients are answered as before, and so is the next one
who comes by the door."""

import asyncio
import gc
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import grpc
import numpy as np
import pytest
from tests.doors import WIDE, Triton, ask, floats, health, oip, request_of
from tests.integration.door.test_life import door_of
from tests.serving import RunningServer
from tests.waiting import wait_until
from tritonclient.utils import InferenceServerException

from tickpath.client import Client
from tickpath.door.connections import GRPC_CONNECTIONS_MAX
from tickpath.door.grpc_health import SERVING

# More than the door keeps.
CROWD: Final = 300
# As many calls of gRPC as it has at once. (Its module describes the same messages as Triton's client.)
CALLS_MAX: Final = 128


def addresses(server: RunningServer) -> list[tuple[str, int]]:
    """REST and gRPC."""
    told = [oip(server), str(server.ready.oip_grpc)]
    return [(host, int(port)) for host, _, port in (address.rpartition(":") for address in told)]


def say(server: RunningServer, data: bytes, side: int = 0) -> bytes:
    """Send this on a connection of its own; what comes back until the door closes it or says something."""
    with socket.create_connection(addresses(server)[side], timeout=30) as connection:
        try:
            connection.sendall(data)
            return connection.recv(65536)
        except ConnectionError:
            return b""


@contextmanager
def crowd(server: RunningServer, data: bytes, side: int = 0, count: int = CROWD) -> Iterator[list[socket.socket]]:
    """So many connections that have sent this, and neither read nor leave."""
    with ExitStack() as stack:
        connections = []
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection(addresses(server)[side], timeout=30))
            try:
                connection.sendall(data)
            except ConnectionError:
                continue  # it had to make room
            connections.append(connection)
        yield connections


def post(body: bytes, length: int | None = None, path: str = "v2/models/float32/infer") -> bytes:
    length = len(body) if length is None else length
    return f"POST /{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode() + body


@pytest.fixture(autouse=True)
def unharmed(server: RunningServer) -> Iterator[None]:
    """Beside each test a client of the core's asks and compares; after it the same door answers on both sides, and the
    log has no traceback."""
    gc.collect()  # before there is another thread on which it could be done (see conftest.py)
    log_chars, pid = len(server.log.read_text()), door_of(server)
    stop, wrong = threading.Event(), list[object]()

    def ask_on() -> None:
        with Client(server.address) as client:
            while not stop.wait(0.001):
                if not np.array_equal(client.infer("float32", floats(1))["y"], floats(1)):
                    wrong.append("another answer")

    def work() -> None:
        try:
            ask_on()
        except Exception as error:
            wrong.append(error)

    neighbour = threading.Thread(target=work)
    neighbour.start()
    try:
        yield
    finally:
        stop.set()
        neighbour.join()
    assert wrong == []
    for kind in ("http", "grpc"):
        assert Triton(server, kind).infer("float32", {"x": floats(2)})["y"].tolist() == floats(2).tolist()
    assert door_of(server) == pid
    assert "Traceback" not in server.log.read_text()[log_chars:]


@pytest.mark.parametrize(
    "data",
    [
        b"GARBAGE\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
        b"GET /v2 HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nHost: x\r\n" + b"".join(b"A%d: b\r\n" % n for n in range(5000)) + b"\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /v2/models/float32/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnope\r\n\r\n",
        b"POST /v2/models/float32/infer HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /v2/models/float32/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n123456",
    ],
    ids=["garbage", "tls", "http2", "header", "headers", "path", "chunks", "length", "lengths"],
)
def test_what_is_no_request_is_told_so(server: RunningServer, data: bytes) -> None:
    answer = say(server, data)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400", b"HTTP/1.1 413", b"HTTP/1.1 431"))


def test_bytes_that_are_no_grpc(server: RunningServer) -> None:
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for data in (b"GET / HTTP/1.1\r\n\r\n", bytes(1000), preface + b"\xff" * 1000, preface + bytes(9) * 100):
        say(server, data, side=1)


def test_a_message_that_is_too_large_or_no_message(server: RunningServer) -> None:
    import grpc

    with grpc.insecure_channel(server.ready.oip_grpc, [("grpc.max_send_message_length", -1)]) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for data in (bytes(65 * 1024 * 1024), b"\xff" * 1000):
            with pytest.raises(grpc.RpcError) as refused:
                call(data, timeout=30)
            assert refused.value.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT)


@pytest.mark.parametrize("side", [0, 1], ids=["rest", "grpc"])
@pytest.mark.parametrize("data", [b"", b"POST /v2/models/float32/infer HT"], ids=["silent", "half a head"])
def test_a_crowd_that_asks_nothing_makes_room(server: RunningServer, side: int, data: bytes) -> None:
    with crowd(server, data, side):
        assert ask(server, "v2/models/float32/infer", request_of(floats(1)))[0] == 200
        assert Triton(server, "grpc").infer("float32", {"x": floats(1)})["y"].tolist() == floats(1).tolist()


def test_more_connections_of_grpc_than_there_are_places(server: RunningServer) -> None:
    """Those that are too many are closed, REST does not notice, and whoever leaves makes room."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    with crowd(server, preface, side=1, count=GRPC_CONNECTIONS_MAX + 50) as connections:
        wait_until(lambda: open_count(connections) <= GRPC_CONNECTIONS_MAX, "as many as there are places")
        assert open_count(connections[:1])  # it is who came last that went, and not who was idle for longest
        assert ask(server, "v2/models/float32/infer", request_of(floats(1)))[0] == 200

    def answered() -> bool:
        try:
            return bool(np.array_equal(Triton(server, "grpc").infer("float32", {"x": floats(1)})["y"], floats(1)))
        except InferenceServerException:
            return False

    wait_until(answered, "an answer by gRPC, as the crowd has left")


def open_count(connections: list[socket.socket]) -> int:
    """Of those that their other end has not closed."""
    return sum(not closed(connection) for connection in connections)


def closed(connection: socket.socket) -> bool:
    """By its other end, all of whose words are read."""
    connection.setblocking(False)
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


def test_bodies_that_never_come_whole(server: RunningServer) -> None:
    with crowd(server, post(b'{"inputs":', 1000), count=100):
        assert ask(server, "v2/models/float32/infer", request_of(floats(1)))[0] == 200


def test_who_finds_all_places_at_work_is_told_so(server: RunningServer) -> None:
    live = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
    metadata = b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(20):  # those that the test before has left may still hold places
            stack.enter_context(crowd(server, post(b'{"inputs":', 1000), count=100))
            if b"all connections are at work" in say(server, metadata):
                break
        else:
            raise AssertionError("there was always room")
        assert b"200 OK" in say(server, live)
    wait_until(lambda: b"200 OK" in say(server, metadata), "room again, as the crowd has left")


def test_answers_that_nobody_reads_are_not_hoarded(server: RunningServer) -> None:
    body = json.dumps(request_of(np.full((8, WIDE), 0.5, np.float32)))
    requests = post(body.encode(), path="v2/models/wide/infer") * 1000
    before = rss_bytes(server)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(addresses(server)[0])
        connection.settimeout(2)
        with pytest.raises(TimeoutError):  # the door takes no more from one that takes nothing
            connection.sendall(requests)
        assert rss_bytes(server) < before + len(requests) // 2
        assert ask(server, "v2/models/float32/infer", request_of(floats(1)))[0] == 200


def rss_bytes(server: RunningServer) -> int:
    """What the door holds."""
    return int(Path(f"/proc/{door_of(server)}/statm").read_text().split()[1]) * 4096


def test_open_streams_leave_room_for_probes(server: RunningServer) -> None:
    def answered() -> bool:
        try:
            Triton(server, "grpc").infer("float32", {"x": floats(1)})
        except InferenceServerException:
            return False
        return True

    def meanwhile() -> None:
        wait_until(lambda: not answered(), "no place is left")
        status, words = Triton(server, "grpc").refusal("float32", {"x": floats(1)})
        assert (status, f"{CALLS_MAX} calls are under way here" in words) == ("UNAVAILABLE", True)
        assert health(server.ready.oip_grpc) == SERVING

    async def hold() -> None:
        """Streams on a connection of their own, on which nothing is ever asked."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(str(server.ready.oip_grpc), options) as channel:
            stream = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
            streams = [stream() for _ in range(CALLS_MAX)]
            await asyncio.to_thread(meanwhile)
            for each in streams:
                each.cancel()

    asyncio.run(hold())
    wait_until(answered, "there are places again")
