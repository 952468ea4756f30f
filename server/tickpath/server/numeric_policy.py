"""What becomes of a request whose numbers are none, or are out of bounds: refused, answered with a flag, or answered as
if nothing were. Pure.

The server looks, since models hide it: many turn a NaN into a plausible answer, and the other way round.
"""

from collections.abc import Sequence
from typing import Final

from tickpath.engines import TensorSpec
from tickpath.graphs import Bounds, OutputRules
from tickpath.server.admission import Refusal
from tickpath.server.numeric_config import Limit, NumericPolicy
from tickpath.wire import Code, Flag

OUTPUT_FLAGS: Final = int(Flag.OUTPUT_NON_FINITE | Flag.OUTPUT_OUT_OF_BOUNDS)


def output_rules(policy: NumericPolicy, outputs: Sequence[TensorSpec]) -> OutputRules:
    """What these outputs are to be checked for."""
    return OutputRules(policy.outputs != "pass", bounds_of(policy, outputs) if policy.checks_bounds else {})


def bounds_of(policy: NumericPolicy, outputs: Sequence[TensorSpec]) -> dict[str, Bounds]:
    """The bounds of each output, by name."""
    return {
        tensor.name: Bounds(_limit(policy.output_min, tensor.name), _limit(policy.output_max, tensor.name))
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
        for name in limit if isinstance(limit, dict) else ():
            if name not in bounded:
                return f"{key} names {name!r}, which is no output with numbers: there are {', '.join(sorted(bounded))}"
    for name, (low, high) in bounds_of(policy, outputs).items():
        if low is not None and high is not None and low > high:
            return f"output {name!r} is to be {low:g} at least and {high:g} at most, which no number is"
    return None


def _limit(limit: Limit, name: str) -> float | None:
    return limit.get(name) if isinstance(limit, dict) else limit
