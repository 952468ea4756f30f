"""Requests that are no request to this model: each is refused with its code, and the session goes on. Known failures
B1, B2, B9, B11, B12."""

import math
from typing import Any

import numpy as np
import pytest
from tests.inputs import inputs_root
from tests.integration.hostile.arena import (
    ECHO_FLOATS,
    Model,
    echo,
    expect_answers,
    expect_failure,
    floats,
    gather,
    is_answer,
    slow,
)
from tests.peer import Peer
from tests.serving import RunningServer

from tickpath.wire import Code, Failure, Infer, Ping, Pong, Result

ROW_BYTES = 4 * ECHO_FLOATS

BAD: list[tuple[str, dict[str, Any], Code, str]] = [
    ("an unknown handle", {"handle": 99}, Code.UNKNOWN_MODEL, "no model has handle 99"),
    ("a huge handle", {"handle": 2**64 - 1}, Code.UNKNOWN_MODEL, str(2**64 - 1)),
    ("no rows", {"rows": 0}, Code.BAD_SHAPE, "1 to 8 rows, 0 came"),
    ("no rows and no bytes", {"rows": 0, "inputs": [b""]}, Code.BAD_SHAPE, "1 to 8 rows, 0 came"),
    ("a row too many", {"rows": 9, "inputs": [bytes(9 * ROW_BYTES)]}, Code.BAD_SHAPE, "1 to 8 rows, 9 came"),
    ("2^63 rows", {"rows": 2**63}, Code.BAD_SHAPE, f"{2**63} came"),
    ("2^64-1 rows", {"rows": 2**64 - 1}, Code.BAD_SHAPE, f"{2**64 - 1} came"),
    ("rows that overflow to what came", {"rows": 2**56 + 1}, Code.BAD_SHAPE, "came"),
    ("no inputs", {"inputs": []}, Code.BAD_SHAPE, "takes 1 input (x), 0 came"),
    ("an input too many", {"inputs": [bytes(ROW_BYTES)] * 2}, Code.BAD_SHAPE, "takes 1 input (x), 2 came"),
    ("a byte short", {"inputs": [bytes(ROW_BYTES - 1)]}, Code.BAD_SHAPE, "256 bytes at 1 row, 255 came"),
    ("a byte over", {"inputs": [bytes(ROW_BYTES + 1)]}, Code.BAD_SHAPE, "256 bytes at 1 row, 257 came"),
    ("no bytes", {"inputs": [b""]}, Code.BAD_SHAPE, "256 bytes at 1 row, 0 came"),
    ("float64", {"inputs": [bytes(2 * ROW_BYTES)]}, Code.BAD_SHAPE, "float32[N,64]: 256 bytes at 1 row, 512 came"),
    ("fewer rows than said", {"rows": 2}, Code.BAD_SHAPE, "512 bytes at 2 rows, 256 came"),
    ("nil where an input must be", {"inputs": [None]}, Code.BAD_SHAPE, "is required"),
    ("a priority", {"priority": 4}, Code.BAD_VALUE, "priority must be under 4 here, 4 came"),
    ("a feed", {"feed": 3}, Code.BAD_VALUE, "feed must be 0"),
    ("a huge feed", {"feed": 2**64 - 1}, Code.BAD_VALUE, "feed must be 0"),
    ("one of two inputs", {"handle": Model.TWO, "inputs": [bytes(48)]}, Code.BAD_SHAPE, "(data, state), 1 came"),
    ("two in the wrong order", {"handle": Model.TWO, "inputs": [bytes(20), bytes(48)]}, Code.BAD_SHAPE, "48 bytes"),
    ("nil for the second", {"handle": Model.TWO, "inputs": [bytes(48), None]}, Code.BAD_SHAPE, "'state'"),
    ("a byte over in the second", {"handle": Model.TWO, "inputs": [bytes(48), bytes(21)]}, Code.BAD_SHAPE, "21 came"),
    (
        "a row too many for a thread",
        {"handle": Model.SLOW, "rows": 2, "inputs": [bytes(32)]},
        Code.BAD_SHAPE,
        "takes 1 row, 2",
    ),
    ("a budget that is over", {"budget_ns": 1}, Code.DEADLINE, "budget of 1 ns"),
]


def test_each_is_refused_and_the_session_goes_on(usual: RunningServer) -> None:
    """On one session, one after the other, a good request behind each; then all again in one segment."""
    bad = [echo(2 * number, **changes) for number, (_, changes, _, _) in enumerate(BAD, 1)]
    good = [echo(2 * number + 1) for number in range(1, len(BAD) + 1)]

    def check(peer: Peer, number: int) -> None:
        name, _, code, part = BAD[number]
        assert part in expect_failure(peer, bad[number].id, code), name
        expect_answers(peer, good[number])

    with usual.peer() as peer:
        for number in range(len(BAD)):
            peer.send(bad[number], good[number])
            check(peer, number)
        peer.send(*[request for pair in zip(bad, good, strict=True) for request in pair])
        for number in range(len(BAD)):
            check(peer, number)


# -- values --


