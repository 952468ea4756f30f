"""Requests that share a run: each gets its own rows, and what its neighbours are makes no difference."""

import msgspec
import numpy as np
from tests.numpy_engine import NumpyEngine, tensor
from tests.unit.test_executor import Waiter

from tickpath.server.admission import Refusal
from tickpath.server.config import ModelConfig
from tickpath.server.lane import Answer, Lane
from tickpath.server.scheduling import Queued, RequestQueue
from tickpath.wire import Code, Infer, Result, decode_server_message

# Rows lie along the first axis of one tensor and along the second of the other.
SPECS = [tensor("x", (1, 3)), tensor("h", (2, 1, 5), 1)]
BUCKETS = (1, 8)


def make_lane() -> Lane:
    return Lane(NumpyEngine(SPECS, SPECS), ModelConfig("m.onnx"), BUCKETS)


def queued(lane: Lane, request_id: int, rows: int, fill: float | None = None) -> Queued:
    rng = np.random.default_rng(request_id)
    arrays = [rng.standard_normal(spec.shape_at(rows)).astype(np.float32) for spec in SPECS]
    if fill is not None:
        arrays[0][0, 0] = fill
    infer = Infer(request_id, 0, rows, [memoryview(array.tobytes()) for array in arrays])
    return Queued(Waiter(), infer, 0, 0, lane.time_of(rows))


def outputs(answer: Answer | Refusal) -> list[bytes]:
    assert isinstance(answer, Answer)
    result = decode_server_message(memoryview(answer.frame)[4:])
    assert isinstance(result, Result)
    return [bytes(data) for data in result.outputs]


def test_each_gets_its_own_rows() -> None:
    lane = make_lane()
    for rows in ((3, 1, 2), (1, 1), (4, 4), (2, 1)):
        turn = tuple(queued(lane, number + 1, count) for number, count in enumerate(rows))
        answers = lane.run_turn(turn)
        for request, answer in zip(turn, answers, strict=True):
            assert [bytes(data or b"") for data in request.infer.inputs] == outputs(answer)
            assert isinstance(answer, Answer)
            assert answer.bucket_index == 1
        ran = [answer for answer in answers if isinstance(answer, Answer)]
        assert [answer.replays for answer in ran] == [1] + [0] * (len(rows) - 1)
        padded = sum(answer.bucket - count for answer, count in zip(ran, rows, strict=True))
        assert padded == BUCKETS[-1] - sum(rows)


def test_a_bad_neighbour_is_refused_alone() -> None:
    lane = make_lane()
    turn = (queued(lane, 1, 1), queued(lane, 2, 2, np.nan), queued(lane, 3, 1))
    first, bad, last = lane.run_turn(turn)
    assert isinstance(bad, Refusal)
    assert bad.code is Code.BAD_VALUE
    for request, answer in ((turn[0], first), (turn[2], last)):
        assert [bytes(data or b"") for data in request.infer.inputs] == outputs(answer)


def test_one_of_a_shared_run_is_kept_for_the_next_version() -> None:
    lane = make_lane()
    turn = (queued(lane, 1, 1), queued(lane, 2, 2))
    answers = lane.run_turn(turn)
    ((kept, frame),) = lane.recent.all()
    assert kept.inputs == turn[0].infer.inputs
    assert isinstance(answers[0], Answer)
    assert frame == answers[0].frame


def test_a_tick_of_a_state_shares_no_run() -> None:
    """The lane puts its state in beside what came, which other rows' inputs leave no room for."""
    lane = make_lane()
    queue = RequestQueue("m", 10, lane.times, ())
    for request_id, feed in ((1, 0), (2, -7), (3, 0)):
        request = queued(lane, request_id, 1)
        request.infer = msgspec.structs.replace(request.infer, feed=feed)
        assert queue.put(request, 0, 0, 0) is None
    assert [request is not None for request in (queue.take(), queue.take_joining(7))] == [True, False]
    assert [request is not None for request in (queue.take(), queue.take_joining(7))] == [True, True]
