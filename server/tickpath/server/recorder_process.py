"""The recorder, as the core starts it."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Set
from typing import Any, Final

import msgspec

from tickpath.logs import LogFormat
from tickpath.recorder.recorder import Settings
from tickpath.recorder.writing import Limits
from tickpath.server.child_process import ChildProcess
from tickpath.server.recording import Recording
from tickpath.server.session import SERVER_NAME

# What waits in a ring of the default size is written in well under a second; a slow disk gets its chance.
WRITE_S_MAX: Final = 10.0


class RecorderProcess(ChildProcess):
    """Runs `python -m tickpath.recorder` on the ring of `recording`."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, recording: Recording, log_format: LogFormat, cpus: Set[int] | None
    ) -> None:
        super().__init__(loop, "the recorder", (recording.ring.fd, recording.lock_fd), WRITE_S_MAX)
        config = recording.config
        limits = Limits(config.segment_bytes, config.segment_s, config.bytes_max, config.when_full)
        self._recording = recording
        self._settings = Settings(
            recording.ring.fd,
            recording.lock_fd,
            config.dir,
            SERVER_NAME,
            recording.run,
            os.getpid(),
            limits,
            log_format,
        )
        self._cpus = cpus

    def start(self) -> None:
        self._recording.describe_again()
        super().start()

    def stop(self) -> None:
        """It writes what there still is. One that has died just now is started again for that."""
        self._recording.ring.end()
        if self.ended:
            self.start()
        super().stop()

    def _ask_to_end(self, process: subprocess.Popen[str]) -> None:
        """It has been told, by the ring: a signal could come before it can take one."""

    def command(self) -> list[str]:
        command = [sys.executable, "-m", "tickpath.recorder", msgspec.json.encode(self._settings).decode()]
        return [*command, "--cpus", ",".join(map(str, sorted(self._cpus)))] if self._cpus else command

    def told(self, line: dict[str, Any]) -> None:
        """It records where it was told to."""

    def address_taken(self) -> str:
        return "the recorder listens nowhere"
