"""The observer, as the core starts it."""

import asyncio
import sys
from collections.abc import Set
from typing import Any

from tickpath.server.child_process import ChildProcess


class ObserverProcess(ChildProcess):
    """Runs `python -m tickpath.observe` on the records behind `records_fd`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        records_fd: int,
        host: str,
        port: int,
        cpus: Set[int] | None,
        triton_names: bool = False,
    ) -> None:
        super().__init__(loop, "the observer", (records_fd,))
        self._records_fd = records_fd
        self._host = host
        self._port = port
        self._cpus = cpus
        self._triton_names = triton_names
        self.url = ""

    def command(self) -> list[str]:
        command = [sys.executable, "-m", "tickpath.observe", "--records-fd", str(self._records_fd)]
        command += ["--host", self._host, "--port", str(self._port)]
        command += ["--triton-names"] * self._triton_names
        return [*command, "--cpus", ",".join(map(str, sorted(self._cpus)))] if self._cpus else command

    def told(self, line: dict[str, Any]) -> None:
        self.url = line["observer"]
        self._port = int(self.url.rpartition(":")[2])

    def address_taken(self) -> str:
        return f"the observer can't listen on {self._host}:{self._port}: give another --observer-port"
