"""Admission: whether a request may run, decided from what it is and what is going on. Pure: no clock, no sockets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from tickpath.wire import PROTOCOL_VERSION, ClientMessage, Code, Hello, Infer, Limits, RemoteProtocolError, TensorInfo

OUR_FAULT: Final = "a fault of the server, which its log describes: please report it"


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Why a request is not answered: the code, and a text that says what was expected, what came and what to do.
    `flags`: what the model's numeric policy saw of it, bits of `Flag`. `next_sequence`: what its feed takes next, where
    it is a tick."""

    code: Code
    message: str
    flags: int = 0
    next_sequence: int = 0


DRAINING: Final = Refusal(Code.NOT_READY, "the server is shutting down: go to another")


def check_hello(message: ClientMessage) -> Hello:
    """What a session begins with. Raises RemoteProtocolError where it is anything else, or another protocol's."""
    if not isinstance(message, Hello):
        raise RemoteProtocolError(
            Code.UNAUTHENTICATED, f"Hello must be the first message, {type(message).__name__} came"
        )
    if message.protocol != PROTOCOL_VERSION:
        raise RemoteProtocolError(
            Code.BAD_MESSAGE, f"this server speaks protocol {PROTOCOL_VERSION}, {message.protocol} was asked for"
        )
    return message


@dataclass(frozen=True, slots=True)
class ModelRules:
    """What a request to one model must look like."""

    model: str
    rows_max: int
    inputs: tuple[TensorInfo, ...]
    # For each number of rows from 0 to rows_max, the bytes of each input.
    bytes_at: tuple[tuple[int, ...], ...]


def model_rules(model: str, rows_max: int, inputs: tuple[TensorInfo, ...]) -> ModelRules:
    """The rules of a model, with the table that makes them quick to apply."""
    bytes_at = (tuple(tensor.bytes_at(rows) for tensor in inputs) for rows in range(rows_max + 1))
    return ModelRules(model, rows_max, inputs, tuple(bytes_at))


def refuse_handle(handle: int) -> Refusal:
    """The refusal of a request to a model that never was there."""
    return Refusal(Code.UNKNOWN_MODEL, f"no model has handle {handle}: use those that Welcome or ModelList gives")


def refuse_form(infer: Infer, rules: ModelRules, priority_levels: int) -> Refusal | None:
    """The refusal of a request that does not fit the model, or None."""
    rows = infer.rows
    if not 0 < rows <= rules.rows_max:
        return _bad_rows(infer, rules)
    if (refusal := refuse_inputs(infer.inputs, rows, rules)) is not None:
        return refusal
    if infer.feed:
        return Refusal(
            Code.BAD_VALUE,
            f"feed must be 0 in a request to model {rules.model!r}, {infer.feed} came: a feed is asked by Tick",
        )
    return refuse_priority(infer.priority, priority_levels)


def refuse_inputs(inputs: Sequence[memoryview | None], rows: int, rules: ModelRules) -> Refusal | None:
    """The refusal of inputs of which one is missing or has another size, or None. `rows` is in the rules."""
    expected = rules.bytes_at[rows]
    if len(inputs) != len(expected):
        return _bad_count(len(inputs), rules)
    for index, data in enumerate(inputs):
        if data is None:
            if not rules.inputs[index].optional:
                return _missing(rules.inputs[index], rules)
        elif len(data) != expected[index]:
            return _bad_bytes(rows, rules.inputs[index], rules, len(data))
    return None


def refuse_priority(priority: int, priority_levels: int) -> Refusal | None:
    """The refusal of a priority that is none here, or None."""
    if priority < priority_levels:
        return None
    return Refusal(Code.BAD_VALUE, f"priority must be under {priority_levels} here, {priority} came")


def refuse_load(request_id: int, in_flight: Mapping[int, object], limits: Limits) -> Refusal | None:
    """The refusal of a request for which its session has no room, or None. `in_flight`: what it waits for, by id."""
    if request_id in in_flight:
        return Refusal(
            Code.BAD_VALUE, f"id {request_id} is still in flight on this session: use another until it is answered"
        )
    if len(in_flight) >= limits.in_flight_max:
        return Refusal(
            Code.OVERLOADED,
            f"{limits.in_flight_max} requests of this session are in flight, the most it may have: wait for an answer",
        )
    return None


def _bad_rows(infer: Infer, rules: ModelRules) -> Refusal:
    if infer.rows == 0:
        return Refusal(
            Code.BAD_SHAPE,
            f"model {rules.model!r} takes {_allowed(rules)}, 0 came: an empty batch has no answer",
        )
    if rules.inputs and rules.bytes_at[0] == rules.bytes_at[1]:  # no input grows with the rows
        return Refusal(
            Code.BAD_SHAPE,
            f"model {rules.model!r} has no batch axis, so a request is 1 row, {infer.rows} came: send each alone, or "
            f"declare the axis when serving, as in --shape {rules.inputs[0].name}=N,... (in a configuration shapes)",
        )
    return Refusal(
        Code.BAD_SHAPE,
        f"model {rules.model!r} takes {_allowed(rules)}, {infer.rows} came: "
        "split the request, or serve a larger bucket",
    )


def _allowed(rules: ModelRules) -> str:
    return "1 row" if rules.rows_max == 1 else f"1 to {rules.rows_max} rows"


def _bad_count(came: int, rules: ModelRules) -> Refusal:
    names = ", ".join(tensor.name for tensor in rules.inputs) or "none"
    takes = counted(len(rules.inputs), "input")
    return Refusal(Code.BAD_SHAPE, f"model {rules.model!r} takes {takes} ({names}), {came} came")


def _missing(tensor: TensorInfo, rules: ModelRules) -> Refusal:
    return Refusal(
        Code.BAD_SHAPE, f"input {tensor.name!r} of model {rules.model!r} is required ({tensor.describe()}), nil came"
    )


def _bad_bytes(rows: int, tensor: TensorInfo, rules: ModelRules, came: int) -> Refusal:
    return Refusal(
        Code.BAD_SHAPE,
        f"input {tensor.name!r} of model {rules.model!r} is {tensor.describe()}: "
        f"{tensor.bytes_at(rows)} bytes at {counted(rows, 'row')}, {came} came",
    )


def counted(count: int, what: str) -> str:
    """`1 row`, `2 rows`."""
    return f"1 {what}" if count == 1 else f"{count} {what}s"
