"""Whether two answers are the same, bit for bit, and by how much they differ where they are not. Pure."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from tickpath.wire import ITEM_BYTES, Code, Failure, Result, ServerMessage, TensorInfo

# Those that are told one by one; the others are counted.
SHOWN_MAX: Final = 10
OK: Final = "OK"
# What depends on when a request came and on what else there was, not on the model: that these differ says nothing.
OF_TIME: Final = frozenset(code.name for code in (Code.DEADLINE, Code.SUPERSEDED, Code.OVERLOADED, Code.CANCELLED))


class Difference(msgspec.Struct, frozen=True):
    """An answer that is not the recorded one. `session` and `id` are those that were recorded. `abs_max` is the largest
    difference of two values, None where they can't be subtracted; `ulp_max` is in steps of the output's own floats,
    None where it has none; NaN beside a number is in neither and counts as `values`."""

    model: str
    client: str
    session: int
    id: int
    output: str
    values: int
    of: int
    abs_max: float | None
    ulp_max: int | None
    recorded_version: str
    replayed_version: str


class Outcome(msgspec.Struct, frozen=True):
    """How one exchange came out: OK or a code, then and now, and the difference of two answers."""

    recorded: str
    replayed: str
    difference: Difference | None = None


class Tally:
    """Counts outcomes, by model."""

    def __init__(self) -> None:
        self.same: Counter[str] = Counter()
        self.differ: Counter[str] = Counter()
        self.codes: Counter[tuple[str, str, str]] = Counter()
        """Of those that ended otherwise than before: model, then, now."""
        self.versions: Counter[tuple[str, str, str]] = Counter()
        """Answers by model and by the versions that gave the recorded and the new one."""
        self.shown: list[Difference] = []
        self.abs_max = 0.0
        self.ulp_max = 0

    def add(self, model: str, outcome: Outcome) -> None:
        if outcome.recorded != outcome.replayed:
            self.codes[model, outcome.recorded, outcome.replayed] += 1
        elif outcome.difference is None:
            self.same[model] += 1
        else:
            self.differ[model] += 1
            self.abs_max = max(self.abs_max, outcome.difference.abs_max or 0.0)
            self.ulp_max = max(self.ulp_max, outcome.difference.ulp_max or 0)
            if len(self.shown) < SHOWN_MAX:
                self.shown.append(outcome.difference)

    @property
    def decided_otherwise(self) -> int:
        """Exchanges that ended otherwise, for another reason than time."""
        return sum(count for (_, then, now), count in self.codes.items() if not {then, now} & OF_TIME)

    @property
    def compared(self) -> int:
        return self.same.total() + self.differ.total() + self.codes.total()


def code_of(message: ServerMessage) -> str:
    """How a request ended."""
    return message.code.name if isinstance(message, Failure) else OK


def difference(
    recorded: Result, replayed: Result, outputs: Sequence[TensorInfo]
) -> tuple[str, int, int, float | None, int | None] | None:
    """None where all bits are the same; else of the first output that differs its name, how many values differ and of
    how many, and by how much at most. `outputs` are the recorded model's, and may be unknown (empty)."""
    if len(recorded.outputs) != len(replayed.outputs):
        return f"{len(recorded.outputs)} outputs were recorded, {len(replayed.outputs)} came", 0, 0, None, None
    for place, (then, now) in enumerate(zip(recorded.outputs, replayed.outputs, strict=True)):
        if then == now:
            continue
        info = outputs[place] if place < len(outputs) else None
        name = info.name if info is not None else f"output {place}"
        if info is None or info.dtype not in ITEM_BYTES or len(then) != len(now) or len(then) % ITEM_BYTES[info.dtype]:
            return f"{name}: {len(then)} bytes were recorded, {len(now)} came", 0, 0, None, None
        return name, *_distance(then, now, np.dtype(info.dtype).newbyteorder("<"))
    return None


def _distance(then: memoryview, now: memoryview, dtype: np.dtype[Any]) -> tuple[int, int, float | None, int | None]:
    bits = np.dtype(f"<i{dtype.itemsize}")
    bits_a, bits_b = np.frombuffer(then, bits), np.frombuffer(now, bits)
    values = int(np.count_nonzero(bits_a != bits_b))
    a, b = np.frombuffer(then, dtype), np.frombuffer(now, dtype)
    if dtype.kind != "f":
        return values, len(a), float(np.abs(a.astype(object) - b.astype(object)).max()), None
    numbers = np.isfinite(a) & np.isfinite(b)
    if not numbers.any():
        return values, len(a), None, None
    with np.errstate(over="ignore"):  # the largest doubles are infinitely far apart
        span = np.abs(a[numbers].astype(np.float64) - b[numbers].astype(np.float64)).max()
    low, high = np.sort([_steps(each[numbers]) for each in (bits_a, bits_b)], axis=0)
    return values, len(a), float(span), int((high.view(np.uint64) - low.view(np.uint64)).max())


def _steps(bits: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Floats as whole numbers in their order, so that neighbours are one apart; both zeros are 0."""
    wide = bits.astype(np.int64)
    lowest = np.int64(np.iinfo(bits.dtype).min)
    return np.where(wide < 0, lowest - wide, wide)
