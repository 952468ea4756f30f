"""What becomes of values that should not be, as a model's configuration says it."""

from typing import Annotated, Literal

import msgspec

# What is infinite, or no number, bounds nothing.
Number = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
# A bound of every output, or of those named.
Limit = Number | dict[str, Number] | None
# What becomes of values that should not be. pass: nobody looks, so it costs nothing.
Reaction = Literal["refuse", "flag", "pass"]


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
