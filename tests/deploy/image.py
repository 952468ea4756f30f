"""What an image must do once it runs, whoever has built it."""

import os
import signal
import subprocess
from pathlib import Path

import numpy as np
from tests.deploy.dockerfile import INSTALLED, Stage, copy, run_image
from tests.processes import children

from tickpath.client import Client
from tickpath.engines.zoo import build

STOP_S_MAX = 30


def check_image(stage: Stage, installed: Path, folder: Path) -> None:
    """Serve a model of a repository from it, ask, ask for its health, stop."""
    models, run, log = folder / "models", folder / "run", folder / "log"
    (models / "mlp" / "1").mkdir(parents=True)
    (models / "mlp" / "1" / "model.onnx").write_bytes(build("mlp").SerializeToString())
    run.mkdir()
    copy(stage, installed, INSTALLED)
    command = [*run_image(stage, installed, models, run), *stage.command, "--json"]
    with log.open("w") as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), log.read_text()
            (first,) = children(process.pid)
            check_processes(first, int(stage.one("USER").partition(":")[0]))
            check_answer(run / "tickpath.sock")
            check_health(first, stage)
            os.kill(first, signal.SIGTERM)
            assert process.wait(STOP_S_MAX) == 0, log.read_text()
        finally:
            process.kill()
    assert '"level":"ERROR"' not in log.read_text()


def check_processes(first: int, uid: int) -> None:
    """Process 1 and the server below it: nobody's, with no capability, and a server whose children are its own."""
    (server,) = children(first)
    assert len(children(server)) >= 1  # the observer
    for pid in (first, server):
        status = Path(f"/proc/{pid}/status").read_text()
        assert "CapEff:\t0000000000000000\n" in status
    inside = inside_of(first, ["id", "-u"])
    assert inside.stdout.split() == [str(uid).encode()]
    assert inside_of(first, ["touch", "/etc/tickpath/new"]).returncode != 0


def check_answer(socket: Path) -> None:
    with Client(f"unix:{socket}") as client:
        answer = client.infer("mlp", {"x": np.zeros((1, 64), np.float32)})
        assert np.isfinite(answer.outputs["y"]).all()


def check_health(first: int, stage: Stage) -> None:
    """The image's own health check, as an engine runs it: in the container, without a word."""
    done = inside_of(first, stage.health_command)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def inside_of(first: int, command: list[str]) -> subprocess.CompletedProcess[bytes]:
    """What an engine's `exec` does: run a command in the container of this process 1."""
    environment = Path(f"/proc/{first}/environ").read_text().rstrip("\0").split("\0")
    enter = ["nsenter", "--target", str(first), "--user", "--preserve-credentials", "--mount", "--net", "--pid"]
    return subprocess.run([*enter, "env", "-i", *environment, *command], capture_output=True, check=False)
