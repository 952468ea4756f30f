"""The C++ client and a server whose every word is the test's: what it does when things go wrong."""

from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Final

import numpy as np
import pytest
from tests.cpp.driver import Driver, output
from tests.unit.client.scripted import (
    ECHO,
    LIMITS,
    ROW,
    STAMPS,
    WIDE,
    Script,
    ScriptedServer,
    Session,
    echoed,
    one_echo,
)

from tickpath.wire import (
    Cancel,
    Code,
    Failure,
    Goodbye,
    Infer,
    Limits,
    ModelInfo,
    ModelList,
    Models,
    Ping,
    Pong,
    Result,
    ServerMessage,
    TensorInfo,
    Welcome,
    encode_frame,
)

X: Final = np.array([[1.5, -2.0, 0.25]], np.float32)
MakeServer = Callable[..., ScriptedServer]


@pytest.fixture(params=["tcp", "unix"])
def make_server(request: pytest.FixtureRequest, tmp_path: Path) -> MakeServer:
    path = tmp_path / "s" if request.param == "unix" else None
    return lambda *scripts: ScriptedServer(path, *scripts)


def tcp(*scripts: Script) -> ScriptedServer:
    return ScriptedServer(None, *scripts)


@pytest.mark.parametrize("wait", ["block", "spin"])
def test_an_answer_is_whole_and_as_it_was(client: Driver, make_server: MakeServer, wait: str) -> None:
    odd = np.array([[np.nan, np.inf, -0.0]], np.float32)
    odd.view(np.uint32)[0, 0] |= 0x1234
    with make_server(one_echo) as server:
        said = client.connect(server.address, wait)
        assert (said["status"], said["models"], said["server"]) == ("OK", ["echo"], "scripted")
        said = client.infer("echo", odd)
        client.say("close")
    assert said["status"] == "OK"
    assert (said["version"], said["stamps"]) == ("7", list(STAMPS))
    assert output(said).tobytes() == odd.tobytes()


@pytest.mark.parametrize("wait", ["block", "spin"])
@pytest.mark.parametrize("piece_bytes", [1, 3, 7])
def test_replies_may_come_in_any_pieces(client: Driver, wait: str, piece_bytes: int) -> None:
    def script(session: Session) -> None:
        session.welcome()
        data = session.frame(Goodbye("soon"), echoed(session.receive(Infer)))
        for start in range(0, len(data), piece_bytes):
            session.send_bytes(data[start : start + piece_bytes])
        session.expect_end()

    with tcp(script) as server:
        client.connect(server.address, wait)
        said = client.infer("echo", X)
        assert output(said).tobytes() == X.tobytes()
        assert said["draining"]
        assert client.infer("echo", X)["status"] == "NOT_READY"
        client.say("close")


def test_a_welcome_longer_than_any_buffer(client: Driver) -> None:
    """Welcome comes before anybody knows how large things are."""
    models = tuple(ModelInfo(f"model-{i}", "v" * 200, i, (ROW,), (ROW,), (1,)) for i in range(2000))

    def script(session: Session) -> None:
        session.welcome(*models)
        session.expect_end()

    with tcp(script) as server:
        assert len(client.connect(server.address)["models"]) == 2000
        client.say("close")


@pytest.mark.parametrize("code", Code)
def test_each_code_comes_back(client: Driver, code: Code) -> None:
    def script(session: Session) -> None:
        session.welcome()
        session.refuse(session.receive(Infer), code, "expected this, got that")
        session.echo(session.receive(Infer))
        session.expect_end()

    with tcp(script) as server:
        client.connect(server.address)
        said = client.infer("echo", X)
        assert (said["status"], said["message"]) == (code.name, "expected this, got that")
        assert said["error"] == f"{code.name}: expected this, got that"
        assert client.infer("echo", X)["status"] == "OK"
        client.say("close")


def test_answers_come_in_any_order(client: Driver) -> None:
    def script(session: Session) -> None:
        session.welcome()
        asked = [session.receive(Infer) for _ in range(5)]
        session.send(*[echoed(infer) for infer in reversed(asked)])
        session.expect_end()

    with tcp(script) as server:
        client.connect(server.address)
        sent = {client.send("echo", X + number)["id"]: X + number for number in range(5)}
        assert client.infer("echo", X)["status"] == "MISUSE"
        for request_id in sorted(sent, reverse=True):
            said = client.receive()
            assert said["id"] == request_id
            assert output(said).tobytes() == sent[request_id].tobytes()
        assert client.receive()["status"] == "MISUSE"
        client.say("close")


def test_limits_are_kept(client: Driver) -> None:
    def script(session: Session) -> None:
        session.welcome(ECHO, WIDE, limits=Limits(1000, 2, 16, 1))
        for _ in range(2):
            session.echo(session.receive(Infer))
        session.expect_end()

    with tcp(script) as server:
        client.connect(server.address)
        assert client.infer("wide", np.zeros((1, 2048, 1024), np.float32))["status"] == "BAD_SHAPE"
        assert [client.send("echo", X)["status"] for _ in range(3)] == ["OK", "OK", "OVERLOADED"]
        assert [client.receive()["status"] for _ in range(2)] == ["OK", "OK"]
        client.say("close")


