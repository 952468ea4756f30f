"""A client that keeps every rule, in a process of its own so that a fault's making does not slow it: it asks, compares
each answer and notes the gaps between them, phase by phase.

    python -m tests.integration.faults.innocent PATH [TOKEN]     the server's Unix socket

Each line of stdin begins a phase, or with `until N` waits for so many answers more; `ok` comes when it is so. At the
end of stdin it prints each phase's figures, as JSON. A wrong or a missing answer ends it with 1.
"""

import json
import select
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, Self

from tests.integration.hostile.arena import echo, expect_answers
from tests.peer import Peer
from tests.serving import RunningServer

from tickpath.wire import PROTOCOL_VERSION, Hello, Welcome

PAUSE_S: Final = 0.001
CALM_ANSWERS: Final = 300
"""In which the longest gap without a fault is looked for."""


class Gaps(NamedTuple):
    """Of one phase: answers, the median of the time between two of them, and the longest."""

    answers: int
    median_ns: float
    longest_ns: int


class Innocent:
    """The running client."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.gaps: dict[str, Gaps] = {}

    def phase(self, name: str) -> None:
        self._say(name)

    def wait_for(self, answers: int) -> None:
        """Returns when so many more have come."""
        self._say(f"until {answers}")

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "ok\n", "it got a wrong answer, or none"

    @contextmanager
    def beside(self) -> Iterator[Self]:
        """The fault happens in the block: some answers came before it and some come in it."""
        self.wait_for(CALM_ANSWERS)
        self.phase("fault")
        yield self
        self.wait_for(10)
        self.phase("after")
        self.wait_for(10)

    def end(self) -> None:
        told, _ = self._process.communicate(timeout=60)
        assert self._process.returncode == 0
        self.gaps = {name: Gaps(*values) for name, values in json.loads(told).items()}

    def told(self) -> str:
        """The fault's gaps as multiples of the calm's."""
        calm, fault = self.gaps["calm"], self.gaps["fault"]
        longest, median = fault.longest_ns / calm.longest_ns, fault.median_ns / calm.median_ns
        return f"innocent {fault.answers:>5} answers, gap median {median:.2f}x, longest {longest:.1f}x"


@contextmanager
def innocent(server: RunningServer, token: str = "") -> Iterator[Innocent]:
    """One that asks until the block ends, and whose answers were all right."""
    command = [sys.executable, "-m", "tests.integration.faults.innocent", server.uds.removeprefix("unix:"), token]
    root = Path(__file__).parents[3]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        client = Innocent(process)
        try:
            client.phase("calm")  # it is connected
            yield client
            client.end()
        except BaseException:
            process.kill()
            raise


class _Asking:
    def __init__(self, path: str, token: str) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(60)
        connection.connect(path)
        self._peer = Peer(connection)
        self._peer.send(Hello(PROTOCOL_VERSION, "innocent", token))
        assert isinstance(self._peer.receive(), Welcome)
        self._gaps_ns: dict[str, list[int]] = {"": []}
        self._phase = ""
        self._asked = 0
        self._last_ns = time.perf_counter_ns()

    def ask(self) -> None:
        self._asked += 1
        request = echo(self._asked)
        self._peer.send(request)
        expect_answers(self._peer, request)
        now_ns = time.perf_counter_ns()
        self._gaps_ns[self._phase].append(now_ns - self._last_ns)
        self._last_ns = now_ns

    def obey(self, line: str) -> None:
        word, _, count = line.partition(" ")
        if word == "until":
            for _ in range(int(count)):
                self.ask()
                time.sleep(PAUSE_S)
        else:
            self._phase = word
            self._gaps_ns.setdefault(word, [])
        _print("ok")

    def told(self) -> str:
        gaps = {name: [len(g), statistics.median(g), max(g)] for name, g in self._gaps_ns.items() if g}
        return json.dumps(gaps)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    asking = _Asking(*sys.argv[1:3])
    while True:
        if select.select([sys.stdin], [], [], PAUSE_S)[0]:
            line = sys.stdin.readline()
            if not line:
                break
            asking.obey(line.strip())
        asking.ask()
    _print(asking.told())


if __name__ == "__main__":
    main()
