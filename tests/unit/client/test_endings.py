"""How a connection ends, for every client: garbage, death, Goodbye, refusal; and what the next call does."""

from collections.abc import Callable

import numpy as np
import pytest
from tests.unit.client.callers import MakeCaller
from tests.unit.client.scripted import ECHO, LIMITS, STAMPS, Script, ScriptedServer, Session, echoed, one_echo

from tickpath.client import (
    ConnectError,
    ConnectionLostError,
    Prediction,
    ProtocolError,
    UnauthenticatedError,
)
from tickpath.wire import (
    PROTOCOL_VERSION,
    Code,
    Failure,
    Goodbye,
    Hello,
    Infer,
    ModelInfo,
    Ping,
    Pong,
    Result,
    Welcome,
)

MakeServer = Callable[..., ScriptedServer]

X = np.arange(6, dtype=np.float32).reshape(2, 3)


GARBAGE: dict[str, Callable[[Session, Infer], bytes]] = {
    "http": lambda session, infer: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "length of nothing": lambda session, infer: b"\0\0\0\0",
    "big-endian length": lambda session, infer: (16).to_bytes(4, "big") + bytes(16),
    "not MessagePack": lambda session, infer: b"\x04\0\0\0\xc1\xc1\xc1\xc1",
    "nested": lambda session, infer: (200_000).to_bytes(4, "little") + b"\x91" * 200_000,
    "a client's message": lambda session, infer: b"\x03\0\0\0\x92\x0c\x01",
    "an id never asked": lambda session, infer: session.frame(Pong(infer.id + 5, 1)),
    "the wrong kind": lambda session, infer: session.frame(Pong(infer.id, 1)),
    "a byte too few": lambda session, infer: session.frame(Result(infer.id, "7", [memoryview(bytes(23))], STAMPS)),
    "a row too many": lambda session, infer: session.frame(Result(infer.id, "7", [memoryview(bytes(36))], STAMPS)),
    "no outputs": lambda session, infer: session.frame(Result(infer.id, "7", [], STAMPS)),
    "an output too many": lambda session, infer: session.frame(
        Result(infer.id, "7", [memoryview(bytes(24)), memoryview(b"")], STAMPS)
    ),
    "a second Welcome": lambda session, infer: session.frame(Welcome(PROTOCOL_VERSION, "again", LIMITS, (ECHO,))),
}


@pytest.mark.parametrize("kind", list(GARBAGE))
def test_garbage_is_a_protocol_error_and_the_next_call_connects_anew(
    make_caller: MakeCaller, make_server: MakeServer, kind: str
) -> None:
    def script(session: Session) -> None:
        session.welcome()
        session.send_bytes(GARBAGE[kind](session, session.receive(Infer)))
        session.expect_end()

    with make_server(script, one_echo) as server, make_caller(server.address) as client:
        with pytest.raises(ProtocolError, match="what the protocol does not allow"):
            client.infer("echo", X)
        np.testing.assert_array_equal(client.infer("echo", X)["y"], X)


def _half_a_reply(session: Session) -> None:
    session.welcome()
    session.send_bytes(session.frame(echoed(session.receive(Infer)))[:-5])


def _no_reply(session: Session) -> None:
    session.welcome()
    session.receive(Infer)


def _reset(session: Session) -> None:
    session.welcome()
    session.receive(Infer)
    session.reset()


@pytest.mark.parametrize("ending", [_half_a_reply, _no_reply, _reset])
def test_a_request_in_flight_at_the_end_is_lost_and_never_sent_again(
    make_caller: MakeCaller, make_server: MakeServer, ending: Script
) -> None:
    moved = ModelInfo(ECHO.name, "8", 42, ECHO.inputs, ECHO.outputs, ECHO.buckets)

    def after(session: Session) -> None:
        session.welcome(moved)
        infer = session.receive(Infer)
        # The handle is the new connection's own, and only the new request comes.
        assert infer.handle == 42
        assert [bytes(data) for data in infer.inputs if data is not None] == [(X + 1).tobytes()]
        session.echo(infer)
        session.expect_end()

    with make_server(ending, after) as server, make_caller(server.address) as client:
        with pytest.raises(ConnectionLostError, match="may have run"):
            client.infer("echo", X)
        np.testing.assert_array_equal(client.infer("echo", X + 1)["y"], X + 1)


