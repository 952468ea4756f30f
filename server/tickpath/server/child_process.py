"""A process beside the core: started with it, restarted if it dies, gone when it goes. The core never waits for it
while serving. The observer is one, the door and the recorder are others."""

import asyncio
import json
import logging
import os
import subprocess
from abc import ABC, abstractmethod
from typing import IO, Any, Final

from tickpath.server.listeners import AddressError

log = logging.getLogger(__name__)

# Starting a process holds the loop up for some 3 ms, so a child that can't live is tried less and less often.
RESTART_S: Final = 1.0
RESTART_S_MAX: Final = 60.0
# Importing and binding take about half a second of a CPU, of which a process that steps aside gets a thirtieth where
# twenty others want two CPUs (seen: four hundredths a second).
START_S_MAX: Final = 60.0
# One that holds nothing worth saving needs a moment.
STOP_S_MAX: Final = 2.0
# Its exit code when it can't have its port (see tickpath.observe.__main__ and tickpath.door.__main__).
EXIT_ADDRESS: Final = 4


class ChildError(Exception):
    """A process beside the core can't be had. The text says why."""


class ChildProcess(ABC):
    """Runs a command that prints one JSON line when it serves. `name`: what people call it. `stop_s`: how long it may
    take to end."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, name: str, pass_fds: tuple[int, ...] = (), stop_s: float = STOP_S_MAX
    ) -> None:
        self._loop = loop
        self._name = name
        self._pass_fds = pass_fds
        self._stop_s = stop_s
        self._restart_s = RESTART_S
        self._started_s = 0.0
        self._process: subprocess.Popen[str] | None = None
        self._pidfd = -1
        self._stopping = False

    @abstractmethod
    def command(self) -> list[str]:
        """What to run. After `told`, at the same addresses again, also where they were chosen freely."""

    @abstractmethod
    def told(self, line: dict[str, Any]) -> None:
        """What it printed when it served."""

    @abstractmethod
    def address_taken(self) -> str:
        """What to say, and to do, when it can't listen where it should."""

    def start(self) -> None:
        """Start it; it imports and binds while the core goes on."""
        self._started_s = self._loop.time()
        # A process group of its own: Ctrl-C in a terminal is for the core, which then ends it.
        self._process = subprocess.Popen(
            self.command(), pass_fds=self._pass_fds, stdout=subprocess.PIPE, text=True, process_group=0
        )

    async def ready(self) -> None:
        """Wait until it serves, and keep watch from then on. Raises AddressError when it can't have its port."""
        assert self._process is not None
        try:
            first_line = self._loop.run_in_executor(None, _first_line, self._process.stdout)
            line = await asyncio.wait_for(first_line, START_S_MAX)
        except TimeoutError:
            self._process.kill()  # ends the wait for its line too
            raise ChildError(f"{self._name} did not serve within {START_S_MAX:g} s: see what it said") from None
        if not line:
            code = self._process.wait()
            if code == EXIT_ADDRESS:
                raise AddressError(self.address_taken())
            raise ChildError(f"{self._name} ended with exit code {code} before it served: see what it said")
        self.told(json.loads(line))
        self._watch()

    def _watch(self) -> None:
        assert self._process is not None
        self._pidfd = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._pidfd, self._ended)

    def _ended(self) -> None:
        assert self._process is not None
        self._unwatch()
        code = self._process.wait()
        if self._loop.time() - self._started_s > RESTART_S_MAX:  # it could live
            self._restart_s = RESTART_S
        if not self._stopping:
            self._restart_later(f"{self._name} ended with exit code {code}")

    def _restart_later(self, why: str) -> None:
        log.warning("%s; starting it again in %g s", why, self._restart_s)
        self._loop.call_later(self._restart_s, self._restart)
        self._restart_s = min(2 * self._restart_s, RESTART_S_MAX)

    def _restart(self) -> None:
        if self._stopping:
            return
        try:
            self.start()
        except OSError as error:  # no descriptor, memory or process left, for now
            self._restart_later(f"{self._name} can't be started: {error.strerror}")
        else:
            self._watch()

    def _unwatch(self) -> None:
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    @property
    def ended(self) -> bool:
        """It does not run, for now."""
        return self._process is not None and self._process.poll() is not None

    def _ask_to_end(self, process: subprocess.Popen[str]) -> None:
        process.terminate()

    def kill(self) -> None:
        """End it at once, without waiting for it."""
        if self._process is not None:
            self._process.kill()

    def stop(self) -> None:
        """End it and wait for it, at most as long as it may take."""
        self._stopping = True
        self._unwatch()
        if self._process is not None and self._process.poll() is None:
            self._ask_to_end(self._process)
            try:
                self._process.wait(self._stop_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def _first_line(stream: IO[str] | None) -> str:
    return stream.readline() if stream is not None else ""
