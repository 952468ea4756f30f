"""The C++ client and a server that breaks off, breaks the rules, or takes nothing."""

from collections.abc import Callable
from threading import Event
from typing import Final

import numpy as np
import pytest
from tests.cpp.driver import Driver, output
from tests.unit.client.scripted import (
    ECHO,
    LIMITS,
    STAMPS,
    WIDE,
    Script,
    ScriptedServer,
    Session,
    echoed,
    one_echo,
)

from tickpath.wire import (
    Code,
    Failure,
    Infer,
    ModelInfo,
    Pong,
    Result,
    ServerMessage,
    TensorInfo,
    Welcome,
    encode_frame,
)

X: Final = np.array([[1.5, -2.0, 0.25]], np.float32)
MakeServer = Callable[..., ScriptedServer]


def tcp(*scripts: Script) -> ScriptedServer:
    return ScriptedServer(None, *scripts)


@pytest.mark.parametrize("wait", ["block", "spin"])
def test_a_lost_connection_is_told_and_another_can_be_opened(client: Driver, wait: str) -> None:
    def dies(session: Session) -> None:
        session.welcome()
        session.receive(Infer)
        session.reset()

    with tcp(dies, one_echo) as server:
        client.connect(server.address, wait)
        said = client.infer("echo", X)
        assert (said["status"], said["connected"]) == ("LOST", False)
        assert "may have run" in said["error"]
        assert client.infer("echo", X)["status"] == "NOT_CONNECTED"
        assert client.connect(server.address, wait)["status"] == "OK"
        assert client.infer("echo", X)["status"] == "OK"
        client.say("close")


def test_answers_before_the_end_are_not_lost(client: Driver) -> None:
    def script(session: Session) -> None:
        session.welcome()
        asked = [session.receive(Infer) for _ in range(3)]
        session.send(echoed(asked[0]), echoed(asked[1]), Failure(0, Code.INTERNAL, "a fault"))

    with tcp(script) as server:
        client.connect(server.address)
        for _ in range(3):
            client.send("echo", X)
        assert [client.receive()["status"] for _ in range(2)] == ["OK", "OK"]
        said = client.receive()
    assert said["status"] == "LOST"
    assert "INTERNAL: a fault" in said["error"]


def test_a_session_that_is_refused(client: Driver) -> None:
    def full(session: Session) -> None:
        session.send(Failure(0, Code.OVERLOADED, "1024 sessions are open"))

    def silent(session: Session) -> None:
        session.next_message()
        session.expect_end()

    def closes(session: Session) -> None:
        session.next_message()

    def tomorrow(session: Session) -> None:
        session.next_message()
        session.send(Welcome(2, "tomorrow", LIMITS, ()))
        session.expect_end()

    with tcp(full, silent, closes, tomorrow) as server:
        assert client.connect(server.address)["status"] == "OVERLOADED"
        said = client.connect(server.address, timeout_ms=30)
        assert (said["status"], "no Welcome came in time" in said["error"]) == ("UNREACHABLE", True)
        said = client.connect(server.address)
        assert (said["status"], "ended without a Welcome" in said["error"]) == ("UNREACHABLE", True)
        assert client.connect(server.address)["status"] == "PROTOCOL_ERROR"
    assert client.connect(server.address)["status"] == "UNREACHABLE"


@pytest.mark.parametrize(
    "address", ["", "7070", "host", "::1:7070", "host:0", "host:70000", "host:7o70", "unix:", "unix:" + "x" * 200]
)
def test_addresses_that_can_not_be_read(client: Driver, address: str) -> None:
    assert client.connect(address or "''")["status"] == "BAD_ADDRESS"


def _one_byte_short(infer: Infer) -> Result:
    return Result(infer.id, "7", [memoryview(bytes(11))], STAMPS)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(_one_byte_short, id="bytes"),
        pytest.param(lambda infer: Result(infer.id, "7", [], STAMPS), id="outputs"),
        pytest.param(lambda infer: echoed(Infer(infer.id + 1, 0, 1, infer.inputs)), id="id"),
        pytest.param(lambda infer: Pong(infer.id, 1), id="kind"),
        pytest.param(lambda infer: Welcome(1, "again", LIMITS, (ECHO,)), id="welcome"),
        pytest.param(lambda infer: echoed(infer, "7" * 2_000_000), id="long"),
    ],
)
def test_answers_that_the_protocol_does_not_allow(client: Driver, answer: Callable[[Infer], ServerMessage]) -> None:
    _refused_by(client, lambda infer: encode_frame(answer(infer)))


