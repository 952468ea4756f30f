"""The C++ client as a child process, one method for each of its calls."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Said = dict[str, Any]
"""`status`, `error`, `connected`, `draining`, `in_flight`, and what the call gave beside them."""


class Driver:
    """tests/cpp/driver.cpp: a call blocks until the client has returned."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def say(self, *words: object) -> Said:
        """One call."""
        self.begin(*words)
        return self.finish()

    def begin(self, *words: object) -> None:
        """Start a call; `finish` waits for it."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def finish(self) -> Said:
        """What came of the call that was begun."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the client ended with {self._process.wait()}"
        said: Said = json.loads(line)
        return said

    def connect(
        self, address: str | tuple[str, int], wait: str = "block", timeout_ms: int = 5000, receive_bytes: int = 1 << 20
    ) -> Said:
        text = address if isinstance(address, str) else f"{address[0]}:{address[1]}"
        return self.say("connect", text, wait, timeout_ms * 1_000_000, receive_bytes)

    def infer(self, model: str, *inputs: Array | None, **options: int) -> Said:
        return self.say("infer", *_request(model, inputs, **options))

    def send(self, model: str, *inputs: Array | None, **options: int) -> Said:
        return self.say("send", *_request(model, inputs, **options))

    def receive(self, timeout_ms: int = 20_000) -> Said:
        return self.say("receive", timeout_ms)


def _request(
    model: str, inputs: Sequence[Array | None], rows: int = 1, budget_ns: int = 0, timeout_ms: int = -1
) -> list[object]:
    words = ["nil" if data is None else f"{data.dtype.name}:{data.tobytes().hex()}" for data in inputs]
    return [model, rows, budget_ns, timeout_ms, *words]


@contextmanager
def running(program: Path) -> Iterator[Driver]:
    """A client that has not connected. What a sanitizer finds ends it with another code than 0."""
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Driver(process)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(30) == 0
        finally:
            process.kill()


def output(said: Said, dtype: npt.DTypeLike = np.float32, index: int = 0) -> Array:
    """An output of an answer, flat."""
    return np.frombuffer(bytes.fromhex(said["outputs"][index]), dtype)
