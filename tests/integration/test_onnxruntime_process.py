"""What only a process of its own can show: the runtime is silent, idle when idle, and keeps no copy of a model."""

import subprocess
import sys
from pathlib import Path

import numpy as np
from onnx import helper
from tests.inputs import CHECKOUT
from tests.onnx_models import constant, gru, model, save, value

SERVE = """
import os, sys, time
from pathlib import Path
import numpy as np
from tickpath.engines import EngineFailedError
from tickpath.engines.load import load

def captured(engine, rows):
    inputs = [np.zeros(tensor.shape_at(rows), tensor.dtype) for tensor in engine.spec.inputs]
    outputs = [np.zeros(tensor.shape_at(rows), tensor.dtype) for tensor in engine.spec.outputs]
    return inputs, engine.capture(inputs, outputs)
"""


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SERVE + script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=CHECKOUT, timeout=60)


def test_the_runtime_says_nothing_to_the_terminal(tmp_path: Path) -> None:
    """It would warn of an initializer that is an input, and print the error of a failed run besides raising it."""
    nodes = [helper.make_node("Gather", ["table", "ids"], ["y"])]
    inputs = [value("ids", np.int64, ["N"]), value("table", np.float32, [3])]
    path = save(model(nodes, inputs, [value("y", np.float32, ["N"])], [constant("table", [1, 2, 3])]), tmp_path)
    script = """
inputs, graph = captured(load(Path(sys.argv[1])), 1)
inputs[0][...] = 99
try:
    graph.replay()
except EngineFailedError:
    print("failed")
"""
    result = run(script, str(path))
    assert (result.returncode, result.stdout, result.stderr) == (0, "failed\n", "")


def test_no_thread_spins_while_idle(tmp_path: Path) -> None:
    """A spinning pool of two threads used 8 % of a core over this time, a waiting one 0.02 %."""
    script = """
_, graph = captured(load(Path(sys.argv[1]), threads=2), 8)
graph.replay()
cpu, wall = time.process_time(), time.monotonic()
time.sleep(0.5)
print((time.process_time() - cpu) / (time.monotonic() - wall))
"""
    result = run(script, str(save(gru(hidden=64, features=64, steps=64), tmp_path)))
    assert float(result.stdout) < 0.02, result.stderr


def test_a_loaded_model_holds_its_weights_once(tmp_path: Path) -> None:
    """64 MB of weights that a node uses unpacked: neither the file's bytes nor the parsed message stay."""
    nodes = [helper.make_node("Gather", ["table", "ids"], ["y"])]
    table = constant("table", np.zeros((1 << 14, 1 << 10), np.float32))
    proto = model(nodes, [value("ids", np.int64, ["N"])], [value("y", np.float32, ["N", 1 << 10])], [table])
    script = """
def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
load(Path(sys.argv[2]))
before = resident_bytes()
engine = load(Path(sys.argv[1]))
print((resident_bytes() - before) / (1 << 26))
"""
    result = run(script, str(save(proto, tmp_path)), str(save(gru(), tmp_path, "small.onnx")))
    assert float(result.stdout) < 1.5, result.stderr
