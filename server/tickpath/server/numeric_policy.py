"""What becomes of a request whose numbers are none, or are out of bounds: refused, answered with a flag, or answered as
if nothing were. Pure.

The server looks, since models hide it: many turn a NaN into a plausible answer, and the other way round.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from tickpath.engines import TensorSpec
from tickpath.graphs import Bounds, OutputRules
from tickpath.server.admission import Refusal
from tickpath.wire import Code, Flag

Reaction = Literal["refuse", "flag", "pass"]
"""`pass`: nobody looks, so it costs nothing."""

Limit: TypeAlias = float | Mapping[str, float] | None
"""A bound of every output, or of those named."""

OUTPUT_FLAGS: Final = int(Flag.OUTPUT_NON_FINITE | Flag.OUTPUT_OUT_OF_BOUNDS)


class NumericPolicy(msgspec.Struct, frozen=True):
    """One model's: what becomes of NaN and infinities in inputs and outputs, and of outputs out of bounds."""

    inputs: Reaction = "refuse"
    outputs: Reaction = "pass"
    bounds: Reaction = "refuse"
    output_min: Limit = None
    output_max: Limit = None

    @property
    def checks_bounds(self) -> bool:
        return self.bounds != "pass" and (self.output_min is not None or self.output_max is not None)

    @property
    def flags(self) -> bool:
        """Whether an answer may carry a flag."""
        return "flag" in (self.inputs, self.outputs) or (self.bounds == "flag" and self.checks_bounds)

    def output_rules(self, outputs: Sequence[TensorSpec]) -> OutputRules:
        """What these outputs are to be checked for."""
        return OutputRules(self.outputs != "pass", self.bounds_of(outputs) if self.checks_bounds else {})

    def bounds_of(self, outputs: Sequence[TensorSpec]) -> dict[str, Bounds]:
        """The bounds of each output, by name."""
        return {
            tensor.name: Bounds(_limit(self.output_min, tensor.name), _limit(self.output_max, tensor.name))
            for tensor in outputs
        }


def input_refusal(name: str) -> Refusal:
    """The refusal of a request whose input `name` is not finite."""
    return Refusal(
        Code.BAD_VALUE,
        f"input {name!r} holds a NaN or an infinity (or a bool other than 0 and 1), which this server refuses since "
        'models hide it: send finite values, or serve the model with --non-finite pass or flag (non_finite = "pass")',
        int(Flag.INPUT_NON_FINITE),
    )


def judge_outputs(policy: NumericPolicy, non_finite: str | None, outside: str | None) -> tuple[int, str]:
    """What was seen, as flags, and why the answer is refused for it; an empty text where it is not. `non_finite`,
    `outside`: the output that is so, None: none is, or nobody looked."""
    seen, refused = 0, []
    if non_finite is not None:
        seen |= int(Flag.OUTPUT_NON_FINITE)
        if policy.outputs == "refuse":
            refused.append(f"output {non_finite!r} holds a NaN or an infinity (output_non_finite)")
    if outside is not None:
        seen |= int(Flag.OUTPUT_OUT_OF_BOUNDS)
        if policy.bounds == "refuse":
            refused.append(f"output {outside!r} is not within its bounds (output_min, output_max)")
    return seen, "; ".join(refused)


def misplaced_limits(policy: NumericPolicy, outputs: Sequence[TensorSpec]) -> str | None:
    """What is wrong with the bounds for a model with these outputs, None: nothing."""
    bounded = {tensor.name for tensor in outputs if tensor.dtype.kind != "b"}
    for key, limit in (("output_min", policy.output_min), ("output_max", policy.output_max)):
        for name in limit if isinstance(limit, Mapping) else ():
            if name not in bounded:
                return f"{key} names {name!r}, which is no output with numbers: there are {', '.join(sorted(bounded))}"
    for name, (low, high) in policy.bounds_of(outputs).items():
        if low is not None and high is not None and low > high:
            return f"output {name!r} is to be {low:g} at least and {high:g} at most, which no number is"
    return None


def _limit(limit: Limit, name: str) -> float | None:
    return limit.get(name) if isinstance(limit, Mapping) else limit
