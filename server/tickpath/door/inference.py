"""One inference, whichever side it came in by: what is asked of the core, what is counted."""

import time

import msgspec

from tickpath.client import Prediction, TickpathError
from tickpath.door.question import Question, chosen, level_of
from tickpath.door.sequences import Sequences
from tickpath.door.tally import Tally
from tickpath.door.tensors import Array
from tickpath.door.upstream import Upstream
from tickpath.wire import ModelInfo


class Answer(msgspec.Struct, frozen=True):
    """The outputs that were asked for, in that order, and the version that computed them."""

    version: str
    outputs: dict[str, Array]


class Inference:
    """Asks the core, and counts."""

    def __init__(self, upstream: Upstream, tally: Tally) -> None:
        self._upstream = upstream
        self._sequences = Sequences(upstream)
        self._tally = tally

    async def answer(self, question: Question) -> Answer:
        """Raises TickpathError."""
        model, started_ns = question.model, time.perf_counter_ns()
        try:
            prediction, outputs = await self._ask(question)
        except TickpathError:
            self._tally.failed(model.name, model.version, time.perf_counter_ns() - started_ns)
            raise
        self._tally.answered(model.name, _rows(model, prediction), prediction, time.perf_counter_ns() - started_ns)
        return Answer(prediction.version, {name: prediction.outputs[name] for name in outputs})

    async def _ask(self, question: Question) -> tuple[Prediction, list[str]]:
        wishes = question.wishes
        if wishes.sequence is not None:
            return await self._sequences.step(question, wishes.sequence)
        outputs, level = chosen(question, question.model.outputs), 0
        if wishes.priority:
            level = level_of(wishes.priority, (await self._upstream.limits()).priority_levels)
        return await self._upstream.infer(question, level), outputs


def _rows(model: ModelInfo, prediction: Prediction) -> int:
    for tensor in model.outputs:
        axis = tensor.batch_axis
        if axis >= 0 and tensor.name in prediction.outputs:
            return int(prediction.outputs[tensor.name].shape[axis]) // tensor.shape[axis]
    return 1
