"""A lane: a request runs, or is refused for one reason, and the next one is answered whatever became of it."""

from collections.abc import Callable, Iterator, Sequence
from time import monotonic_ns
from typing import Any

import numpy as np
import pytest
from tests.numpy_engine import NumpyEngine, copy_through, tensor

from tickpath.engines import Array, EngineFailedError
from tickpath.graphs import Slot
from tickpath.server.admission import Refusal
from tickpath.server.config import ModelConfig
from tickpath.server.device_lane import DeviceLane
from tickpath.server.lane import Answer, AnswerRefusedError, Failed, InputRefusedError, Lane, why_failed
from tickpath.wire import Code, Flag, Infer, Result, decode_server_message

SPECS = [tensor("x", (1, 2))]
BUCKETS = (1, 4)


def lane_of(engine: NumpyEngine, **settings: Any) -> Lane:
    return Lane(engine, ModelConfig("m.onnx", version="7", **settings), BUCKETS)


def ask(lane: Lane, values: Sequence[float], rows: int = 1, budget_ns: int = 0, age_ns: int = 0) -> Answer | Refusal:
    """Run a request that was received `age_ns` ago."""
    data = np.array(values, np.float32).tobytes()
    now_ns = monotonic_ns()
    return lane.run(Infer(9, 0, rows, [memoryview(data)], budget_ns), now_ns - age_ns - 5, now_ns - age_ns)


def result_of(answer: Answer | Refusal) -> Result:
    assert isinstance(answer, Answer)
    message = decode_server_message(memoryview(answer.frame)[4:])
    assert isinstance(message, Result)
    return message


def refusal_of(answer: Answer | Refusal) -> Refusal:
    assert isinstance(answer, Refusal)
    return answer


@pytest.mark.parametrize(("rows", "bucket_index", "bucket"), [(1, 0, 1), (2, 1, 4), (4, 1, 4)])
def test_an_answer_has_its_frame_its_bucket_and_stamps_in_order(rows: int, bucket_index: int, bucket: int) -> None:
    values = [float(value) for value in range(2 * rows)]
    answer = ask(lane_of(NumpyEngine(SPECS, SPECS)), values, rows)
    result = result_of(answer)
    assert (result.id, result.version) == (9, "7")
    assert np.frombuffer(result.outputs[0], np.float32).tolist() == values
    assert isinstance(answer, Answer)
    assert (answer.bucket_index, answer.bucket) == (bucket_index, bucket)
    assert result.stamps == answer.stamps
    assert list(answer.stamps) == sorted(answer.stamps)


def test_the_largest_bucket_is_captured_first() -> None:
    engine = NumpyEngine(SPECS, SPECS)
    lane_of(engine)
    assert [len(graph.inputs[0]) for graph in engine.graphs] == [4, 1]


def test_a_frame_outlives_the_next_request() -> None:
    lane = lane_of(NumpyEngine(SPECS, SPECS))
    first = ask(lane, [1, 2])
    ask(lane, [3, 4])
    assert np.frombuffer(result_of(first).outputs[0], np.float32).tolist() == [1, 2]