@pytest.mark.parametrize(
    ("inputs", "rows", "status"),
    [
        ([X], 2, "BAD_SHAPE"),
        ([X], 0, "BAD_SHAPE"),
        ([np.tile(X, (8, 1))], 8, "BAD_SHAPE"),
        ([X, X], 1, "BAD_SHAPE"),
        ([], 1, "BAD_SHAPE"),
        ([None], 1, "BAD_SHAPE"),
        ([X.astype(np.float64)], 1, "BAD_DTYPE"),
        ([X.view(np.int32)], 1, "BAD_DTYPE"),
    ],
)
def test_what_does_not_fit_is_refused_here(
    client: Driver, inputs: list[np.ndarray | None], rows: int, status: str
) -> None:
    """The script would fail at a second Infer."""
    with tcp(one_echo) as server:
        client.connect(server.address)
        assert client.infer("echo", *inputs, rows=rows)["status"] == status
        assert client.infer("echo", X)["status"] == "OK"
        client.say("close")


def test_an_optional_input_may_be_left_out(client: Driver) -> None:
    optional = TensorInfo("h", "float32", (1, 3), 0, True)

    def script(session: Session) -> None:
        session.welcome(ModelInfo("state", "1", 1, (ROW, optional), (ROW,), (1,)))
        infer = session.receive(Infer)
        assert infer.inputs[1] is None
        session.echo(infer)
        session.expect_end()

    with tcp(script) as server:
        client.connect(server.address)
        assert client.infer("state", None, X)["status"] == "BAD_SHAPE"
        assert client.infer("state", X, None)["status"] == "OK"
        client.say("close")


@pytest.mark.parametrize("wait", ["block", "spin"])
@pytest.mark.parametrize("timeout_ms", [1, 20])
def test_a_late_answer_is_dropped_and_the_connection_goes_on(client: Driver, wait: str, timeout_ms: int) -> None:
    """1 ms waits in `ppoll`, 20 ms in `recv`."""

    def script(session: Session) -> None:
        session.welcome()
        late = session.receive(Infer)
        assert session.receive(Cancel).id == late.id
        second = session.receive(Infer)
        session.send(echoed(late), echoed(second))
        session.expect_end()

    with tcp(script) as server:
        client.connect(server.address, wait)
        assert client.infer("echo", X, timeout_ms=timeout_ms)["status"] == "TIMED_OUT"
        assert output(client.infer("echo", X + 1)).tobytes() == (X + 1).tobytes()
        client.say("close")


def test_cancel_and_forget(client: Driver) -> None:
    def script(session: Session) -> None:
        session.welcome()
        first, second = session.receive(Infer), session.receive(Infer)
        assert session.receive(Cancel).id == first.id
        assert session.receive(Cancel).id == second.id
        session.refuse(first, Code.CANCELLED)
        session.echo(second)
        session.echo(session.receive(Infer))
        session.expect_end()

    with tcp(script) as server:
        client.connect(server.address)
        first, second = client.send("echo", X)["id"], client.send("echo", X)["id"]
        assert client.say("cancel", first)["in_flight"] == 2
        assert client.say("forget", second)["in_flight"] == 1
        said = client.receive()
        assert (said["status"], said["id"], said["in_flight"]) == ("CANCELLED", first, 0)
        assert client.infer("echo", X)["status"] == "OK"
        client.say("close")


def test_ping_models_and_goodbye(client: Driver) -> None:
    def script(session: Session) -> None:
        session.welcome()
        session.send(Pong(session.receive(Ping).id, 77))
        asked = session.receive(Models)
        assert asked.versions
        old, new = ECHO, ModelInfo("echo", "8", 12, ECHO.inputs, ECHO.outputs, (1,))
        session.send(ModelList(asked.id, (old, new), LIMITS))
        infer = session.receive(Infer)
        assert infer.handle == new.handle
        assert session.receive(Goodbye).reason == "done"
        session.echo(infer)
        session.expect_end()

    with tcp(script) as server:
        client.connect(server.address)
        assert client.say("ping", 5000)["server_ns"] == 77
        assert client.say("models", "versions")["models"] == ["echo@7", "echo@8"]
        assert client.send("echo@8", X)["status"] == "OK"
        assert client.say("goodbye")["status"] == "OK"
        assert client.receive()["status"] == "OK"
        assert client.infer("echo", X)["status"] == "NOT_READY"
        client.say("close")


def test_what_came_meanwhile_is_seen_by_check(client: Driver) -> None:
    def script(session: Session) -> None:
        session.welcome()
        session.send(Pong(session.receive(Ping).id, 1), Goodbye("draining"))
        session.expect_end()

    with tcp(script) as server:
        client.connect(server.address)
        client.say("ping", 5000)
        assert client.say("check")["status"] == "NOT_READY"
        client.say("close")
        assert client.say("check")["status"] == "NOT_CONNECTED"


@pytest.mark.parametrize("wait", ["block", "spin"])
def test_a_lost_connection_is_told_and_another_can_be_opened(
    client: Driver, make_server: MakeServer, wait: str
) -> None:
    def dies(session: Session) -> None:
        session.welcome()
        session.receive(Infer)
        session.reset()

    with make_server(dies, one_echo) as server:
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
        assert client.connect(server.address, timeout_ms=30)["status"] == "UNREACHABLE"
        assert client.connect(server.address)["status"] == "UNREACHABLE"
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
