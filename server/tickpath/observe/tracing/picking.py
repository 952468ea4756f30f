"""Which requests become traces: a share of all, by their number, and those slower than a limit. Pure."""

from typing import Final

import numpy as np
import numpy.typing as npt

from tickpath.observe.reader import Records

Mask = npt.NDArray[np.bool_]

# The finaliser of SplitMix64, whose result differs in half of its bits between two numbers that differ in one.
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_STEPS: Final = ((30, np.uint64(0xBF58476D1CE4E5B9)), (27, np.uint64(0x94D049BB133111EB)))
# As many bits as a float has: a share then says exactly which numbers are below it.
_BITS: Final = 53


def sampled(records: Records, share: float) -> Mask:
    """(n,) whether each is one of this share, 0 to 1. A request's session and id decide, so whoever knows them knows
    it, and a larger share takes all that a smaller one does."""
    mixed = _mix(_mix(records["session"]) + records["id"])
    mask: Mask = (mixed >> np.uint64(64 - _BITS)) < np.uint64(int(share * 2**_BITS))
    return mask


def _mix(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    mixed = numbers + _GOLDEN
    for shift, factor in _STEPS:
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * factor
    done: npt.NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
    return done
