"""`tickpath compile`, as one types it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.feed_models import STEPS, recurrent_model
from tests.onnx_models import one_node, save

from tickpath.engines import zoo
from tickpath.engines.passes import stream


def compile_(source: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """In the source's folder."""
    command = map(str, (Path(sys.executable).with_name("tickpath"), "compile", source, *arguments))
    return subprocess.run([*command], capture_output=True, text=True, check=False, timeout=60, cwd=source.parent)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return save(zoo.build("mlp"), tmp_path, "mlp.onnx")


def test_it_says_what_came_out(source: Path) -> None:
    out = source.with_name("out.onnx")
    done = compile_(source, "-o", out, "--precision", "fp16", "--buckets", "1,4")
    assert (done.returncode, done.stderr) == (0, "")
    first, *_ = done.stdout.splitlines()
    assert first.startswith(f"{out} compiled: onnxruntime ")
    assert "fp16, buckets 1,4, " in first
    assert "max rel" in done.stdout
    assert json.loads(Path(f"{out}.json").read_text())["sidecar"]["recipe"]["options"]["precision"] == "fp16"
    assert "is up to date" in compile_(source, "-o", out, "--precision", "fp16", "--buckets", "1,4").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["-o", "out.bin"], 2, "out.bin: name a .onnx or .ov or .plan or .pt2 file"),
        (["-o", "out.onnx", "--gpu", "8.9"], 2, "expected compute capabilities as in sm89,sm120"),
        (["-o", "out.onnx", "--buckets", "0"], 2, "expected whole numbers above 0"),
        (["-o", "out.onnx", "--engine", "tensorrt"], 3, "tensorrt writes .plan files"),
        (["-o", "out.onnx", "--timing-cache", "cache"], 3, "keeps no timing cache"),
        (["-o", "out.onnx", "--precision", "bf16"], 3, "mlp.onnx"),
        (["-o", "out.onnx", "--streaming"], 3, "mlp.onnx: Gemm 'gemm_0' may mix steps"),
        (["-o", "out.plan", "--streaming"], 1, "out.plan: name a .onnx file"),
        *(
            (["-o", "out.onnx", "--streaming", *more], 2, "--streaming goes with --shape and --force alone")
            for more in (["--precision", "fp16"], ["--optimization-level", "0"], ["--aux-streams", "0"], ["--trust"])
        ),
    ],
)
def test_what_it_refuses_is_one_line(source: Path, arguments: list[str], code: int, says: str) -> None:
    done = compile_(source, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert done.stderr.startswith("tickpath: ")
    assert done.stderr.count("\n") == 1


def test_buckets_are_those_that_the_model_has(tmp_path: Path) -> None:
    source = save(one_node("Neg", np.float32, [3, 4]), tmp_path)
    out = tmp_path / "out.onnx"
    assert "buckets 1," in compile_(source, "-o", out).stdout
    refused = compile_(source, "-o", out, "--buckets", "1,2")
    assert (refused.returncode, "the model has no batch axis" in refused.stderr) == (2, True)
    assert compile_(tmp_path / "model.h5", "-o", out).stderr.endswith("export the model as one\n")
    assert (
        compile_(tmp_path / "model.onnx", "-o", out, "--buckets", "2,1").stderr
        == "tickpath: --buckets must ascend, 2,1 came\n"
    )


def test_a_step_model_is_that_of_the_command_of_its_own(tmp_path: Path) -> None:
    source = save(recurrent_model(), tmp_path, "lstm.onnx")
    done = compile_(source, "-o", "lstm.step.onnx", "--streaming")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"one step of {STEPS}, 4 states" in done.stdout
    assert "it answers as lstm.onnx does, bit for bit" in done.stdout
    assert (tmp_path / "lstm.step.onnx").read_bytes() == stream(recurrent_model()).model.SerializeToString()
    assert "--force" in compile_(source, "-o", "lstm.step.onnx", "--streaming").stderr
    assert compile_(source, "-o", "lstm.step.onnx", "--streaming", "--force").returncode == 0
