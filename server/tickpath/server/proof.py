"""A model proven in a process of its own, before a server touches it: a file that kills its runtime kills only that.

The child is `python -m tickpath.server.proving`: a `Task` as JSON on its stdin, one `Verdict` as a line of JSON on its
stdout. It does all that a load does, serves nothing, and bounds its own time.
"""

import signal
import subprocess
import sys
from typing import Final

import msgspec
import numpy as np

from tickpath.engines import EngineSpec, TensorSpec
from tickpath.server.config import ModelConfig
from tickpath.server.verification import Report
from tickpath.wire import TensorInfo

COMMAND: Final = (sys.executable, "-P", "-m", "tickpath.server.proving")

# A large model takes TensorRT minutes to compile; what is not done after ten hangs.
PROVE_S_MAX: Final = 600
# The least priority that there is.
NICE_MAX: Final = 19


class Task(msgspec.Struct, frozen=True):
    """What to prove, on which processors (none named: on those of the parent), and how far behind everything else: a
    load may wait, a reply may not."""

    model: ModelConfig
    frame_bytes_max: int
    cpus: tuple[int, ...] = ()
    nice: int = NICE_MAX


class Proven(msgspec.Struct, frozen=True, tag="proven"):
    """The model can be served. `compute_ns`: what a replay of each bucket took, the median while warming up; `sha256`
    tells what was proven from what may have taken its place since."""

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

    @property
    def engine_spec(self) -> EngineSpec | None:
        """What an engine need not find out again. None where an input has a default, which is not told here."""
        if any(tensor.optional for tensor in self.inputs):
            return None
        inputs, outputs = (tuple(map(_tensor_spec, side)) for side in (self.inputs, self.outputs))
        return EngineSpec(inputs, outputs, self.runtime, self.precision, self.sha256, self.rows_fixed)


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The model can't be served. `text` names the file, the cause and what to do."""

    text: str


Verdict = Proven | Refused


def prove(task: Task) -> Verdict:
    """Prove a model in a child process, and wait for it. Raises OSError where no process can be started."""
    done = subprocess.run(COMMAND, input=msgspec.json.encode(task), capture_output=True, check=False)
    return verdict_of(task, done.returncode, done.stdout, done.stderr)


def verdict_of(task: Task, returncode: int, stdout: bytes, stderr: bytes) -> Verdict:
    """What a child that has ended has found, or what has become of it."""
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
