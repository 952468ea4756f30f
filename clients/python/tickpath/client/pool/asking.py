"""One request, as each server's own handles and numbers have it. Pure."""

from collections.abc import Mapping

import numpy as np

from tickpath.client.codec import Codec, Inputs
from tickpath.client.conversation import Conversation, Request
from tickpath.client.errors import DeadlineError
from tickpath.client.prediction import Prediction


class Asking:
    """What was asked of the pool."""

    __slots__ = ("_budget_ns", "_event_time_ns", "_inputs", "_key", "_priority", "_rows", "model")

    def __init__(
        self,
        model: str,
        inputs: Inputs,
        rows: int | None = None,
        budget_ns: int = 0,
        event_time_ns: int = 0,
        priority: int = 0,
        key: int = 0,
    ) -> None:
        self.model = model
        self._inputs = inputs
        self._rows = rows
        self._budget_ns = budget_ns
        self._event_time_ns = event_time_ns
        self._priority = priority
        self._key = key

    @property
    def route(self) -> str | None:
        """Requests under one key go to one server: elsewhere none could take the place of another."""
        return str(self._key) if self._key else None

    def request(self, conversation: Conversation, codec: Codec, spent_ns: int) -> Request[Prediction]:
        """Asks on one connection, `spent_ns` after the first time. Raises RefusedError, and then nothing was asked."""
        budget_ns = self._budget_ns
        if budget_ns and spent_ns:
            budget_ns -= spent_ns
            if budget_ns <= 0:
                raise DeadlineError(f"the budget of {self._budget_ns} ns was over before another server could be asked")
        return conversation.infer(
            codec, self._inputs, self._rows, budget_ns, self._event_time_ns, self._priority, self._key
        )


def held(inputs: Inputs) -> Inputs:
    """The inputs as they are now: another server may be asked later, when the caller's arrays hold something else."""
    if isinstance(inputs, np.ndarray):
        return inputs.copy()
    if isinstance(inputs, Mapping):
        return {name: _held(value) for name, value in inputs.items()}
    if isinstance(inputs, list | tuple):
        return [_held(value) for value in inputs]
    return inputs


def _held(value: object) -> object:
    return value.copy() if isinstance(value, np.ndarray) else value
