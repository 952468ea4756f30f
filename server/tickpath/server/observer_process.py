"""The observer, as the core starts it."""

import asyncio
import os
import sys
from collections.abc import Set
from typing import Any

import msgspec

from tickpath.observe.settings import ObserverSettings, TraceSettings
from tickpath.server.child_process import ChildProcess
from tickpath.server.config import ServerConfig
from tickpath.server.trace_config import TraceConfig


class ObserverProcess(ChildProcess):
    """Runs `python -m tickpath.observe` on the records behind `records_fd`, and gives each the memory in which the one
    before it counted. `name`: what the server is called where its configuration does not say."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, records_fd: int, config: ServerConfig, name: str, cpus: Set[int] | None
    ) -> None:
        self._tally_fd = os.memfd_create("tickpath-tally")
        super().__init__(loop, "the observer", (records_fd, self._tally_fd))
        self._settings = ObserverSettings(
            records_fd,
            config.server_name or name,
            config.observer_host,
            config.observer_port or 0,
            self._tally_fd,
            config.observer_token_file,
            config.observer_triton_names,
            None if config.trace is None else _trace_settings(config.trace),
            config.log_format,
        )
        self._cpus = cpus
        self.url = ""

    def command(self) -> list[str]:
        command = [sys.executable, "-m", "tickpath.observe", msgspec.json.encode(self._settings).decode()]
        return [*command, "--cpus", ",".join(map(str, sorted(self._cpus)))] if self._cpus else command

    def stop(self) -> None:
        super().stop()
        os.close(self._tally_fd)

    def told(self, line: dict[str, Any]) -> None:
        self.url = line["observer"]
        self._settings = msgspec.structs.replace(self._settings, port=int(self.url.rpartition(":")[2]))

    def address_taken(self) -> str:
        settings = self._settings
        return f"the observer can't listen on {settings.host}:{settings.port}: give another --observer-port"


def _trace_settings(trace: TraceConfig) -> TraceSettings:
    return TraceSettings(trace.endpoint, trace.headers_file, trace.ca, trace.sample, str(trace.slow))
