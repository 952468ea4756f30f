"""What a pool says on its connections, word by word: hedges and their taking back, Goodbye, budgets, keys, pings."""

import threading
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import numpy as np
import pytest
from tests.unit.client.pools import MakePool
from tests.unit.client.scripted import Script, ScriptedServer, Session, echoed, one_echo

from tickpath.client import (
    BadShapeError,
    DeadlineError,
    Health,
    Hedge,
    OverloadedError,
    Prediction,
    RefusedError,
    RequestTimeoutError,
    SupersededError,
)
from tickpath.client.pool.hedging import SAMPLES_MIN
from tickpath.wire import Cancel, Code, Goodbye, Infer, Ping, Pong

X = np.arange(3, dtype=np.float32).reshape(1, 3)


def refusing(*codes: Code) -> Script:
    def script(session: Session) -> None:
        session.welcome()
        for code in codes:
            session.refuse(session.receive(Infer), code)
        session.expect_end()

    return script


def test_a_hedge_wins_and_the_loser_is_cancelled(make_pool: MakePool, started: Callable[..., ScriptedServer]) -> None:
    """The second server answers; the first is told to stop, and what it says all the same reaches nobody."""
    stalled, answered = threading.Event(), threading.Event()
    numbers: list[float] = []

    def script(session: Session) -> None:
        session.welcome()
        while isinstance(message := session.next_message(), Infer | Cancel):
            if isinstance(message, Cancel):
                continue  # of a hedge that both answered
            row = np.frombuffer(message.inputs[0] or b"", np.float32)
            if row[0] != -1 or stalled.is_set():
                numbers.append(float(row[0]))
                session.echo(message)
                continue
            stalled.set()
            while session.receive(Cancel).id != message.id:
                pass
            session.echo(message)  # too late
            answered.set()

    with make_pool(started(script), started(script), hedge=Hedge(percentile=50, share_max=1)) as pool:
        for number in range(SAMPLES_MIN + 1):
            pool.infer("echo", np.full((1, 3), number, np.float32))
        np.testing.assert_array_equal(pool.infer("echo", np.full((1, 3), -1, np.float32))["y"], -np.ones((1, 3)))
        assert answered.wait(20)
        for number in range(20):
            prediction = pool.infer("echo", np.full((1, 3), number, np.float32))
            np.testing.assert_array_equal(prediction["y"], np.full((1, 3), number))
        assert [server.in_flight for server in pool.servers] == [0, 0]
    assert numbers.count(-1.0) == 1


@pytest.mark.parametrize(
    ("code", "error"), [(Code.NOT_READY, None), (Code.OVERLOADED, None), (Code.DEADLINE, DeadlineError)]
)
def test_a_refusal_goes_elsewhere_or_stands(
    make_pool: MakePool, started: Callable[..., ScriptedServer], code: Code, error: type[RefusedError] | None
) -> None:
    def script(session: Session) -> None:
        session.welcome()
        message = session.next_message()
        if isinstance(message, Infer) and not refused.is_set():
            refused.set()
            session.refuse(message, code)
            message = session.next_message()
        if isinstance(message, Infer):
            session.echo(message)
            session.expect_end()

    refused = threading.Event()
    with make_pool(started(script), started(script)) as pool:
        if error is None:
            np.testing.assert_array_equal(pool.infer("echo", X)["y"], X)
        else:
            with pytest.raises(error):
                pool.infer("echo", X)
    assert refused.is_set()


def test_when_all_are_overloaded_the_caller_is_told(
    make_pool: MakePool, started: Callable[..., ScriptedServer]
) -> None:
    servers = [started(refusing(Code.OVERLOADED)) for _ in range(2)]
    with make_pool(*servers) as pool, pytest.raises(OverloadedError):
        pool.infer("echo", X)


def test_what_waits_on_a_draining_server_is_answered_there(
    make_pool: MakePool, started: Callable[..., ScriptedServer]
) -> None:
    """Goodbye while requests are in flight: they are answered, new ones go elsewhere, and nothing is sent twice."""
    rows: list[bytes] = []
    lock = threading.Lock()
    drained = threading.Event()

    def script(session: Session) -> None:
        session.welcome()
        infers = []
        while isinstance(message := session.next_message(), Infer):
            with lock:
                rows.append(bytes(message.inputs[0] or b""))
                drains = not drained.is_set()
                drained.set()
            if drains:
                session.send(Goodbye("draining"))
                infers.append(message)
                session.send(*map(echoed, infers))
                break
            session.echo(message)

    inputs = [np.full((1, 3), number, np.float32) for number in range(40)]
    with make_pool(started(script), started(script)) as pool:
        outcomes = pool.infer_many("echo", inputs, in_flight=4)
    for x, outcome in zip(inputs, outcomes, strict=True):
        assert isinstance(outcome, Prediction)
        np.testing.assert_array_equal(outcome["y"], x)
    assert drained.is_set()


def test_each_of_many_carries_what_one_carries(make_pool: MakePool, started: Callable[..., ScriptedServer]) -> None:
    carried: list[tuple[int, int, int, int]] = []

    def script(session: Session) -> None:
        session.welcome()
        while isinstance(message := session.next_message(), Infer):
            carried.append((message.rows, message.budget_ns, message.event_time_ns, message.priority))
            session.echo(message)

    inputs = [np.zeros((rows, 3), np.float32) for rows in (1, 2, 1)]
    with make_pool(started(script)) as pool:
        options = {"rows": 1, "budget_ns": 10**12, "event_time_ns": 2**63, "priority": 3}
        outcomes = pool.infer_many("echo", inputs, **options)
    assert [type(outcome) for outcome in outcomes] == [Prediction, BadShapeError, Prediction]
    assert carried == [(1, 10**12, 2**63, 3)] * 2


