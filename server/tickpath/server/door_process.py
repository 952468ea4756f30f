"""The Open Inference Protocol's door, as the core starts it. The core imports nothing of it."""

import asyncio
import json
import os
import sys
from collections.abc import Set
from typing import Any

from tickpath.server.child_process import ChildProcess
from tickpath.server.config import ServerConfig


class DoorProcess(ChildProcess):
    """Runs `python -m tickpath.door` in front of the core at `address`."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, config: ServerConfig, address: str, cpus: Set[int] | None
    ) -> None:
        super().__init__(loop, "the door")
        self._settings = {
            "core": address,
            "host": config.oip_host,
            "http_port": config.oip_port,
            "grpc_port": config.oip_grpc_port,
            "admin": config.admin if config.oip_admin else None,
            "message_bytes_max": config.frame_bytes_max,
            "core_pid": os.getpid(),
            "token_file": config.oip_token_file,
            "bearer": bool(config.clients),
            "log_format": config.log_format,
        }
        self._cpus = cpus
        self.http: str | None = None
        self.grpc: str | None = None

    def command(self) -> list[str]:
        command = [sys.executable, "-m", "tickpath.door", json.dumps(self._settings)]
        return [*command, "--cpus", ",".join(map(str, sorted(self._cpus)))] if self._cpus else command

    def told(self, line: dict[str, Any]) -> None:
        self.http, self.grpc = line["http"], line["grpc"]
        self._settings |= {"http_port": _port(self.http), "grpc_port": _port(self.grpc)}

    def address_taken(self) -> str:
        return "the door can't listen where it should, as it said: give another --oip or --oip-grpc"


def _port(address: str | None) -> int | None:
    return None if address is None else int(address.rpartition(":")[2])
