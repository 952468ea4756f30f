"""What every client does, whatever it runs on, over TCP and Unix sockets."""

from collections.abc import Callable

import numpy as np
import pytest
from tests.unit.client.callers import MakeCaller
from tests.unit.client.scripted import ECHO, LIMITS, STAMPS, WIDE, ScriptedServer, Session, echoed, one_echo

import tickpath.client
from tickpath.client import (
    BadShapeError,
    BadValueError,
    OverloadedError,
    Prediction,
    RefusedError,
    RequestTimeoutError,
    UnknownModelError,
)
from tickpath.wire import (
    PROTOCOL_VERSION,
    Cancel,
    Code,
    Goodbye,
    Hello,
    Infer,
    Limits,
    ModelInfo,
    ModelList,
    Models,
    Ping,
    Pong,
)

MakeServer = Callable[..., ScriptedServer]

X = np.arange(6, dtype=np.float32).reshape(2, 3)


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


def test_each_of_many_carries_what_one_carries(make_caller: MakeCaller, make_server: MakeServer) -> None:
    def script(session: Session) -> None:
        session.welcome()
        for _ in range(2):
            infer = session.receive(Infer)
            assert (infer.rows, infer.budget_ns, infer.event_time_ns, infer.priority) == (1, 500_000, 2**63, 3)
            session.echo(infer)
        session.expect_end()

    with make_server(script) as server, make_caller(server.address) as client:
        options = {"rows": 1, "budget_ns": 500_000, "event_time_ns": 2**63, "priority": 3}
        outcomes = client.infer_many("echo", [X[:1], X, X[:1]], **options)
    assert [type(outcome) for outcome in outcomes] == [Prediction, BadShapeError, Prediction]


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
