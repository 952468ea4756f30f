"""Some of the last requests of a version and how it answered them: what the next version is compared on."""

from collections import deque
from typing import Final

import msgspec

from tickpath.wire import Infer

# As many as show a difference that matters, few enough to be run again in a moment.
KEPT_MAX: Final = 32
# One in this time, so that they are spread over the last third of a second at least, and cost next to nothing.
EVERY_NS: Final = 10_000_000
# Of all that one version keeps.
KEPT_BYTES_MAX: Final = 1024 * 1024


class RecentAnswers:
    """Written by the one thread that runs the version, at `next_ns` or later; read by any."""

    def __init__(self, request_bytes_max: int) -> None:
        """`request_bytes_max`: the inputs and outputs of the largest request."""
        count = min(KEPT_MAX, KEPT_BYTES_MAX // max(1, request_bytes_max))
        self.next_ns = 0 if count else 2**63
        self._kept: deque[tuple[Infer, bytes]] = deque(maxlen=count)

    def keep(self, infer: Infer, frame: bytes, now_ns: int) -> None:
        self.next_ns = now_ns + EVERY_NS
        self._kept.append((with_own_inputs(infer), frame))

    def clear(self) -> None:
        """Forget what was asked only to warm up."""
        self._kept.clear()

    def all(self) -> tuple[tuple[Infer, bytes], ...]:
        """Requests and the reply frames that answered them, the oldest first."""
        return tuple(self._kept)


def with_own_inputs(infer: Infer) -> Infer:
    """The request with its inputs copied: the receive buffer moves on."""
    inputs = [None if data is None else memoryview(bytes(data)) for data in infer.inputs]
    return msgspec.structs.replace(infer, inputs=inputs)
