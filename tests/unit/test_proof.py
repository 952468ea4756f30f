"""What a parent makes of a child that proves a model: its verdict, or what has become of it."""

import os
import signal
import subprocess
from pathlib import Path

import msgspec
import pytest
from tests.onnx_models import save
from tests.repositories import killer, scale

from tickpath.server.config import ModelConfig
from tickpath.server.proof import COMMAND, Proven, Refused, Task, prove, verdict_of

TASK = Task(ModelConfig("btc.onnx"), 1 << 20)


def refusal(returncode: int, stdout: bytes = b"", stderr: bytes = b"") -> str:
    verdict = verdict_of(TASK, returncode, stdout, stderr)
    assert isinstance(verdict, Refused)
    return verdict.text


def test_a_model_that_can_be_served(tmp_path: Path) -> None:
    path = save(scale(2), tmp_path)
    config = ModelConfig(str(path), "btc", "7", (1, 4), {"x": ("N", 3)})
    proven = prove(Task(config, 1 << 20, cpus=(min(os.sched_getaffinity(0)),)))
    assert isinstance(proven, Proven)
    assert (proven.model, proven.version, proven.buckets, proven.precision) == ("btc", "7", (1, 4), "float32")
    assert [tensor.describe() for tensor in (*proven.inputs, *proven.outputs)] == ["float32[N,3]"] * 2
    assert all(span_ns > 0 for span_ns in proven.compute_ns)
    assert len(proven.compute_ns) == 2
    assert proven.verified.passed


def test_a_model_that_cannot(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"")
    verdict = prove(Task(ModelConfig(str(tmp_path / "model.onnx")), 1 << 20))
    assert verdict == Refused(f"{tmp_path / 'model.onnx'}: the file is empty: copy the model again")


def test_limits_hold_as_in_a_server(tmp_path: Path) -> None:
    path = save(scale(2), tmp_path)
    verdict = prove(Task(ModelConfig(str(path)), frame_bytes_max=10))
    assert isinstance(verdict, Refused)
    assert "frame_bytes_max is 10" in verdict.text


def test_a_model_that_kills_its_runtime(tmp_path: Path) -> None:
    path = save(killer(), tmp_path)
    verdict = prove(Task(ModelConfig(str(path)), 1 << 20))
    assert isinstance(verdict, Refused)
    assert verdict.text.startswith(f"{path}: the runtime died with signal 6 on it; it said: terminate called")


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_a_child_that_dies(number: signal.Signals) -> None:
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        child.send_signal(number)
        stdout, stderr = child.communicate()
    text = refusal(child.returncode, stdout, stderr)
    assert text == f"btc.onnx: the runtime died with signal {number} on it"


def test_a_child_keeps_behind_and_where_it_is_told(tmp_path: Path) -> None:
    """The model is a pipe: once the child has opened it, it has settled down."""
    path, cpu = tmp_path / "model.onnx", min(os.sched_getaffinity(0))
    os.mkfifo(path)
    task = Task(ModelConfig(str(path)), 1 << 20, cpus=(cpu,))
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdin is not None
        child.stdin.write(msgspec.json.encode(task))
        child.stdin.close()
        with path.open("wb"):
            niceness, cpus = os.getpriority(os.PRIO_PROCESS, child.pid), os.sched_getaffinity(child.pid)
        child.kill()
    assert (niceness, cpus) == (19, {cpu})


def test_a_child_that_says_nothing_of_use() -> None:
    assert refusal(-signal.SIGALRM) == "btc.onnx: not loaded after 600 s, given up"
    assert refusal(1, b"", b"Traceback:\nMemoryError\n\n") == (
        "btc.onnx: its loader ended with exit code 1; it said: MemoryError"
    )
    assert refusal(0, b'{"type":"prov').startswith("btc.onnx: its loader ended with exit code 0")
    died_late = msgspec.json.encode(Refused("x"))
    assert "died with signal 11" in refusal(-signal.SIGSEGV, died_late)
