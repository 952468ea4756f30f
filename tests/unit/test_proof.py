"""What a parent makes of a child that proves a model: its verdict, or what has become of it."""

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.onnx_models import save
from tests.processes import children, wait_until_ended
from tests.repositories import killer, scale

from tickpath.server.config import ModelConfig
from tickpath.server.proof import Proven, Prover, Refused, Task, Verdict, verdict_of

PROVES_FOR_EVER = """
import sys
from tickpath.server.config import ModelConfig
from tickpath.server.proof import Prover, Task
Prover(nice=0).prove(Task(ModelConfig(sys.argv[1]), 1 << 20))
"""
TASK = Task(ModelConfig("btc.onnx"), 1 << 20)


@pytest.fixture(scope="module")
def prover() -> Iterator[Prover]:
    with Prover(nice=0) as made:
        yield made


def refusal(returncode: int, stdout: bytes = b"", stderr: bytes = b"") -> str:
    verdict = verdict_of(TASK, returncode, stdout, stderr)
    assert isinstance(verdict, Refused)
    return verdict.text


def test_a_model_that_can_be_served(prover: Prover, tmp_path: Path) -> None:
    path = save(scale(2), tmp_path)
    config = ModelConfig(str(path), "btc", "7", (1, 4), {"x": ("N", 3)})
    proven = prover.prove(Task(config, 1 << 20))
    assert isinstance(proven, Proven)
    assert (proven.model, proven.version, proven.buckets, proven.precision) == ("btc", "7", (1, 4), "float32")
    assert [tensor.describe() for tensor in (*proven.inputs, *proven.outputs)] == ["float32[N,3]"] * 2
    assert all(span_ns > 0 for span_ns in proven.compute_ns)
    assert len(proven.compute_ns) == 2
    assert proven.verified.passed


def test_a_model_that_cannot(prover: Prover, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"")
    verdict = prover.prove(Task(ModelConfig(str(tmp_path / "model.onnx")), 1 << 20))
    assert verdict == Refused(f"{tmp_path / 'model.onnx'}: the file is empty: copy the model again")


def test_limits_hold_as_in_a_server(prover: Prover, tmp_path: Path) -> None:
    path = save(scale(2), tmp_path)
    verdict = prover.prove(Task(ModelConfig(str(path)), frame_bytes_max=10))
    assert isinstance(verdict, Refused)
    assert "frame_bytes_max is 10" in verdict.text


def test_a_model_that_kills_its_runtime(prover: Prover, tmp_path: Path) -> None:
    path = save(killer(), tmp_path)
    verdict = prover.prove(Task(ModelConfig(str(path)), 1 << 20))
    assert isinstance(verdict, Refused)
    assert verdict.text.startswith(f"{path}: the runtime died with signal 6 on it; it said: terminate called")


class Held:
    """A model that is a pipe: whoever proves it waits in its `open` until someone writes."""

    def __init__(self, folder: Path, prover: Prover) -> None:
        self.path = folder / "model.onnx"
        self._prover = prover
        os.mkfifo(self.path)
        self._verdicts: list[Verdict] = []
        task = Task(ModelConfig(str(self.path)), 1 << 20)
        self._thread = threading.Thread(target=lambda: self._verdicts.append(prover.prove(task)))
        self._thread.start()

    def fork(self) -> int:
        """The process that is at it, once it has opened the file."""
        self._writer = self.path.open("wb")
        assert self._prover.pid is not None
        (fork,) = children(self._prover.pid)
        return fork

    def verdict(self) -> Verdict:
        self._thread.join()
        self._writer.close()
        return self._verdicts[0]


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_a_fork_that_dies(number: signal.Signals, tmp_path: Path) -> None:
    with Prover(nice=0) as prover:
        held = Held(tmp_path, prover)
        os.kill(held.fork(), number)
        assert held.verdict() == Refused(f"{held.path}: the runtime died with signal {number} on it")
        assert isinstance(prover.prove(Task(ModelConfig(str(save(scale(2), tmp_path, "b.onnx"))), 1 << 20)), Proven)


def test_a_fork_keeps_behind_and_where_it_is_told(tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    with Prover(cpus={cpu}) as prover:
        held = Held(tmp_path, prover)
        fork = held.fork()
        niceness, cpus = os.getpriority(os.PRIO_PROCESS, fork), os.sched_getaffinity(fork)
        os.kill(fork, signal.SIGKILL)
        held.verdict()
    assert (niceness, cpus) == (19, {cpu})


def test_a_prover_that_died_is_started_again(tmp_path: Path) -> None:
    task = Task(ModelConfig(str(save(scale(2), tmp_path))), 1 << 20)
    with Prover(nice=0) as prover:
        assert isinstance(prover.prove(task), Proven)
        assert prover.pid is not None
        os.kill(prover.pid, signal.SIGKILL)
        assert isinstance(prover.prove(task), Proven)


def test_closing_it_ends_a_proof(tmp_path: Path) -> None:
    prover = Prover(nice=0)
    held = Held(tmp_path, prover)
    fork = held.fork()
    pid = prover.pid
    prover.close()
    assert held.verdict() == Refused(f"{held.path}: the process that proves models ended: try again")
    ended = os.pidfd_open(fork) if Path(f"/proc/{fork}").exists() else None
    if ended is not None:
        select.select([ended], [], [], 20)
        os.close(ended)
    assert pid not in children(os.getpid())


def test_whoever_is_killed_leaves_no_proof_behind(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.onnx")
    with subprocess.Popen([sys.executable, "-c", PROVES_FOR_EVER, str(tmp_path / "model.onnx")]) as parent:
        writer = (tmp_path / "model.onnx").open("wb")
        (prover,) = children(parent.pid)
        (fork,) = children(prover)
        parent.kill()
    for pid in (prover, fork):
        wait_until_ended(pid)
    writer.close()


def test_a_child_that_says_nothing_of_use() -> None:
    assert refusal(-signal.SIGALRM) == "btc.onnx: not loaded after 600 s, given up"
    assert refusal(1, b"", b"Traceback:\nMemoryError\n\n") == (
        "btc.onnx: its loader ended with exit code 1; it said: MemoryError"
    )
    assert refusal(0, b'{"type":"prov').startswith("btc.onnx: its loader ended with exit code 0")
    died_late = msgspec.json.encode(Refused("x"))
    assert "died with signal 11" in refusal(-signal.SIGSEGV, died_late)
