"""The C++ client and a server whose every word is the test's: what is asked, answered and refused."""

from collections.abc import Callable
from pathlib import Path
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
    Goodbye,
    Infer,
    Limits,
    ModelInfo,
    ModelList,
    Models,
    Ping,
    Pong,
    TensorInfo,
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
