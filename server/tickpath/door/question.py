"""What a request asks for, whichever side it came in by, and what its parameters mean. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tickpath.client import BadShapeError, BadValueError
from tickpath.door.tensors import Array
from tickpath.wire import ModelInfo, TensorInfo

Parameters = Mapping[str, object]

# A day: nobody waits longer, and its nanoseconds fit every field.
TIMEOUT_US_MAX: Final = 24 * 3600 * 1_000_000
# A UUID has 36; with what is before it, it must be a feed's key (KEY_CHARS_MAX).
ID_CHARS_MAX: Final = 64


class SequenceStep(msgspec.Struct, frozen=True):
    """A request of a sequence: the first, the last, both, or one between."""

    id: str
    start: bool
    end: bool


class Wishes(msgspec.Struct, frozen=True):
    """What a request's parameters say. `priority` as Triton has it: 1 is the highest, 0 whatever is the default."""

    budget_ns: int = 0
    priority: int = 0
    sequence: SequenceStep | None = None


class Question(msgspec.Struct, frozen=True):
    """A request that was read. `version`: empty for the live one. `outputs`: those asked for, none for all."""

    model: ModelInfo
    version: str
    arrays: dict[str, Array]
    outputs: tuple[str, ...] = ()
    wishes: Wishes = Wishes()

    @property
    def name(self) -> str:
        """What the core is asked for."""
        return f"{self.model.name}@{self.version}" if self.version else self.model.name


def read_wishes(parameters: Parameters) -> Wishes:
    """A request's parameters: `timeout` in µs, `priority`, and a sequence's. Unknown ones are passed over, as the
    protocol has it. Raises BadValueError."""
    timeout_us = _whole("timeout", parameters.get("timeout", 0))
    if timeout_us > TIMEOUT_US_MAX:
        raise BadValueError(f"parameter timeout: at most {TIMEOUT_US_MAX} µs, a day, expected; {timeout_us} came")
    priority, sequence = _whole("priority", parameters.get("priority", 0)), _sequence(parameters)
    if sequence and priority:
        raise BadValueError("parameter priority: a sequence's requests have the default one; leave it out")
    return Wishes(timeout_us * 1000, priority, sequence)


def level_of(priority: int, levels: int) -> int:
    """Triton's priority as one of the core's `levels`, of which 0 is the highest and what its own clients have by
    default. Raises BadValueError."""
    if priority > levels:
        raise BadValueError(
            f"parameter priority: expected 1, the highest, to {levels}, or 0 for the default; {priority} came"
        )
    return max(priority - 1, 0)


def refuse_unknown_ways(tensor: str, parameters: Parameters) -> None:
    """Ways to send or take a tensor that this door does not have. Raises BadValueError."""
    if "shared_memory_region" in parameters:
        raise BadValueError(f"tensor {tensor!r}: there is no shared memory here; send it within the request")
    if _whole("classification", parameters.get("classification", 0)):
        raise BadValueError(f"tensor {tensor!r}: classification is not done here; take the numbers and sort them")


def chosen(question: Question, given: Sequence[TensorInfo]) -> list[str]:
    """The names of the outputs that are asked for, of those that are given. Raises BadShapeError."""
    names = [tensor.name for tensor in given]
    strangers = [name[:80] for name in question.outputs if name not in names]
    if strangers:
        raise BadShapeError(
            f"model {question.model.name!r} gives {', '.join(names)}; asked for: {', '.join(strangers)}"
        )
    return list(question.outputs) or names


def _sequence(parameters: Parameters) -> SequenceStep | None:
    start, end = (_flag(f"sequence_{name}", parameters) for name in ("start", "end"))
    named = parameters.get("sequence_id", 0)
    if not _is_id(named):
        raise BadValueError(
            f"parameter sequence_id: expected a whole number of 64 bits, or a text of at most {ID_CHARS_MAX} letters; "
            "something else came"
        )
    if named in (0, ""):
        if start or end:
            raise BadValueError("parameter sequence_id: expected with sequence_start and sequence_end; none came")
        return None
    return SequenceStep(str(named), start, end)


def _is_id(named: object) -> bool:
    if isinstance(named, str):
        return len(named) <= ID_CHARS_MAX and (named.isprintable() or not named)
    return isinstance(named, int) and not isinstance(named, bool) and 0 <= named < 2**64


def _flag(name: str, parameters: Parameters) -> bool:
    value = parameters.get(name, False)
    if not isinstance(value, bool):
        raise BadValueError(f"parameter {name}: expected true or false, got {str(value)[:80]!r}")
    return value


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadValueError(f"parameter {name}: expected a whole number from 0, got {str(value)[:80]!r}")
    return value
