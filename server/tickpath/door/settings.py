"""Where a door stands, and in front of what."""

import msgspec

from tickpath.client import Tls
from tickpath.logs import LogFormat

# The core's own default: a larger frame should not travel over a socket.
MESSAGE_BYTES_MAX = 64 * 1024 * 1024


class DoorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`core`: the core's address. A port of None: that side is shut; 0: a free one. `admin`: the core's admin socket,
    for clients who may load and unload. `message_bytes_max`: of one gRPC message. `core_pid`: the core that started
    this door, which ends with it. `token_file`: whose token the core is told for those who bring none. `bearer`:
    whether the tokens that come are passed on. `tls`: files for a core at tls://."""

    core: str
    host: str = "127.0.0.1"
    http_port: int | None = None
    grpc_port: int | None = None
    admin: str | None = None
    message_bytes_max: int = MESSAGE_BYTES_MAX
    core_pid: int | None = None
    token_file: str | None = None
    bearer: bool = False
    tls: Tls | None = None
    log_format: LogFormat = "human"


class DoorReady(msgspec.Struct, frozen=True):
    """The line that a door prints when it listens: where."""

    http: str | None
    grpc: str | None
