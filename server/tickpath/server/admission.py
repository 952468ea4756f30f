"""Admission: whether a request may run, decided from what it is and what is going on. Pure: no clock, no sockets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tickpath.wire import Code, Infer, Limits


class Refusal(NamedTuple):
    """Why a request does not run: the code, and a text that says what was expected, what came and what to do."""

    code: Code
    message: str


@dataclass(frozen=True, slots=True)
class InputRule:
    """What one input's bytes must be: `row_bytes` for each row, or in all where the tensor has no batch axis."""

    name: str
    text: str
    row_bytes: int
    batched: bool
    optional: bool


@dataclass(frozen=True, slots=True)
class ModelRules:
    """What a request to one model must look like."""

    model: str
    rows_max: int
    inputs: tuple[InputRule, ...]


def refuse_form(infer: Infer, rules: ModelRules, priority_levels: int) -> Refusal | None:
    """The refusal of a request that does not fit the model, or None."""
    if not 0 < infer.rows <= rules.rows_max:
        return _bad_rows(infer, rules)
    if len(infer.inputs) != len(rules.inputs):
        return _bad_count(infer, rules)
    for rule, data in zip(rules.inputs, infer.inputs, strict=True):
        if data is None:
            if not rule.optional:
                return _missing(rule, rules)
        elif len(data) != (rule.row_bytes * infer.rows if rule.batched else rule.row_bytes):
            return _bad_bytes(infer, rule, rules, len(data))
    if infer.priority >= priority_levels or infer.feed:
        return _bad_value(infer, rules, priority_levels)
    return None


def refuse_load(
    request_id: int, in_flight: Mapping[int, object], limits: Limits, queue_room: bool, model: str
) -> Refusal | None:
    """The refusal of a request for which there is no room, or None. `in_flight`: what this session waits for, by id."""
    if request_id in in_flight:
        return Refusal(
            Code.BAD_VALUE, f"id {request_id} is still in flight on this session: use another until it is answered"
        )
    if len(in_flight) >= limits.in_flight_max:
        return Refusal(
            Code.OVERLOADED,
            f"{limits.in_flight_max} requests of this session are in flight, the most it may have: wait for an answer",
        )
    if not queue_room:
        return Refusal(Code.OVERLOADED, f"the queue of model {model!r} is full: send less, or raise its queue_max")
    return None


def _bad_rows(infer: Infer, rules: ModelRules) -> Refusal:
    if infer.rows == 0:
        return Refusal(
            Code.BAD_SHAPE,
            f"model {rules.model!r} takes 1 to {rules.rows_max} rows, 0 came: an empty batch has no answer",
        )
    return Refusal(
        Code.BAD_SHAPE,
        f"model {rules.model!r} takes 1 to {rules.rows_max} rows, {infer.rows} came: "
        "split the request, or serve a larger bucket",
    )


def _bad_count(infer: Infer, rules: ModelRules) -> Refusal:
    names = ", ".join(rule.name for rule in rules.inputs) or "none"
    return Refusal(
        Code.BAD_SHAPE, f"model {rules.model!r} takes {len(rules.inputs)} inputs ({names}), {len(infer.inputs)} came"
    )


def _missing(rule: InputRule, rules: ModelRules) -> Refusal:
    return Refusal(Code.BAD_SHAPE, f"input {rule.name!r} of model {rules.model!r} is required ({rule.text}), nil came")


def _bad_bytes(infer: Infer, rule: InputRule, rules: ModelRules, came: int) -> Refusal:
    expected = rule.row_bytes * infer.rows if rule.batched else rule.row_bytes
    return Refusal(
        Code.BAD_SHAPE,
        f"input {rule.name!r} of model {rules.model!r} is {rule.text}: "
        f"{expected} bytes at {infer.rows} rows, {came} came",
    )


def _bad_value(infer: Infer, rules: ModelRules, priority_levels: int) -> Refusal:
    if infer.feed:
        return Refusal(
            Code.BAD_VALUE, f"feed {infer.feed} is not open: model {rules.model!r} keeps no feeds, send feed 0"
        )
    return Refusal(Code.BAD_VALUE, f"priority must be under {priority_levels} here, {infer.priority} came")
