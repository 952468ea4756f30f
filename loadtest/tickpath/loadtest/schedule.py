"""When requests are meant to leave. Pure: no clock, no sleep."""

import numpy as np
import numpy.typing as npt


def constant_rate(start_ns: int, rate_hz: float, count: int) -> npt.NDArray[np.int64]:
    """Intended send times, int64[count], in nanoseconds: the first at `start_ns`, then `rate_hz` a second. Each is
    computed from the start, so rounding never adds up. Raises ValueError at a rate that is not positive."""
    if not rate_hz > 0:
        raise ValueError(f"a rate is above zero requests a second, {rate_hz} came")
    offsets_ns: npt.NDArray[np.int64] = np.rint(np.arange(count) * (1e9 / rate_hz)).astype(np.int64)
    return start_ns + offsets_ns
