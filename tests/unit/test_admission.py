"""Admission: one table of what is refused, with which code, and what the text names."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from tickpath.server.admission import model_rules, refuse_form, refuse_load
from tickpath.wire import Code, Infer, Limits, TensorInfo

LIMITS = Limits(frame_bytes_max=4096, in_flight_max=3, sessions_max=1, frame_ns_max=1)
RULES = model_rules(
    "book",
    4,
    (
        TensorInfo("x", "float32", (1, 2), 0),
        TensorInfo("scale", "float32", (1,), optional=True),
    ),
)
GOOD = Infer(1, 0, 2, [memoryview(bytes(16)), memoryview(bytes(4))])


def changed(**changes: Any) -> Infer:
    """A good request but for these fields; inputs as byte counts."""
    if "inputs" in changes:
        inputs = changes["inputs"]
        changes["inputs"] = [None if size is None else memoryview(bytes(size)) for size in inputs]
    return msgspec.structs.replace(GOOD, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rows": 1, "inputs": [8, 4]},
        {"rows": 4, "inputs": [32, 4]},
        {"inputs": [16, None]},
        {"budget_ns": 2**64 - 1, "event_time_ns": 2**64 - 1, "id": 2**64 - 1},
    ],
)
def test_what_fits_is_taken(changes: dict[str, Any]) -> None:
    assert refuse_form(changed(**changes), RULES, 1) is None


@dataclass
class Case:
    """Fields that differ from a good request, the code and what the text must name."""

    changes: dict[str, Any]
    code: Code
    says: list[str] = field(default_factory=list)


@pytest.mark.parametrize(
    "case",
    [
        Case({"rows": 0}, Code.BAD_SHAPE, ["1 to 4 rows", "0 came", "empty batch"]),
        Case({"rows": 0, "inputs": [0, 4]}, Code.BAD_SHAPE, ["0 came"]),
        Case({"rows": 5, "inputs": [40, 4]}, Code.BAD_SHAPE, ["1 to 4 rows", "5 came", "split"]),
        Case({"rows": 2**64 - 1}, Code.BAD_SHAPE, [f"{2**64 - 1} came"]),
        Case({"inputs": []}, Code.BAD_SHAPE, ["2 inputs (x, scale)", "0 came"]),
        Case({"inputs": [16]}, Code.BAD_SHAPE, ["2 inputs", "1 came"]),
        Case({"inputs": [16, 4, 4]}, Code.BAD_SHAPE, ["2 inputs", "3 came"]),
        Case({"inputs": [None, 4]}, Code.BAD_SHAPE, ["'x'", "required", "float32[N,2]"]),
        Case({"inputs": [15, 4]}, Code.BAD_SHAPE, ["'x'", "float32[N,2]", "16 bytes at 2 rows", "15 came"]),
        Case({"inputs": [17, 4]}, Code.BAD_SHAPE, ["17 came"]),
        Case({"inputs": [0, 4]}, Code.BAD_SHAPE, ["16 bytes", "0 came"]),
        Case({"inputs": [8, 4]}, Code.BAD_SHAPE, ["16 bytes", "8 came"]),
        Case({"inputs": [16, 8]}, Code.BAD_SHAPE, ["'scale'", "4 bytes at 2 rows", "8 came"]),
        Case({"inputs": [16, 0]}, Code.BAD_SHAPE, ["'scale'", "0 came"]),
        Case({"priority": 1}, Code.BAD_VALUE, ["priority", "under 1", "1 came"]),
        Case({"feed": 7}, Code.BAD_VALUE, ["feed must be 0", "7 came", "Tick"]),
    ],
    ids=lambda case: str(case.changes),
)
def test_what_does_not_fit_is_refused_and_named(case: Case) -> None:
    refusal = refuse_form(changed(**case.changes), RULES, 1)
    assert refusal is not None
    assert refusal.code is case.code
    assert [text for text in ["'book'", *case.says] if text not in refusal.message] in ([], ["'book'"])
    assert "\n" not in refusal.message


def test_priorities_below_the_levels_are_taken() -> None:
    assert refuse_form(changed(priority=2), RULES, 3) is None


def test_a_model_without_inputs_takes_none() -> None:
    rules = model_rules("clock", 1, ())
    assert refuse_form(Infer(1, 0, 1, []), rules, 1) is None
    refusal = refuse_form(Infer(1, 0, 1, [memoryview(b"")]), rules, 1)
    assert refusal is not None
    assert "0 inputs (none), 1 came" in refusal.message


@pytest.mark.parametrize(
    ("request_id", "in_flight", "code"),
    [
        (1, [], None),
        (3, [1, 2], None),
        (1, [1], Code.BAD_VALUE),
        (1, [1, 2, 3], Code.BAD_VALUE),  # the mistake comes before the load: waiting would not mend it
        (4, [1, 2, 3], Code.OVERLOADED),
    ],
)
def test_load_is_refused_before_anything_is_queued(request_id: int, in_flight: list[int], code: Code | None) -> None:
    refusal = refuse_load(request_id, dict.fromkeys(in_flight), LIMITS)
    assert (refusal and refusal.code) == code


def test_a_model_without_a_batch_axis_is_told_how_to_get_one() -> None:
    rules = model_rules("book", 1, (TensorInfo("window", "float32", (8, 2), -1, False),))
    refusal = refuse_form(Infer(1, 0, 8, [memoryview(bytes(64))]), rules, 1)
    assert refusal is not None
    assert refusal.code is Code.BAD_SHAPE
    assert "--shape window=N,..." in refusal.message
