"""What a load test asks: anything that takes requests on a stream socket and answers them.

The protocols are sans-IO, so that one sender, with one clock, measures all targets alike. A target of your own is a
class that takes `Options`; name it `module:Class`.
"""

from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

import msgspec

from tickpath.client import Tls

Stamps: TypeAlias = tuple[int, ...]

# Index of the request, how it ended (run.OK or a code of tickpath.wire.Code), the server's six stamps (or none).
Answer: TypeAlias = tuple[int, int, Stamps]

# What no target needs to bound: more than any server holds.
UNBOUNDED: Final = 1 << 30


class Options(msgspec.Struct, frozen=True):
    """Where a target is and what to ask it.

    `inputs`: an .npz of real inputs instead of the synthetic book of `seed`. `request_bytes`: of targets that have no
    model. `token_file`: whose token the server is told; without one it is that of TICKPATH_TOKEN. `tls`: files for a
    tls:// address.
    """

    address: str
    model: str | None = None
    inputs: str | None = None
    seed: int = 1
    request_bytes: int = 280
    token_file: str | None = None
    tls: Tls | None = None


class Dialogue(Protocol):
    """The talk on one connection, whoever makes the requests. After the greeting, requests are told apart by their
    index, which is never used twice."""

    in_flight_max: int
    """Requests that may wait for an answer, once `ready`."""
    ready: bool
    """Requests may be sent."""
    ended: str
    """Why nothing more can be said here; empty while it can."""

    def greeting(self) -> bytes:
        """What is sent first; may be empty."""

    def get_buffer(self) -> memoryview:
        """Room for what comes, at least one byte."""

    def received(self, byte_count: int) -> Sequence[Answer]:
        """That many bytes came. Raises LoadTestError and TickpathError until it is `ready`, where the request can't be
        made; nothing after that: whatever ends the dialogue is in `ended`."""


class AskingDialogue(Dialogue, Protocol):
    """One that makes the requests too."""

    def request(self, index: int) -> bytes | bytearray:
        """The whole request, which is sent at once; good until the next call. What takes long to make was made
        before."""


class Target(Protocol):
    """What is asked. `name`, `model` and `refusal` are known once a dialogue is ready."""

    name: str
    model: str
    refusal: str
    """Why the target refused a request, the latest time that it did; empty where it never did."""

    def dialogue(self) -> AskingDialogue:
        """A new one, for a new connection."""