def test_who_is_asked_later_gets_what_is_left_of_the_budget(
    make_pool: MakePool, started: Callable[..., ScriptedServer]
) -> None:
    budgets: list[int] = []

    def script(session: Session) -> None:
        session.welcome()
        message = session.next_message()
        if isinstance(message, Infer):
            budgets.append(message.budget_ns)
            if len(budgets) == 1:
                session.refuse(message, Code.NOT_READY)
                session.expect_end()
            else:
                session.echo(message)
                session.expect_end()

    with make_pool(started(script), started(script)) as pool:
        pool.infer("echo", X, budget_ns=10**12)
    first, second = budgets
    assert first == 10**12
    assert 0 < second < first


def test_a_budget_that_is_over_is_not_sent_on(make_pool: MakePool, started: Callable[..., ScriptedServer]) -> None:
    servers = [started(one_refusal) for _ in range(2)]
    with make_pool(*servers) as pool, pytest.raises(DeadlineError):
        pool.infer("echo", X, budget_ns=1)


def one_refusal(session: Session) -> None:
    """Refuses what comes, if anything does."""
    session.welcome()
    message = session.next_message()
    if isinstance(message, Infer):
        session.refuse(message, Code.NOT_READY)
        session.expect_end()


def test_requests_of_one_key_go_to_one_server(make_pool: MakePool, started: Callable[..., ScriptedServer]) -> None:
    keys: list[set[int]] = [set(), set()]

    def script(place: int) -> Script:
        def speak(session: Session) -> None:
            session.welcome()
            while isinstance(message := session.next_message(), Infer):
                keys[place].add(message.key)
                session.echo(message)

        return speak

    with make_pool(*[started(script(place)) for place in range(2)]) as pool:
        for _ in range(3):
            for key in range(1, 41):
                pool.infer("echo", X, key=key)
    assert keys[0] | keys[1] == set(range(1, 41))
    assert not keys[0] & keys[1]
    assert all(keys)


def test_superseded_stands(make_pool: MakePool, started: Callable[..., ScriptedServer]) -> None:
    def script(session: Session) -> None:
        session.welcome()
        message = session.next_message()
        if isinstance(message, Infer):
            session.refuse(message, Code.SUPERSEDED)
            session.expect_end()

    with make_pool(started(script), started(script)) as pool, pytest.raises(SupersededError):
        pool.infer("echo", X, key=7)


def test_a_server_that_answers_no_ping_is_given_up(make_pool: MakePool, started: Callable[..., ScriptedServer]) -> None:
    """Its request goes to the other, long before the caller's time is over."""

    def script(session: Session) -> None:
        session.welcome()
        while (message := session.next_message()) is not None:
            if hung.is_set() or isinstance(message, Goodbye):
                answers(session, message)
            elif isinstance(message, Infer):
                hung.set()
                while session.next_message() is not None:
                    pass  # hears everything, says nothing
                return
            elif isinstance(message, Ping):
                session.send(Pong(message.id, 1))

    def answers(session: Session, message: object) -> None:
        if isinstance(message, Infer):
            session.echo(message)
        elif isinstance(message, Ping):
            session.send(Pong(message.id, 1))

    hung = threading.Event()
    quick = Health(ping_after_s=0.1, pong_s_max=0.2)
    with make_pool(started(script), started(script), health=quick) as pool:
        np.testing.assert_array_equal(pool.infer("echo", X, timeout_s=60)["y"], X)
    assert hung.is_set()


def test_a_timeout_is_the_callers_and_takes_the_request_back(
    make_pool: MakePool, started: Callable[..., ScriptedServer]
) -> None:
    def script(session: Session) -> None:
        session.welcome()
        infer = session.receive(Infer)
        assert session.receive(Cancel).id == infer.id
        session.echo(infer)
        session.echo(session.receive(Infer))
        session.expect_end()

    with make_pool(started(script)) as pool:
        with pytest.raises(RequestTimeoutError, match="no answer"):
            pool.infer("echo", X, timeout_s=0.05)
        np.testing.assert_array_equal(pool.infer("echo", X + 1)["y"], X + 1)


def test_the_inputs_are_those_of_the_call_wherever_they_go(
    make_pool: MakePool, started: Callable[..., ScriptedServer]
) -> None:
    """A caller's buffer that is filled anew for the next request changes nothing for one that is asked again."""
    refused = threading.Semaphore(10)

    def script(session: Session) -> None:
        session.welcome()
        while isinstance(message := session.next_message(), Infer):
            if refused.acquire(blocking=False):
                session.refuse(message, Code.OVERLOADED)
            else:
                session.echo(message)

    buffer = np.zeros((1, 3), np.float32)

    def inputs() -> Iterator[Any]:
        for number in range(20):
            buffer[...] = number
            yield buffer

    with make_pool(started(script), started(script)) as pool:
        outcomes = pool.infer_many("echo", inputs(), in_flight=8)
    for number, outcome in enumerate(outcomes):
        assert isinstance(outcome, Prediction | OverloadedError)
        if isinstance(outcome, Prediction):
            np.testing.assert_array_equal(outcome["y"], np.full((1, 3), number))


def test_a_call_may_have_all_the_time_there_is(make_pool: MakePool, started: Callable[..., ScriptedServer]) -> None:
    with make_pool(started(one_echo)) as pool:
        np.testing.assert_array_equal(pool.infer("echo", X, timeout_s=inf)["y"], X)
