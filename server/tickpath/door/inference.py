"""One inference, whichever side it came in by: what its parameters mean, what is asked of the core, what is counted."""

import time
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tickpath.client import BadShapeError, BadValueError, Prediction, TickpathError
from tickpath.door.tally import Tally
from tickpath.door.tensors import Array
from tickpath.door.upstream import Upstream
from tickpath.wire import ModelInfo

Parameters = Mapping[str, object]

# A day: nobody waits longer, and its nanoseconds fit every field.
TIMEOUT_US_MAX: Final = 24 * 3600 * 1_000_000


class Question(msgspec.Struct, frozen=True):
    """A request that was read. `version`: empty for the live one. `outputs`: those asked for, none for all."""

    model: ModelInfo
    version: str
    arrays: dict[str, Array]
    outputs: tuple[str, ...] = ()
    budget_ns: int = 0


class Answer(msgspec.Struct, frozen=True):
    """The outputs that were asked for, in that order, and the version that computed them."""

    version: str
    outputs: dict[str, Array]


class Inference:
    """Asks the core, and counts."""

    def __init__(self, upstream: Upstream, tally: Tally) -> None:
        self._upstream = upstream
        self._tally = tally

    async def answer(self, question: Question) -> Answer:
        """Raises TickpathError."""
        model, started_ns = question.model, time.perf_counter_ns()
        try:
            outputs = _chosen(model, question.outputs)
            prediction = await self._upstream.infer(model, question.version, question.arrays, question.budget_ns)
        except TickpathError:
            self._tally.failed(model.name, model.version, time.perf_counter_ns() - started_ns)
            raise
        self._tally.answered(model.name, _rows(model, prediction), prediction, time.perf_counter_ns() - started_ns)
        return Answer(prediction.version, {name: prediction.outputs[name] for name in outputs})


def budget_ns(parameters: Parameters) -> int:
    """What a request's parameters say of its time: `timeout`, in µs. Those that ask for what is not done here are
    refused, so that nobody believes in them; unknown ones are passed over, as the protocol has it. Raises
    BadValueError."""
    if _whole("priority", parameters.get("priority", 0)) != 0:
        raise BadValueError("parameter priority: there is one level here, 0; leave it out")
    if parameters.get("sequence_id", 0) not in (0, "", "0"):
        raise BadValueError("parameter sequence_id: no sequences are kept here; send each request whole")
    timeout_us = _whole("timeout", parameters.get("timeout", 0))
    if timeout_us > TIMEOUT_US_MAX:
        raise BadValueError(f"parameter timeout: at most {TIMEOUT_US_MAX} µs, a day, expected; {timeout_us} came")
    return timeout_us * 1000


def refuse_unknown_ways(tensor: str, parameters: Parameters) -> None:
    """Ways to send or take a tensor that this door does not have. Raises BadValueError."""
    if "shared_memory_region" in parameters:
        raise BadValueError(f"tensor {tensor!r}: there is no shared memory here; send it within the request")
    if _whole("classification", parameters.get("classification", 0)):
        raise BadValueError(f"tensor {tensor!r}: classification is not done here; take the numbers and sort them")


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadValueError(f"parameter {name}: expected a whole number from 0, got {str(value)[:80]!r}")
    return value


def _chosen(model: ModelInfo, outputs: Sequence[str]) -> Sequence[str]:
    given = [tensor.name for tensor in model.outputs]
    strangers = [name[:80] for name in outputs if name not in given]
    if strangers:
        raise BadShapeError(f"model {model.name!r} gives {', '.join(given)}; asked for: {', '.join(strangers)}")
    return outputs or given


def _rows(model: ModelInfo, prediction: Prediction) -> int:
    for tensor in model.outputs:
        axis = tensor.batch_axis
        if axis >= 0:
            return int(prediction.outputs[tensor.name].shape[axis]) // tensor.shape[axis]
    return 1
