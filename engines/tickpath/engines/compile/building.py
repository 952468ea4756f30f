"""Runs the worker that builds a plan, and ends it when its caller is ended."""

import signal
import subprocess
import sys
import tempfile
from typing import IO

import msgspec

from tickpath.engines.compile.worker import BuildJob, Done, Event, Finished, Refused, Started, Stepped
from tickpath.engines.engine import ModelRefusedError
from tickpath.engines.tensorrt import BuildStoppedError, Watcher, one_line

COMMAND = (sys.executable, "-P", "-m", "tickpath.engines.compile.worker")
"""-P: no file in the working folder stands in for a package."""


def run_build(job: BuildJob, watcher: Watcher) -> Done:
    """Build in a process of its own; the plan is in `job.plan_path` then. Whatever is raised meanwhile, Ctrl-C too,
    ends that process at once. Raises ModelRefusedError, BuildStoppedError."""
    with tempfile.TemporaryFile() as said, _worker(said) as worker:
        try:
            return _follow(worker, job, watcher, said)
        finally:
            worker.kill()


def _worker(said: IO[bytes]) -> subprocess.Popen[bytes]:
    """In a session of its own, so that a terminal's Ctrl-C is the caller's alone to hear."""
    return subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, start_new_session=True)


def _follow(worker: subprocess.Popen[bytes], job: BuildJob, watcher: Watcher, said: IO[bytes]) -> Done:
    assert worker.stdin is not None
    assert worker.stdout is not None
    phase = "starting"
    try:
        worker.stdin.write(msgspec.json.encode(job))
        worker.stdin.close()
    except BrokenPipeError:
        raise _died(worker, phase, said) from None
    for line in worker.stdout:
        event = msgspec.json.decode(line, type=Event)
        match event:
            case Started(phase=phase, parent=parent, steps=steps):
                watcher.started(phase, parent, steps)
            case Stepped():
                if not watcher.stepped(event.phase, event.step):
                    raise BuildStoppedError
            case Finished():
                watcher.finished(event.phase)
            case Refused(text=text):
                raise ModelRefusedError(text)
            case Done():
                return event
    raise _died(worker, phase, said)


def _died(worker: subprocess.Popen[bytes], phase: str, said: IO[bytes]) -> ModelRefusedError:
    code = worker.wait()
    said.seek(0)
    words = one_line(said.read().decode(errors="replace")[-2000:]) or "it said nothing"
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    return ModelRefusedError(
        f"the TensorRT builder ended {how} in phase {phase!r} ({words}): build with another release"
    )
