"""What one version answers beside what another answered to the same request."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np

from tickpath.engines import Array, TensorSpec
from tickpath.server.lane import Answer, Lane
from tickpath.server.verification import Difference, Tolerance, compare
from tickpath.wire import PREFIX_BYTES, Flag, Infer, Result, decode_server_message

_CPU_ANSWER: Final = int(Flag.CPU_ANSWER)


class Change(msgspec.Struct, frozen=True):
    """How a version's answers differ from those that were given to the same `requests`: the largest difference of each
    output, and how many requests it refused (`refused`) that had an answer."""

    requests: int
    refused: int
    outputs: tuple[Difference, ...]

    @property
    def rel_max(self) -> float:
        """The largest difference as a share of an output's largest value; infinite where there is no such share."""
        if self.refused:
            return float("inf")
        return max((float("inf") if output.rel_max is None else output.rel_max for output in self.outputs), default=0.0)

    def describe(self) -> str:
        """For people, in one line."""
        if not self.requests:
            return "no recent requests to compare on"
        requests = "the last request" if self.requests == 1 else f"the last {self.requests} requests"
        if self.refused:
            return f"on {requests}: {self.refused} refused that had an answer"
        return f"on {requests}: {'; '.join(output.describe() for output in self.outputs)}"


def compare_answers(
    lane: Lane, outputs: Sequence[TensorSpec], answered: Iterable[tuple[Infer, bytes]], tolerance: Tolerance
) -> Change:
    """Run requests again on another version's `lane`, whose tensors are the same, and compare. The lane must be the
    caller's."""
    requests = refused = 0
    worst: list[Difference] = []
    for infer, frame in answered:
        requests += 1
        if infer.rows > lane.slots[-1].bucket:  # that version has smaller buckets
            refused += 1
            continue
        outcome = lane.run(msgspec.structs.replace(infer, budget_ns=0), 0, 0)
        if not isinstance(outcome, Answer) or outcome.flags & _CPU_ANSWER:
            refused += 1
            continue
        found = differences(outputs, infer.rows, frame, outcome.frame, tolerance)
        worst = [max(pair, key=_distance) for pair in zip(worst, found, strict=True)] if worst else found
    lane.recent.clear()
    return Change(requests, refused, tuple(worst))


def differences(
    outputs: Sequence[TensorSpec], rows: int, expected: bytes, answer: bytes, tolerance: Tolerance
) -> list[Difference]:
    """Two reply frames to the same request, output by output."""
    trios = zip(outputs, _arrays(outputs, rows, expected), _arrays(outputs, rows, answer), strict=True)
    return [compare(tensor, right, given, tolerance) for tensor, right, given in trios]


def _arrays(outputs: Sequence[TensorSpec], rows: int, frame: bytes) -> list[Array]:
    result = decode_server_message(memoryview(frame)[PREFIX_BYTES:])
    assert isinstance(result, Result)
    return [
        np.frombuffer(data, tensor.dtype).reshape(tensor.shape_at(rows))
        for tensor, data in zip(outputs, result.outputs, strict=True)
    ]


def _distance(difference: Difference) -> float:
    return float("inf") if difference.abs_max is None else difference.abs_max
