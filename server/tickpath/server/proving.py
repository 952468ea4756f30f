"""`python -m tickpath.server.proving NICE CPUS`: proves models, each in a fork of its own (see proof.py)."""

import ctypes
import gc
import os
import resource
import select
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

import msgspec

# Here, so that no fork has to import it.
import tickpath.engines.onnxruntime  # noqa: F401
from tickpath.engines import ModelRefusedError
from tickpath.engines.device import has_device
from tickpath.engines.onnx_unpack import unpack
from tickpath.server.proof import PROVE_S_MAX, Ended, Refused, Task, Verdict
from tickpath.server.trial import prove, rehearse

# Without work for so long it ends, and its memory is free: reloads come in bunches.
IDLE_S: Final = 60.0

PR_SET_PDEATHSIG: Final = 1


def main() -> int:
    """Takes a Task from each line of stdin, and writes an Ended to stdout. Returns 0 when there are no more."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    # A model that kills its runtime is no fault to look into here, and a core file can be as large as memory.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _end_with_parent()
    nice, cpus = int(sys.argv[1]), sys.argv[2]
    os.nice(nice)
    if cpus:
        os.sched_setaffinity(0, map(int, cpus.split(",")))
    gc.freeze()  # what a fork never touches, it shares
    for line in _lines():
        os.write(1, msgspec.json.encode(_forked(line)) + b"\n")
    return 0


def _lines() -> Iterator[bytes]:
    """The lines of stdin, until it ends or none has come for a while."""
    waiting = b""
    while select.select([0], [], [], IDLE_S)[0] and (piece := os.read(0, 65536)):
        waiting += piece
        *lines, waiting = waiting.split(b"\n")
        yield from lines


def _forked(line: bytes) -> Ended:
    stdout, stderr = os.memfd_create("stdout"), os.memfd_create("stderr")
    pid = os.fork()
    if pid == 0:
        _settle(stdout, stderr)
        _prove_and_exit(line, stdout)
    _, status = os.waitpid(pid, 0)
    return Ended(os.waitstatus_to_exitcode(status), _whole(stdout), _whole(stderr))


def _settle(stdout: int, stderr: int) -> None:
    """The fork's own way to live and end."""
    _end_with_parent()
    # The kernel's own end, which also reaches a runtime that never returns.
    signal.alarm(PROVE_S_MAX)
    # Runtimes print where they like: stdout is the verdict's alone.
    os.dup2(stderr, 1)
    os.dup2(stderr, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


def _end_with_parent() -> None:
    """Whoever is killed leaves nobody behind that goes on compiling: a proof may take minutes, and a device."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _prove_and_exit(line: bytes, stdout: int) -> NoReturn:
    code = 1
    try:
        os.write(stdout, msgspec.json.encode(_prove(msgspec.json.decode(line, type=Task))))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        # Never back into the loop, whose stdin is the parent's.
        os._exit(code)


def _prove(task: Task) -> Verdict:
    try:
        if task.rehearse and Path(task.model.path).suffix == ".plan" and not has_device():
            return rehearse(task)
        proven = prove(task)
        return msgspec.structs.replace(proven, unpacked=_unpacked(task, proven.sha256))
    except ModelRefusedError as error:
        return Refused(str(error))


def _unpacked(task: Task, sha256: str) -> str | None:
    """The model's file taken apart, if that was asked for, helps, and finds room."""
    path = Path(task.model.path)
    if task.unpack_folder is None or path.suffix != ".onnx":
        return None
    with suppress(OSError):
        unpacked = unpack(path, sha256, Path(task.unpack_folder))
        return None if unpacked is None else str(unpacked)
    return None


def _whole(file: int) -> bytes:
    with os.fdopen(file, "rb") as opened:
        opened.seek(0)
        return opened.read()


if __name__ == "__main__":
    sys.exit(main())
