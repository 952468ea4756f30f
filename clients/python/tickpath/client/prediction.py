"""What a caller gets back."""

from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy.typing as npt

from tickpath.wire import STAGES, Flag

NO_FLAGS: Final = Flag(0)


class Prediction(msgspec.Struct, frozen=True, gc=False, eq=False):
    """The answer to one request.

    `outputs`: the model's outputs by name, in its order; each array owns its memory and may be written to.
    `version`: the version of the model that answered, the whole of it.
    `stamps`: the marks of `tickpath.wire.STAMP_NAMES`, in nanoseconds of the server's monotonic clock.
    `flags`: what to know of this answer before acting on it; none for nearly all (see `Flag`).
    `age_ns`: how old an answer is that stands in for this request's own (`Flag.LAST_ANSWER`); else 0.
    """

    outputs: dict[str, npt.NDArray[Any]]
    version: str
    stamps: tuple[int, int, int, int, int, int]
    flags: Flag = NO_FLAGS
    age_ns: int = 0

    def __getitem__(self, output: str) -> npt.NDArray[Any]:
        """One output by name."""
        return self.outputs[output]

    @property
    def stages(self) -> dict[str, int]:
        """Nanoseconds of each stage in the server: receive, queue, input, compute, output."""
        return {stage: end - start for stage, (start, end) in zip(STAGES, pairwise(self.stamps), strict=True)}

    @property
    def server_ns(self) -> int:
        """Nanoseconds from the request's first byte to its outputs being ready to send: the sum of the stages."""
        return self.stamps[-1] - self.stamps[0]