def test_many_at_the_end_of_a_connection_are_lost(make_caller: MakeCaller, make_server: MakeServer) -> None:
    def script(session: Session) -> None:
        session.welcome()
        session.echo(session.receive(Infer))
        session.receive(Infer)

    with (
        make_server(script) as server,
        make_caller(server.address, reconnect=None) as client,
        pytest.raises(ConnectionLostError),
    ):
        client.infer_many("echo", [X] * 4)


def test_without_a_policy_only_connect_connects(make_caller: MakeCaller, make_server: MakeServer) -> None:
    with make_server(_no_reply, one_echo) as server, make_caller(server.address, reconnect=None) as client:
        with pytest.raises(ConnectionLostError):
            client.infer("echo", X)
        with pytest.raises(ConnectError, match=r"call connect\(\) first"):
            client.infer("echo", X)
        client.connect()
        client.infer("echo", X)


def test_after_goodbye_answers_still_come_and_the_next_call_goes_elsewhere(
    make_caller: MakeCaller, make_server: MakeServer
) -> None:
    def script(session: Session) -> None:
        session.welcome()
        infers = [session.receive(Infer) for _ in range(2)]
        session.send(Goodbye("draining"), *map(echoed, infers))
        session.expect_end()

    with make_server(script, one_echo) as server, make_caller(server.address) as client:
        outcomes = client.infer_many("echo", [X, X, X + 1], in_flight=2)
    assert [type(outcome) for outcome in outcomes] == [Prediction] * 3


def test_goodbye_to_an_idle_client_costs_no_request(make_caller: MakeCaller, make_server: MakeServer) -> None:
    def script(session: Session) -> None:
        session.welcome()
        ping = session.receive(Ping)
        session.send(Goodbye("draining"), Pong(ping.id, 1))
        session.expect_end()

    with make_server(script, one_echo) as server, make_caller(server.address) as client:
        client.ping()
        client.infer("echo", X)


def test_a_session_that_is_ended_says_why(make_caller: MakeCaller, make_server: MakeServer) -> None:
    def script(session: Session) -> None:
        session.welcome()
        session.receive(Infer)
        session.send(Failure(0, Code.BAD_FRAME, "a frame took 5 s"))
        session.expect_end()

    with (
        make_server(script) as server,
        make_caller(server.address) as client,
        pytest.raises(ConnectionLostError, match="BAD_FRAME: a frame took 5 s"),
    ):
        client.infer("echo", X)


def test_a_refused_session_raises_its_code(make_caller: MakeCaller, make_server: MakeServer) -> None:
    def script(session: Session) -> None:
        session.receive(Hello)
        session.send(Failure(0, Code.UNAUTHENTICATED, "a token is needed"))
        session.expect_end()

    with (
        make_server(script) as server,
        pytest.raises(UnauthenticatedError, match="a token is needed"),
        make_caller(server.address),
    ):
        pass


def test_another_protocol_is_refused(make_caller: MakeCaller, make_server: MakeServer) -> None:
    def script(session: Session) -> None:
        session.receive(Hello)
        session.send(Welcome(PROTOCOL_VERSION + 1, "newer", LIMITS, (ECHO,)))
        session.expect_end()

    with make_server(script) as server, pytest.raises(ProtocolError, match="protocol 2"), make_caller(server.address):
        pass


def test_who_closes_before_welcome_is_no_server(make_caller: MakeCaller, make_server: MakeServer) -> None:
    def script(session: Session) -> None:
        session.receive(Hello)

    with (
        make_server(script) as server,
        pytest.raises(ConnectError, match="no Welcome came"),
        make_caller(server.address),
    ):
        pass


def test_after_close_calls_are_refused_until_connect(make_caller: MakeCaller, make_server: MakeServer) -> None:
    def script(session: Session) -> None:
        session.welcome()
        session.receive(Goodbye)
        session.expect_end()

    with make_server(script, one_echo) as server, make_caller(server.address) as client:
        client.close()
        with pytest.raises(ConnectError, match="not connected"):
            client.infer("echo", X)
        client.connect()
        client.infer("echo", X)
