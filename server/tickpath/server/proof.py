"""A model proven in a process of its own, before a server touches it: a file that kills its runtime kills only that.

The prover is `python -m tickpath.server.proving`: it has imported all that a load needs, and forks for each `Task`, a
line of JSON on its stdin: starting Python anew takes seven times as long as the load of a small model. A fork does all
that a load does, serves nothing, and bounds its own time. What became of it is a line of JSON on the prover's stdout.
"""

import signal
import subprocess
import sys
from collections.abc import Set
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec
import numpy as np

from tickpath.engines import EngineSpec, FeedHint, KnownModel, TensorSpec
from tickpath.server.config import ModelConfig
from tickpath.server.verification import Report
from tickpath.wire import TensorInfo

COMMAND: Final = (sys.executable, "-P", "-m", "tickpath.server.proving")

# A large model takes TensorRT minutes to compile; what is not done after ten hangs.
PROVE_S_MAX: Final = 600
# The least priority that there is: a load may wait, a reply may not.
NICE_MAX: Final = 19


class Task(msgspec.Struct, frozen=True):
    """What to prove; and where a large model may be taken apart, for whoever loads it next. `rehearse`: of a plan,
    where there is no GPU to run it, what can be proven without."""

    model: ModelConfig
    frame_bytes_max: int
    unpack_folder: str | None = None
    rehearse: bool = False


class Ended(msgspec.Struct, frozen=True):
    """How a fork ended, and what it had written by then."""

    returncode: int
    stdout: bytes
    stderr: bytes


class Proven(msgspec.Struct, frozen=True, tag="proven"):
    """The model can be served. `compute_ns`: what a replay of each bucket took, the median while warming up; `sha256`
    tells what was proven from what may have taken its place since; `not_run`: that this is a plan which no device was
    there to run, and what was proven instead."""

    model: str
    version: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    buckets: tuple[int, ...]
    compute_ns: tuple[int, ...]
    runtime: str
    precision: str
    sha256: str
    rows_fixed: int | None
    verified: Report
    feed: FeedHint | None = None
    not_run: str = ""
    unpacked: str | None = None

    @property
    def known(self) -> KnownModel | None:
        """What an engine need not find out again. None where an input has a default, which is not told here."""
        if any(tensor.optional for tensor in self.inputs):
            return None
        inputs, outputs = (tuple(map(_tensor_spec, side)) for side in (self.inputs, self.outputs))
        spec = EngineSpec(inputs, outputs, self.runtime, self.precision, self.sha256, self.rows_fixed, feed=self.feed)
        return KnownModel(spec, None if self.unpacked is None else Path(self.unpacked))


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The model can't be served. `text` names the file, the cause and what to do."""

    text: str


Verdict = Proven | Refused


class Prover:
    """Proves models, one at a time, at niceness `nice`, on `cpus` (None: anywhere). It is started by its first proof,
    ends after a minute without one, and is then started again."""

    def __init__(self, nice: int = NICE_MAX, cpus: Set[int] | None = None) -> None:
        self._command = [*COMMAND, str(nice), ",".join(map(str, sorted(cpus or ())))]
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """Of its process, while it has one."""
        return None if self._process is None else self._process.pid

    def prove(self, task: Task) -> Verdict:
        """Waits for it. Raises OSError where no process can be started."""
        line = msgspec.json.encode(task) + b"\n"
        # It may just have ended for want of work; a second one has not.
        answer = self._ask(line) or self._ask(line)
        if not answer:  # it was closed meanwhile, or killed twice
            return Refused(f"{task.model.path}: the process that proves models ended: try again")
        ended = msgspec.json.decode(answer, type=Ended)
        return verdict_of(task, ended.returncode, ended.stdout, ended.stderr)

    def close(self) -> None:
        """End it, and a proof that another thread waits for. Nothing is proven any more."""
        self._closed = True
        process = self._process  # which a thread that waits for an answer lets go of meanwhile
        if process is not None:
            process.kill()
            _let_go(process)

    def _ask(self, line: bytes) -> bytes:
        """One line of answer; empty, and the process is gone, where there is none."""
        if self._closed:
            return b""
        if self._process is None:
            # A process group of its own: Ctrl-C in a terminal is for whoever waits for it, and then ends it.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
            )
        answer = _exchange(self._process, line)
        if not answer.endswith(b"\n"):
            _let_go(self._process)
            self._process = None
            return b""
        return answer


def _exchange(process: subprocess.Popen[bytes], line: bytes) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.write(line)
        process.stdin.flush()
    return process.stdout.readline()


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """Wait for its end, which has come or is near, and close its pipes."""
    with suppress(BrokenPipeError), process:
        pass


def verdict_of(task: Task, returncode: int, stdout: bytes, stderr: bytes) -> Verdict:
    """What a fork that has ended has found, or what has become of it."""
    path = task.model.path
    if returncode == -signal.SIGALRM:
        return Refused(f"{path}: not loaded after {PROVE_S_MAX} s, given up")
    if returncode < 0:
        return Refused(f"{path}: the runtime died with signal {-returncode} on it{_last_words(stderr)}")
    try:
        return msgspec.json.decode(stdout, type=Verdict)
    except msgspec.DecodeError:
        return Refused(f"{path}: its loader ended with exit code {returncode}{_last_words(stderr)}")


def _tensor_spec(info: TensorInfo) -> TensorSpec:
    return TensorSpec(info.name, np.dtype(info.dtype), info.shape, None if info.batch_axis < 0 else info.batch_axis)


def _last_words(stderr: bytes) -> str:
    lines = stderr.decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"; it said: {last}" if last else ""