def counted(calls: list[int]) -> NumpyEngine:
    def compute(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        calls.append(1)
        copy_through(inputs, outputs)

    return NumpyEngine(SPECS, SPECS, compute)


def test_a_budget_that_is_over_is_refused_before_the_model_runs() -> None:
    calls: list[int] = []
    lane = lane_of(counted(calls))
    refusal = refusal_of(ask(lane, [1, 2], budget_ns=1_000_000, age_ns=1_000_000))
    assert refusal.code is Code.DEADLINE
    assert "1000000 ns" in refusal.message
    assert not calls
    lane.times[1].mean_ns = 1_000_000_000
    refusal = refusal_of(ask(lane, [1, 2, 3, 4], rows=2, budget_ns=1_000_000_000))
    assert refusal.code is Code.DEADLINE
    assert "the model takes 1000000000" in refusal.message
    assert not calls
    result_of(ask(lane, [1, 2], budget_ns=3_600_000_000_000, age_ns=1_000_000))
    result_of(ask(lane, [1, 2], budget_ns=0, age_ns=10**10))
    assert len(calls) == 2


def test_a_bad_value_is_refused_before_the_model_runs_and_leaves_nothing_behind() -> None:
    calls: list[int] = []
    lane = lane_of(counted(calls))
    refusal = refusal_of(ask(lane, [1, np.nan]))
    assert refusal.code is Code.BAD_VALUE
    assert "'x'" in refusal.message
    assert 'non_finite = "pass"' in refusal.message
    assert not calls
    # In a bucket of four, the row with the infinity is behind the next request's own.
    refusal_of(ask(lane, [1, 2, 3, np.inf], rows=2))
    assert np.frombuffer(result_of(ask(lane, [5, 6, 7, 8, 9, 10], rows=3)).outputs[0], np.float32)[-1] == 10
    refusal_of(ask(lane, [1, 2, 3, 4, 5, np.inf], rows=3))
    result_of(ask(lane, [1, 2, 3, 4], rows=2))


def test_bad_values_pass_where_they_may() -> None:
    lane = lane_of(NumpyEngine(SPECS, SPECS), non_finite="pass")
    answer = np.frombuffer(result_of(ask(lane, [np.inf, np.nan])).outputs[0], np.float32)
    assert np.isinf(answer[0])
    assert np.isnan(answer[1])


def failing(errors: Iterator[Exception | None]) -> NumpyEngine:
    def compute(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        if error := next(errors):
            raise error
        copy_through(inputs, outputs)

    return NumpyEngine(SPECS, SPECS, compute)


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (EngineFailedError("no memory left"), Code.ENGINE_FAILED, "no memory left"),
        (ZeroDivisionError("ours"), Code.INTERNAL, "fault of the server"),
        (MemoryError(), Code.INTERNAL, "fault of the server"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_failure_is_one_requests_and_the_next_is_answered(
    error: Exception, code: Code, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    lane = lane_of(failing(iter([None, error, None])))
    result_of(ask(lane, [1, 2]))
    refusal = refusal_of(ask(lane, [3, 4]))
    assert refusal.code is code
    assert says in refusal.message
    assert np.frombuffer(result_of(ask(lane, [5, 6])).outputs[0], np.float32).tolist() == [5, 6]
    # What a client could not help is in the log with its place; what the runtime said went to the client.
    assert [record.exc_info is not None for record in caplog.records] == ([True] if code is Code.INTERNAL else [])


FLAGGING = {"non_finite": "flag", "output_non_finite": "flag", "out_of_bounds": "flag"}
REFUSING = {"output_max": 8.0, "non_finite": "flag", "output_non_finite": "flag"}


@pytest.mark.parametrize("settings", [{}, FLAGGING, FLAGGING | {"output_max": 8.0}, REFUSING], ids=str)
@pytest.mark.parametrize(
    "values", [[1.0, 2.0], [1.0, np.nan], [1.0, 9.0], [np.inf, 2.0], [1.0, 2.0, 3.0, 9.0]], ids=str
)
def test_who_is_no_client_has_the_same_answer(settings: dict[str, Any], values: list[float]) -> None:
    rows = len(values) // 2
    answer = ask(lane_of(NumpyEngine(SPECS, SPECS), **settings), values, rows)
    lane = lane_of(NumpyEngine(SPECS, SPECS), **settings)
    inputs: list[memoryview | None] = [memoryview(np.array(values, np.float32).tobytes())]
    if isinstance(answer, Answer):
        outputs, flags = lane.compute(rows, inputs)
        assert [bytes(each) for each in outputs] == [bytes(each) for each in result_of(answer).outputs]
        assert flags == answer.flags
    elif isinstance(answer, Failed):
        with pytest.raises(AnswerRefusedError) as failed:
            lane.compute(rows, inputs)
        assert why_failed(failed.value) == answer.message
        assert failed.value.flags == answer.flags & ~Flag.INPUT_NON_FINITE
    else:
        with pytest.raises(InputRefusedError) as refused:
            lane.compute(rows, inputs)
        assert refused.value.refusal == answer


def test_who_is_no_client_has_the_runtimes_failure() -> None:
    with pytest.raises(EngineFailedError, match="no memory left") as failed:
        lane_of(failing(iter([EngineFailedError("no memory left")]))).compute(1, [memoryview(bytes(8))])
    assert why_failed(failed.value) == "the model's runtime failed: no memory left"


def with_standby() -> Lane:
    return Lane(NumpyEngine(SPECS, SPECS), ModelConfig("m.onnx"), BUCKETS, lane_of(NumpyEngine(SPECS, SPECS)))


def with_two_slots_each() -> Lane:
    return DeviceLane(NumpyEngine(SPECS, SPECS), ModelConfig("m.onnx", device_slots=2), BUCKETS)


@pytest.mark.parametrize("make", [with_standby, with_two_slots_each])
def test_a_slot_that_fails_to_close_keeps_nothing_else_open(
    make: Callable[[], Lane], monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = make()
    closed: list[Slot] = []

    def close(slot: Slot) -> None:
        closed.append(slot)
        raise EngineFailedError(f"bucket {slot.bucket} is stuck")

    monkeypatch.setattr(Slot, "close", close)
    with pytest.raises(EngineFailedError, match="is stuck"):
        lane.close()
    assert sorted(slot.bucket for slot in closed) == sorted(2 * BUCKETS)
