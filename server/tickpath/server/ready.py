"""The line that `tickpath serve --json` prints when it serves, for whoever started it."""

from typing import Literal

import msgspec


class Ready(msgspec.Struct, frozen=True):
    """Where the server is. `address`: what a client is given, TCP where there is a choice; `uds`: the Unix socket's, if
    there is one; `observer`: the URL of its metrics, if there are any; `seconds` is what the start took; `oip` and
    `oip_grpc`: the door's URL and its address for gRPC, where it has them."""

    address: str
    uds: str | None
    observer: str | None
    pid: int
    seconds: float
    event: Literal["ready"] = "ready"
    oip: str | None = None
    oip_grpc: str | None = None
