"""`python -m tickpath.server.proving`: loads one model, says whether it can be served, and ends (see proof.py)."""

import os
import resource
import signal
import sys

import msgspec

from tickpath.engines import ModelRefusedError
from tickpath.server.model import prepare_model
from tickpath.server.proof import PROVE_S_MAX, Proven, Refused, Task, Verdict
from tickpath.server.verification import verify


def main() -> int:
    """Reads a Task from stdin, writes a Verdict to stdout. Returns 0."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    # The kernel's own end, which also reaches a runtime that never returns, and one whose parent is gone.
    signal.alarm(PROVE_S_MAX)
    # A model that kills its runtime is no fault to look into here, and a core file can be as large as memory.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    os.nice(task.nice)
    if task.cpus:
        os.sched_setaffinity(0, task.cpus)
    # Runtimes print where they like: stdout is the verdict's alone.
    with os.fdopen(os.dup(1), "wb") as answer:
        os.dup2(2, 1)
        answer.write(msgspec.json.encode(_prove(task)) + b"\n")
    return 0


def _prove(task: Task) -> Verdict:
    try:
        model = prepare_model(task.model, None, task.frame_bytes_max)
        report = verify(task.model, model.engine, model.lane.slots)
    except ModelRefusedError as error:
        return Refused(str(error))
    spec = model.engine.spec
    return Proven(
        model=task.model.served_name,
        version=task.model.version,
        inputs=model.inputs,
        outputs=model.outputs,
        buckets=model.buckets,
        compute_ns=tuple(model.lane.compute_ns),
        runtime=spec.runtime,
        precision=spec.precision,
        sha256=spec.sha256,
        rows_fixed=spec.rows_fixed,
        verified=report,
    )


if __name__ == "__main__":
    sys.exit(main())
