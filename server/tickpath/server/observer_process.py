"""The observer, as the core starts it."""

import asyncio
import os
import sys
from collections.abc import Set
from typing import Any

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
        self._records_fd = records_fd
        self._server_name = config.server_name or name
        self._host = config.observer_host
        self._port = config.observer_port or 0
        self._cpus = cpus
        self._token_file = config.observer_token_file
        self._triton_names = config.observer_triton_names
        self._trace = [] if config.trace is None else _trace_options(config.trace)
        self.url = ""

    def command(self) -> list[str]:
        command = [sys.executable, "-m", "tickpath.observe", "--records-fd", str(self._records_fd)]
        command += [
            "--tally-fd",
            str(self._tally_fd),
            "--name",
            self._server_name,
            "--host",
            self._host,
            "--port",
            str(self._port),
        ]
        command += ["--token-file", self._token_file] if self._token_file else []
        command += [*["--triton-names"] * self._triton_names, *self._trace]
        return [*command, "--cpus", ",".join(map(str, sorted(self._cpus)))] if self._cpus else command

    def stop(self) -> None:
        super().stop()
        os.close(self._tally_fd)

    def told(self, line: dict[str, Any]) -> None:
        self.url = line["observer"]
        self._port = int(self.url.rpartition(":")[2])

    def address_taken(self) -> str:
        return f"the observer can't listen on {self._host}:{self._port}: give another --observer-port"


def _trace_options(trace: TraceConfig) -> list[str]:
    options = ["--trace-endpoint", trace.endpoint, "--trace-sample", str(trace.sample), "--trace-slow", str(trace.slow)]
    options += ["--trace-headers-file", trace.headers_file] if trace.headers_file else []
    return [*options, "--trace-ca", trace.ca] if trace.ca else options
