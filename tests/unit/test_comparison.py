"""Recent requests, and what another version answers to them."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from tests.numpy_engine import Compute, NumpyEngine, tensor

from tickpath.engines import Array, EngineFailedError
from tickpath.server import recent as recent_module
from tickpath.server.comparison import Change, compare_answers
from tickpath.server.config import ModelConfig
from tickpath.server.lane import Answer, Lane
from tickpath.server.recent import EVERY_NS, KEPT_BYTES_MAX, KEPT_MAX, RecentAnswers, with_own_inputs
from tickpath.server.verification import Tolerance
from tickpath.wire import Infer

X, Y = tensor("x", (1, 3)), tensor("y", (1, 3))
EXACT = Tolerance(rtol=0.0)


def times(factor: float) -> Compute:
    def compute(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        outputs[0][...] = np.multiply(inputs[0], factor)

    return compute


def fails(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    raise EngineFailedError("no")


def lane_of(compute: Compute, label: str = "1") -> Lane:
    return Lane(NumpyEngine([X], [Y], compute), ModelConfig("m.onnx", version=label), (1, 2))


def request(number: int, rows: int = 1, budget_ns: int = 0) -> Infer:
    values = np.arange(1, 1 + 3 * rows, dtype=np.float32) + number
    return Infer(number, 0, rows, [memoryview(bytearray(values.tobytes()))], budget_ns)


def answered(lane: Lane, *requests: Infer) -> list[tuple[Infer, bytes]]:
    outcomes = [(infer, lane.run(infer, 0, 0)) for infer in requests]
    return [(infer, outcome.frame) for infer, outcome in outcomes if isinstance(outcome, Answer)]


def changed(compute: Compute, *requests: Infer, tolerance: Tolerance = EXACT) -> Change:
    return compare_answers(lane_of(compute, "2"), [Y], answered(lane_of(times(2)), *requests), tolerance)


def test_the_same_answers_differ_by_nothing_whatever_the_version_and_the_stamps() -> None:
    change = changed(times(2), request(1), request(2, rows=2))
    assert (change.requests, change.refused, change.rel_max) == (2, 0, 0.0)
    assert change.outputs[0].within
    assert change.describe().startswith("on the last 2 requests: 'y' does not differ")


def test_the_largest_difference_of_all_requests_is_told() -> None:
    change = changed(times(2.02), request(1), request(50), request(3))
    assert change.rel_max == pytest.approx(0.01, rel=1e-3)
    assert change.outputs[0].abs_max == pytest.approx(0.02 * 53, rel=1e-3)
    assert not change.outputs[0].within
    assert changed(times(2.02), request(1), tolerance=Tolerance(rtol=0.02)).outputs[0].within


def test_a_nan_on_one_side_is_no_small_difference() -> None:
    change = changed(times(math.nan), request(1), request(2))
    assert change.rel_max == math.inf
    assert "a NaN or an infinity" in change.describe()


def test_a_request_that_had_an_answer_and_is_refused_now_is_the_largest_difference() -> None:
    change = changed(fails, request(1), request(2))
    assert (change.requests, change.refused, change.rel_max) == (2, 2, math.inf)
    assert change.describe() == "on the last 2 requests: 2 refused that had an answer"


def test_a_request_of_more_rows_than_the_new_version_takes_is_refused_and_no_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = answered(lane_of(times(2)), request(1, rows=2), request(2))
    small = Lane(NumpyEngine([X], [Y], times(2)), ModelConfig("m.onnx", version="2"), (1,))
    change = compare_answers(small, [Y], asked, EXACT)
    assert (change.requests, change.refused, change.outputs[0].abs_max) == (2, 1, 0.0)
    assert caplog.records == []


def test_without_requests_there_is_nothing_to_say() -> None:
    change = changed(times(3))
    assert (change.rel_max, change.describe()) == (0.0, "no recent requests to compare on")


def test_a_budget_was_for_the_first_time() -> None:
    asked = request(1, budget_ns=10**18)
    assert changed(times(2), asked).refused == 0


def test_what_is_compared_leaves_no_trace_among_the_new_versions_own() -> None:
    lane = lane_of(times(2))
    compare_answers(lane, [Y], answered(lane_of(times(2)), request(1)), EXACT)
    assert lane.recent.all() == ()


def test_one_request_in_a_while_is_kept_with_inputs_of_its_own() -> None:
    recent = RecentAnswers(24)
    asked = request(1)
    recent.keep(asked, b"frame", 5)
    assert recent.next_ns == 5 + EVERY_NS
    assert isinstance(asked.inputs[0], memoryview)
    asked.inputs[0][:] = bytes(12)  # the receive buffer moves on
    ((kept, frame),) = recent.all()
    assert frame == b"frame"
    assert np.frombuffer(kept.inputs[0] or b"", np.float32).tolist() == [2.0, 3.0, 4.0]


def test_a_lane_keeps_one_request_in_ten_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_module, "EVERY_NS", 2**62)
    lane = lane_of(times(2))
    answered(lane, *(request(number) for number in range(1, 6)))
    assert [infer.id for infer, _ in lane.recent.all()] == [1]
    monkeypatch.setattr(recent_module, "EVERY_NS", 0)
    lane = lane_of(times(2))
    answered(lane, *(request(number) for number in range(1, 2 * KEPT_MAX)))
    assert [infer.id for infer, _ in lane.recent.all()] == list(range(KEPT_MAX, 2 * KEPT_MAX))


@pytest.mark.parametrize(("request_bytes", "kept"), [(1, KEPT_MAX), (KEPT_BYTES_MAX // 4, 4), (KEPT_BYTES_MAX, 1)])
def test_large_requests_are_kept_in_smaller_numbers(request_bytes: int, kept: int) -> None:
    recent = RecentAnswers(request_bytes)
    for number in range(1, KEPT_MAX + 10):
        recent.keep(request(number), b"", number)
    assert len(recent.all()) == kept
    recent.clear()
    assert recent.all() == ()


def test_what_is_larger_than_all_that_may_be_kept_never_is() -> None:
    assert RecentAnswers(KEPT_BYTES_MAX + 1).next_ns == 2**63


def test_an_optional_input_that_was_left_out_stays_out() -> None:
    assert with_own_inputs(Infer(1, 0, 1, [None])).inputs == [None]
