"""Which column types fit which dtypes. Nothing is rounded unless that was asked for, and then nothing but rounded.

A dtype takes a column where it holds every value of the column's type exactly. With `cast`, floats may be rounded and
integers become floats; an integer is still never cut off, and a fraction never made whole: that is a bad row.
"""

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tickpath.engines import Array

Mask: TypeAlias = npt.NDArray[np.bool_]

# The bits of a float's significand: integers of as many bits, without their sign, are all among its values.
_EXACT_BITS: Final = {2: 11, 4: 24, 8: 53}


def fits_exactly(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Whether `target` holds every value of `source`."""
    if source == target or (source.kind == "b" and target.kind != "b"):
        return True
    if source.kind in "iu" and target.kind == "f":
        return 8 * source.itemsize - (source.kind == "i") <= _EXACT_BITS[target.itemsize]
    return target.kind != "b" and np.can_cast(source, target, "safe")


def may_be_cast(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Whether `cast` makes a column of `source` one of `target`: numbers are no bools."""
    return fits_exactly(source, target) or target.kind != "b"


def cast_values(values: npt.NDArray[Any], target: np.dtype[Any]) -> tuple[Array, Mask | None]:
    """The values in another dtype, and where that could not be done; None: it could everywhere."""
    source = values.dtype
    if source == target:
        return values, None
    with np.errstate(over="ignore", invalid="ignore"):
        made = values.astype(target)
        if target.kind == "f" or fits_exactly(source, target):
            return made, None
        if source.kind == "f":
            # A float that is whole and within range comes back the same; 2**63 as an int64 does not come back.
            back = made.astype(source)
            limit = float(np.iinfo(target).max) + 1
            lost = (back != values) | (values.astype(np.float64) >= limit)
        else:
            limits = np.iinfo(target)
            lost = (values < max(limits.min, np.iinfo(source).min)) | (values > min(limits.max, np.iinfo(source).max))
    return made, lost if lost.any() else None
