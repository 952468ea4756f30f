"""What every client does, whatever it runs on, over TCP and Unix sockets."""

from collections.abc import Callable

import numpy as np
import pytest
from tests.unit.client.callers import MakeCaller
from tests.unit.client.scripted import ECHO, LIMITS, STAMPS, WIDE, Script, ScriptedServer, Session, echoed

import tickpath.client
from tickpath.client import (
    BadShapeError,
    BadValueError,
    ConnectError,
    ConnectionLostError,
    OverloadedError,
    Prediction,
    ProtocolError,
    RefusedError,
    RequestTimeoutError,
    UnauthenticatedError,
    UnknownModelError,
)
from tickpath.wire import (
    PROTOCOL_VERSION,
    Cancel,
    Code,
    Failure,
    Goodbye,
    Hello,
    Infer,
    Limits,
    ModelInfo,
    ModelList,
    Models,
    Ping,
    Pong,
    Result,
    Welcome,
)

MakeServer = Callable[..., ScriptedServer]

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def one_echo(session: Session) -> None:
    session.welcome()
    session.echo(session.receive(Infer))
    session.expect_end()


def test_a_prediction_has_outputs_version_and_stamps(make_caller: MakeCaller, make_server: MakeServer) -> None:
    with make_server(one_echo) as server, make_caller(server.address) as client:
        prediction = client.infer("echo", X)
    np.testing.assert_array_equal(prediction["y"], X)
    assert prediction["y"].dtype == np.float32
    assert list(prediction.outputs) == ["y"]
    assert (prediction.version, prediction.stamps) == ("7", STAMPS)
    assert prediction.stages == {"receive": 10, "queue": 20, "input": 30, "compute": 40, "output": 50}
    assert prediction.server_ns == sum(prediction.stages.values())


def test_hello_says_who_calls_and_welcome_is_kept(make_caller: MakeCaller, make_server: MakeServer) -> None:
    def script(session: Session) -> None:
        assert session.welcome() == Hello(PROTOCOL_VERSION, "desk 4", "secret")
        session.expect_end()

    with make_server(script) as server, make_caller(server.address, name="desk 4", token="secret") as client:
        assert client.limits == LIMITS
        assert client.server == "scripted"


def test_a_request_carries_what_was_asked(make_caller: MakeCaller, make_server: MakeServer) -> None:
    def script(session: Session) -> None:
        session.welcome()
        infer = session.receive(Infer)
        assert (infer.handle, infer.rows, infer.budget_ns, infer.event_time_ns) == (ECHO.handle, 2, 500_000, 2**63)
        assert [bytes(data) for data in infer.inputs if data is not None] == [X.tobytes()]
        session.echo(infer)
        session.expect_end()

    with make_server(script) as server, make_caller(server.address) as client:
        client.infer("echo", X, budget_ns=500_000, event_time_ns=2**63)


@pytest.mark.parametrize("bad", [{"budget_ns": -1}, {"event_time_ns": 2**64}])
def test_numbers_that_do_not_travel_are_refused_before_sending(
    make_caller: MakeCaller, make_server: MakeServer, bad: dict[str, int]
) -> None:
    with make_server(one_echo) as server, make_caller(server.address) as client:
        with pytest.raises(BadValueError, match=next(iter(bad))):
            client.infer("echo", X, **bad)
        client.infer("echo", X)


def test_ping_and_models(make_caller: MakeCaller, make_server: MakeServer) -> None:
    def script(session: Session) -> None:
        session.welcome()
        session.send(Pong(session.receive(Ping).id, 123_456))
        session.send(ModelList(session.receive(Models).id, (ECHO, WIDE)))
        session.expect_end()

    with make_server(script) as server, make_caller(server.address) as client:
        assert client.ping() == 123_456
        assert client.model("echo") == ECHO
        assert client.models() == (ECHO, WIDE)
        assert client.model("wide") == WIDE


def test_an_unknown_name_is_looked_up_once_more(make_caller: MakeCaller, make_server: MakeServer) -> None:
    def script(session: Session) -> None:
        session.welcome()
        session.send(ModelList(session.receive(Models).id, (ECHO,)))
        session.send(ModelList(session.receive(Models).id, (ECHO, WIDE)))
        session.expect_end()

    with make_server(script) as server, make_caller(server.address) as client:
        with pytest.raises(UnknownModelError, match=r"no model 'wide' at .*; it serves: 'echo'"):
            client.infer("wide", X)
        assert client.model("wide") == WIDE