def with_value(value: float, place: int, rows: int = 1) -> bytes:
    array = np.ones(rows * ECHO_FLOATS, np.float32)
    array[place] = value
    return array.tobytes()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_values_that_are_no_number(usual: RunningServer, value: float, rows: int) -> None:
    """Refused in the first and the last place, and no trace is left for the next request; passed where that is asked
    for."""
    with usual.peer() as peer:
        for place in (0, rows * ECHO_FLOATS - 1):
            data = with_value(value, place, rows)
            peer.send(echo(1, inputs=[data], rows=rows), echo(2))
            assert "NaN or an infinity" in expect_failure(peer, 1, Code.BAD_VALUE)
            expect_answers(peer, echo(2))
            request = echo(3, handle=Model.PASSING, inputs=[data], rows=rows)
            peer.send(request)
            expect_answers(peer, request)


def test_numbers_at_the_edge_are_numbers(usual: RunningServer) -> None:
    edge = np.finfo(np.float32)
    with usual.peer() as peer:
        for value in (edge.max, edge.min, edge.smallest_subnormal, -0.0):
            request = echo(1, inputs=[np.full(ECHO_FLOATS, value, np.float32).tobytes()])
            peer.send(request)
            expect_answers(peer, request)


@pytest.mark.parametrize("bad", [2, 127, 255])
@pytest.mark.parametrize("rows", [1, 3])
def test_bools_that_are_neither_0_nor_1(usual: RunningServer, bad: int, rows: int) -> None:
    good = Infer(2, Model.BOOLS, rows, [memoryview(bytes([1, 0, 0, 1]) * rows)])
    with usual.peer() as peer:
        data = memoryview(bytes(4 * rows - 1) + bytes([bad]))
        peer.send(Infer(1, Model.BOOLS, rows, [data]), good)
        assert "bool" in expect_failure(peer, 1, Code.BAD_VALUE)
        reply = peer.receive()
        assert isinstance(reply, Result)
        assert bytes(reply.outputs[0]) == bytes([0, 1, 1, 0]) * rows


# -- zero rows, which end the whole process inside onnxruntime --

RECURRENT = [(Model.GRU, [100 * 40]), (Model.LSTM_A, [50 * 100]), (Model.TWO, [12, 5]), (Model.GONNX, [12, 5])]


@pytest.mark.parametrize(("handle", "counts"), RECURRENT, ids=[handle.name for handle, _ in RECURRENT])
def test_zero_rows_never_reach_a_recurrent_model(usual: RunningServer, handle: Model, counts: list[int]) -> None:
    if handle is Model.GONNX and inputs_root() is None:
        pytest.skip("gonnx/gru.onnx is one of the real models, and TICKPATH_INPUTS names no folder of them")
    row: list[memoryview | None] = [memoryview(floats(0, count)) for count in counts]
    empty: list[memoryview | None] = [memoryview(b"") for _ in counts]
    with usual.peer() as peer:
        peer.send(Infer(1, handle, 0, empty), Infer(2, handle, 0, row), Infer(3, handle, 1, empty))
        for request_id in (1, 2, 3):
            expect_failure(peer, request_id, Code.BAD_SHAPE)
        peer.send(Infer(4, handle, 1, row))
        assert isinstance(peer.receive(), Result)


# -- too many at once --


def test_an_id_that_is_in_flight(usual: RunningServer) -> None:
    """Refused, on any model; and the first one is answered as if nothing had happened."""
    before, first = [slow(number) for number in range(11, 19)], slow(5)
    with usual.peer() as peer:
        peer.send(*before, first, slow(5, Model.CROWDED), echo(5), echo(6))
        replies = [peer.receive() for _ in range(len(before) + 4)]
        of_5 = [reply for reply in replies if isinstance(reply, Result | Failure) and reply.id == 5]
        for refusal in of_5[:2]:
            assert isinstance(refusal, Failure)
            assert refusal.code is Code.BAD_VALUE
            assert "id 5 is still in flight" in refusal.message
        assert is_answer(of_5[2], first)
        peer.send(echo(5))  # answered, so it may be used again
        expect_answers(peer, echo(5))


def test_more_in_flight_than_a_session_may_have(usual: RunningServer) -> None:
    """32: the rest is refused at once, of whatever model. Ping is no request."""
    requests = [*map(slow, range(1, 60)), echo(70)]
    with usual.peer() as peer:
        peer.send(Ping(80), *requests)
        assert isinstance(peer.receive(), Pong)
        refused = gather(peer, *requests)
    assert {failure.code for failure in refused} == {Code.OVERLOADED}
    assert "32 requests of this session are in flight" in refused[-1].message
    assert 0 < len(refused) <= len(requests) - 32


def test_a_queue_that_is_full(usual: RunningServer) -> None:
    """Refused at once, while those before wait; other models are not concerned."""
    requests = [slow(number, Model.CROWDED) for number in range(1, 31)]
    with usual.peer() as peer, usual.peer() as other:
        peer.send(*requests)
        other.send(slow(1))
        refused = gather(peer, *requests)
        expect_answers(other, slow(1))
    assert {failure.code for failure in refused} == {Code.OVERLOADED}
    assert "model 'crowded'" in refused[0].message
    assert "raise its queue_max" in refused[0].message
    assert 0 < len(refused) < len(requests) - 1