@pytest.mark.parametrize("data", [b"HTTP/1.1 400 Bad", bytes(4), b"\3\0\0\0\xc1\xc1\xc1", b"\4\0\0\0\x92\x0e\xa1\xff"])
def test_bytes_that_the_protocol_does_not_allow(client: Driver, data: bytes) -> None:
    _refused_by(client, lambda _: data)


def _refused_by(client: Driver, answer: Callable[[Infer], bytes]) -> None:
    def script(session: Session) -> None:
        session.welcome()
        try:
            session.send_bytes(answer(session.receive(Infer)))
            session.expect_end()
        except ConnectionError:
            pass  # it left in the middle of what it does not take

    with tcp(script) as server:
        client.connect(server.address)
        said = client.infer("echo", X)
    assert (said["status"], said["connected"]) == ("PROTOCOL_ERROR", False)
    assert "what the protocol does not allow" in said["error"]


def test_a_server_that_sends_before_it_receives_is_not_waited_for_in_vain(client: Driver) -> None:
    def script(session: Session) -> None:
        session.welcome(WIDE)
        first = session.receive(Infer)
        session.echo(first)  # 8 MB out while the client has 8 MB to send
        session.echo(session.receive(Infer))
        session.expect_end()

    x = np.random.default_rng(1).random((1, 2048, 1024), np.float32)
    with tcp(script) as server:
        client.connect(server.address, receive_bytes=20 << 20)
        assert [client.send("wide", x + number)["status"] for number in range(2)] == ["OK", "OK"]
        for number in range(2):
            assert output(client.receive()).tobytes() == (x + number).tobytes()
        client.say("close")


def test_answers_that_might_not_fit_are_not_asked_for(client: Driver) -> None:
    def script(session: Session) -> None:
        session.welcome(WIDE)
        session.echo(session.receive(Infer))
        session.expect_end()

    x = np.zeros((1, 2048, 1024), np.float32)
    with tcp(script) as server:
        client.connect(server.address)
        assert client.send("wide", x)["status"] == "OK"
        said = client.send("wide", x)
        assert said["status"] == "OVERLOADED"
        assert "receive_bytes" in said["error"]
        assert client.receive()["status"] == "OK"
        client.say("close")


def test_a_server_that_takes_nothing(client: Driver) -> None:
    """Half a request is out: the connection can't be used any more."""

    def script(session: Session) -> None:
        session.welcome(WIDE)
        assert session.socket.recv(1, 0x2)  # MSG_PEEK: it has come, and is not taken
        client_done.wait(20)

    client_done = Event()
    with tcp(script) as server:
        client.connect(server.address)
        said = client.send("wide", np.zeros((1, 2048, 1024), np.float32), timeout_ms=50)
        client_done.set()
    assert (said["status"], said["connected"]) == ("TIMED_OUT", False)


@pytest.mark.parametrize(
    "info",
    [
        TensorInfo("x", "bfloat16", (1, 3), 0),
        TensorInfo("x", "float32", (1, 3), 2),
        TensorInfo("x", "float32", (0, 3), 0),
        TensorInfo("x", "float32", (2**32, 2**32), 0),
        TensorInfo("x", "float64", (2**30, 2**30, 16), -1),
    ],
)
def test_a_senseless_description_is_the_servers_fault(client: Driver, info: TensorInfo) -> None:
    def script(session: Session) -> None:
        session.welcome(ModelInfo("odd", "1", 1, (info,), (), (1, 2**63)), ECHO)
        session.echo(session.receive(Infer))
        session.expect_end()

    with tcp(script) as server:
        client.connect(server.address)
        assert client.infer("odd", X)["status"] == "PROTOCOL_ERROR"
        assert client.infer("echo", X)["status"] == "OK"
        client.say("close")