def test_a_handle_that_was_taken_away_is_looked_up_anew(make_caller: MakeCaller, make_server: MakeServer) -> None:
    moved = ModelInfo(ECHO.name, "8", 99, ECHO.inputs, ECHO.outputs, ECHO.buckets)

    def script(session: Session) -> None:
        session.welcome()
        session.refuse(session.receive(Infer), Code.UNKNOWN_MODEL)
        session.send(ModelList(session.receive(Models).id, (moved,)))
        infer = session.receive(Infer)
        assert infer.handle == 99
        session.echo(infer)
        session.expect_end()

    with make_server(script) as server, make_caller(server.address) as client:
        with pytest.raises(UnknownModelError):
            client.infer("echo", X)
        client.infer("echo", X)


@pytest.mark.parametrize("code", list(Code), ids=lambda code: code.name)
def test_each_code_has_its_exception(make_caller: MakeCaller, make_server: MakeServer, code: Code) -> None:
    def script(session: Session) -> None:
        session.welcome()
        session.refuse(session.receive(Infer), code, "expected this, got that; do so")
        session.send(Pong(session.receive(Ping).id, 1))
        session.expect_end()

    with make_server(script) as server, make_caller(server.address) as client:
        with pytest.raises(RefusedError, match=r"^expected this, got that; do so$") as caught:
            client.infer("echo", X)
        assert caught.value.code is code
        assert type(caught.value) is getattr(tickpath.client, _class_name(code))
        client.ping()


def _class_name(code: Code) -> str:
    return "".join(word.capitalize() for word in code.name.split("_")) + "Error"


def test_many_come_back_in_the_order_of_the_requests(make_caller: MakeCaller, make_server: MakeServer) -> None:
    def script(session: Session) -> None:
        session.welcome()
        for _ in range(3):
            # Four come before any is answered: they are pipelined. The replies go back to front.
            for infer in reversed([session.receive(Infer) for _ in range(4)]):
                session.echo(infer)
        session.expect_end()

    windows = [np.full((1, 3), number, np.float32) for number in range(12)]
    with make_server(script) as server, make_caller(server.address) as client:
        outcomes = client.infer_many("echo", iter(windows), in_flight=4)
    assert len(outcomes) == 12
    for window, outcome in zip(windows, outcomes, strict=True):
        assert isinstance(outcome, Prediction)
        np.testing.assert_array_equal(outcome["y"], window)


def test_many_never_have_more_in_flight_than_asked_or_allowed(make_caller: MakeCaller, make_server: MakeServer) -> None:
    def script(session: Session) -> None:
        session.welcome(limits=Limits(1024, 3, 16, 1))
        infers = [session.receive(Infer) for _ in range(3)]
        session.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            session.receive(Infer)
        session.socket.settimeout(20)
        for infer in infers:
            session.echo(infer)
        for _ in range(2):
            session.echo(session.receive(Infer))
        session.expect_end()

    with make_server(script) as server, make_caller(server.address) as client:
        outcomes = client.infer_many("echo", [X] * 5, in_flight=100)
    assert [type(outcome) for outcome in outcomes] == [Prediction] * 5


def test_a_refusal_among_many_takes_its_place_and_the_others_go_on(
    make_caller: MakeCaller, make_server: MakeServer
) -> None:
    def script(session: Session) -> None:
        session.welcome()
        session.echo(session.receive(Infer))
        session.refuse(session.receive(Infer), Code.OVERLOADED)
        session.echo(session.receive(Infer))
        session.expect_end()

    with make_server(script) as server, make_caller(server.address) as client:
        outcomes = client.infer_many("echo", [X, X, X[:, :2], X], in_flight=2)
    assert [type(outcome) for outcome in outcomes] == [Prediction, OverloadedError, BadShapeError, Prediction]


def test_many_that_get_no_answer_raise_and_are_taken_back(make_caller: MakeCaller, make_server: MakeServer) -> None:
    def script(session: Session) -> None:
        session.welcome()
        infers = [session.receive(Infer) for _ in range(3)]
        assert {session.receive(Cancel).id for _ in range(3)} == {infer.id for infer in infers}
        session.send(Pong(session.receive(Ping).id, 1))
        session.expect_end()

    with make_server(script) as server, make_caller(server.address) as client:
        with pytest.raises(RequestTimeoutError):
            client.infer_many("echo", [X] * 3, timeout_s=0.05)
        client.ping()


