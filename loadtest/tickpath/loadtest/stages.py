"""Where a request's time went: the server's own stages and what lies around them."""

import numpy as np
import numpy.typing as npt

from tickpath.wire import STAGES

NANOSECONDS = npt.NDArray[np.int64]


def breakdown(sent_ns: NANOSECONDS, done_ns: NANOSECONDS, stamps_ns: NANOSECONDS) -> dict[str, NANOSECONDS]:
    """Spans in nanoseconds, int64[count] each, that add up to `done_ns - sent_ns` for every request.

    `stamps_ns` is int64[count, 6], the marks of a Result on the server's clock; only differences of one clock are
    taken. "network" is what the client saw and the server did not: the client's own work, the kernels, the wire, and
    the server's sending.
    """
    spans = np.diff(stamps_ns, axis=1)
    network = (done_ns - sent_ns) - spans.sum(axis=1)
    return {"network": network, **{stage: spans[:, column] for column, stage in enumerate(STAGES)}}