def test_many_of_an_unknown_model_are_asked_for_once(make_caller: MakeCaller, make_server: MakeServer) -> None:
    def script(session: Session) -> None:
        session.welcome()
        session.send(ModelList(session.receive(Models).id, (ECHO,)))
        session.expect_end()

    with (
        make_server(script) as server,
        make_caller(server.address) as client,
        pytest.raises(UnknownModelError, match="'ecko'"),
    ):
        client.infer_many("ecko", [X] * 3)


def test_a_late_reply_is_dropped_and_the_connection_goes_on(make_caller: MakeCaller, make_server: MakeServer) -> None:
    def script(session: Session) -> None:
        session.welcome()
        late = session.receive(Infer)
        assert session.receive(Cancel).id == late.id
        second = session.receive(Infer)
        session.echo(late)
        session.echo(second)
        session.expect_end()

    with make_server(script) as server, make_caller(server.address) as client:
        with pytest.raises(RequestTimeoutError, match=r"no answer from .* within 0\.05 s"):
            client.infer("echo", X, timeout_s=0.05)
        np.testing.assert_array_equal(client.infer("echo", X + 1)["y"], X + 1)


@pytest.mark.parametrize("piece_bytes", [1, 3, 7])
def test_replies_may_come_in_any_pieces(make_caller: MakeCaller, make_server: MakeServer, piece_bytes: int) -> None:
    def script(session: Session) -> None:
        session.welcome()
        data = session.frame(Goodbye("soon"), echoed(session.receive(Infer)))
        for start in range(0, len(data), piece_bytes):
            session.send_bytes(data[start : start + piece_bytes])
        session.expect_end()

    with make_server(script) as server, make_caller(server.address) as client:
        np.testing.assert_array_equal(client.infer("echo", X)["y"], X)


def test_replies_may_come_all_at_once(make_caller: MakeCaller, make_server: MakeServer) -> None:
    def script(session: Session) -> None:
        session.welcome()
        session.send(*[echoed(session.receive(Infer)) for _ in range(5)])
        session.expect_end()

    with make_server(script) as server, make_caller(server.address) as client:
        outcomes = client.infer_many("echo", [X + number for number in range(5)], in_flight=5)
    for number, outcome in enumerate(outcomes):
        assert isinstance(outcome, Prediction)
        # Each has memory of its own: what was received later is not seen in it.
        np.testing.assert_array_equal(outcome["y"], X + number)
        outcome["y"][...] = 0


def test_what_is_not_a_number_travels_as_it_is(make_caller: MakeCaller, make_server: MakeServer) -> None:
    odd = np.array([[np.nan, np.inf, -np.inf]], np.float32)
    odd.view(np.uint32)[0, 0] |= 0x1234  # a NaN has a payload, and it too arrives
    with make_server(one_echo) as server, make_caller(server.address) as client:
        assert client.infer("echo", odd)["y"].tobytes() == odd.tobytes()


def test_a_server_that_sends_before_it_receives_is_not_waited_for_in_vain(
    make_caller: MakeCaller, make_server: MakeServer
) -> None:
    def script(session: Session) -> None:
        session.welcome(WIDE)
        first = session.receive(Infer)
        # 8 MB out while the client has 8 MB to send: one of the two must take in while it gives out.
        session.echo(first)
        session.echo(session.receive(Infer))
        session.expect_end()

    x = np.random.default_rng(1).random((1, 2048, 1024), np.float32)
    with make_server(script) as server, make_caller(server.address) as client:
        outcomes = client.infer_many("wide", [x, x + 1])
    for expected, outcome in zip([x, x + 1], outcomes, strict=True):
        assert isinstance(outcome, Prediction)
        np.testing.assert_array_equal(outcome["y"], expected)


def test_a_request_over_the_servers_frame_limit_is_refused_here(
    make_caller: MakeCaller, make_server: MakeServer
) -> None:
    def script(session: Session) -> None:
        session.welcome(WIDE, ECHO, limits=Limits(1000, 8, 16, 1))
        session.echo(session.receive(Infer))
        session.expect_end()

    with make_server(script) as server, make_caller(server.address) as client:
        with pytest.raises(BadShapeError, match="takes 1000"):
            client.infer("wide", np.zeros((1, 2048, 1024), np.float32))
        client.infer("echo", X)


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
