"""Builds with TensorRT-RTX as they go wrong: targets, refusals, Ctrl-C, two builders, damage."""

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from onnx import helper
from tests.onnx_models import constant, gru, model, one_node, save, value

from tickpath.engines import ModelRefusedError, zoo
from tickpath.engines.compile import CompileOptions, compile_model, read_plan
from tickpath.engines.compile.building import run_build
from tickpath.engines.compile.compiling import UNWATCHED
from tickpath.engines.compile.fallback import load_or_fall_back
from tickpath.engines.compile.options import Precision
from tickpath.engines.compile.plan_file import BadPlanError, publish
from tickpath.engines.compile.worker import BuildJob
from tickpath.engines.device import has_device
from tickpath.engines.onnxruntime import load_onnx
from tickpath.engines.plan import load_plan
from tickpath.engines.tensorrt import BuildSettings, BuildStoppedError, TensorRT, build, parse

OPTIONS = CompileOptions("tensorrt-rtx", (1, 2), targets=("sm89",))
X, Y = (value(name, np.float32, ["N", 4]) for name in ("x", "y"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return save(zoo.build("mlp"), tmp_path, "mlp.onnx")


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "bf16"])
def test_every_precision(source: Path, precision: Precision) -> None:
    options = CompileOptions("tensorrt-rtx", (1, 2), precision, ("sm89", "sm120"))
    compiled = compile_model(source, source.with_suffix(".plan"), options)
    parity = compiled.sidecar.parity
    assert parity is not None
    assert all((each.max_rel > 0) == (precision in {"fp16", "bf16"}) for each in parity.outputs)
    assert (compiled.sidecar.recipe.inputs[0].dtype, compiled.sidecar.recipe.options.precision) == (
        "float32",
        precision,
    )


def test_a_target_that_rtx_has_not(source: Path) -> None:
    options = CompileOptions("tensorrt-rtx", (1,), targets=("sm90",))
    with pytest.raises(
        ModelRefusedError, match=r"mlp\.onnx: tensorrt-rtx \S+ can't build for sm90: it builds for sm75"
    ):
        compile_model(source, source.with_suffix(".plan"), options)


def test_no_target_is_the_runtimes_choice(source: Path) -> None:
    assert compile_model(source, source.with_suffix(".plan"), CompileOptions("tensorrt-rtx", (1,))).fresh


def test_an_input_with_a_default_is_a_constant(tmp_path: Path) -> None:
    inputs = [X, value("bias", np.float32, [4])]
    proto = model([helper.make_node("Add", ["x", "bias"], ["y"])], inputs, [Y], [constant("bias", [1, 2, 3, 4])])
    compiled = compile_model(save(proto, tmp_path), tmp_path / "out.plan", OPTIONS)
    assert [entry.name for entry in compiled.sidecar.recipe.inputs] == ["x"]
    assert "input 'bias' is fixed to its default" in compiled.sidecar.notes[0]


PARSER: list[tuple[onnx.ModelProto, str]] = [
    (model([helper.make_node("NonZero", ["x"], ["y"])], [X], [value("y", np.int64, [2, "K"])]), "operator 'NonZero'"),
    (model([helper.make_node("Frob", ["x"], ["y"], name="f")], [X], [Y]), r"operator 'Frob' \(f\): it has no such"),
    (one_node("Identity", np.int16, ["N", 4]), "Failed to convert ONNX"),
    (
        model(
            [helper.make_node("Cast", ["k"], ["f"], to=1), helper.make_node("Add", ["x", "f"], ["y"])],
            [X],
            [Y],
            [constant("k", [2**32 - 1, 1, 2, 3], np.uint32)],
        ),
        "Failed to import initializer",
    ),
    (
        model(
            [helper.make_node("Cast", ["k"], ["f"], to=1), helper.make_node("Add", ["x", "f"], ["y"])],
            [X],
            [Y],
            [constant("k", [1e300, 1, 2, 3], np.float64)],
        ),
        "would change a constant",
    ),
]


@pytest.mark.parametrize(("proto", "says"), PARSER, ids=["nonzero", "unknown", "int16", "uint32", "clamped"])
def test_what_the_parser_refuses_is_named(proto: onnx.ModelProto, says: str, rtx: TensorRT) -> None:
    with pytest.raises(ModelRefusedError, match=says) as refused:
        parse(rtx, proto.SerializeToString())
    assert "\n" not in str(refused.value)


def test_int64_is_native(rtx: TensorRT) -> None:
    """Why a constant outside 32 bits is told and not refused."""
    values = [value(name, np.int64, ["N", 2]) for name in ("x", "y")]
    nodes = [helper.make_node("Add", ["x", "k"], ["y"])]
    proto = model(nodes, values[:1], values[1:], [constant("k", [2**40, 1], np.int64)])
    assert parse(rtx, proto.SerializeToString()).notes == ()


def test_an_input_that_decides_a_shape(rtx: TensorRT) -> None:
    proto = model(
        [helper.make_node("Reshape", ["x", "sizes"], ["y"])],
        [X, value("sizes", np.int64, [2])],
        [value("y", np.float32, ["A", "B"])],
    )
    settings = BuildSettings(({"x": (1, 4), "sizes": (2,)},), False, ("sm89",), 0, 1, 0)
    with pytest.raises(ModelRefusedError, match="the values of input 'sizes' decide a shape"):
        build(rtx, proto.SerializeToString(), settings, UNWATCHED)


class Stops:
    """A Watcher that ends the build at its first step."""

    def started(self, phase: str, parent: str | None, steps: int) -> None: ...

    def stepped(self, phase: str, step: int) -> bool:
        return False

    def finished(self, phase: str) -> None: ...


def test_a_watcher_ends_a_build_in_its_own_process_and_in_another(source: Path, rtx: TensorRT) -> None:
    settings = BuildSettings(({"x": (1, 64)},), False, ("sm89",), 0, 1, 0)
    with pytest.raises(BuildStoppedError):
        build(rtx, source.read_bytes(), settings, Stops())
    with pytest.raises(BuildStoppedError):
        compile_model(source, source.with_suffix(".plan"), OPTIONS, watcher=Stops())
    assert [file.name for file in source.parent.iterdir()] == ["mlp.onnx"]


def test_a_builder_that_dies_is_named(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = BuildJob("tensorrt-rtx", str(source), str(tmp_path / "out"), BuildSettings((), False, (), 0, 1, 0))
    dying = [sys.executable, "-c", "import os, sys; sys.stdin.read(); os.kill(os.getpid(), 11)"]
    monkeypatch.setattr("tickpath.engines.compile.building.COMMAND", dying)
    with pytest.raises(ModelRefusedError, match="the TensorRT builder ended by SIGSEGV in phase 'starting'"):
        run_build(job, UNWATCHED)


def command(source: Path, out: Path, *more: str) -> list[str | Path]:
    tickpath = Path(sys.executable).with_name("tickpath")
    return [tickpath, "compile", source, "-o", out, "--engine", "tensorrt-rtx", "--gpu", "sm89", *more]


@pytest.fixture
def long_build(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A compile that would take a minute, at work on its plan."""
    source = save(zoo.build("gru"), tmp_path, "gru.onnx")
    process = subprocess.Popen(
        command(source, tmp_path / "gru.plan"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    while not (parts := list(tmp_path.glob(".gru.plan.*.part"))) and process.poll() is None:
        os.sched_yield()
    assert parts, process.communicate()
    yield process
    process.kill()
    process.communicate()


def test_ctrl_c_leaves_nothing(long_build: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """The build asks nobody for minutes; it is over all the same."""
    long_build.send_signal(signal.SIGINT)
    said = long_build.communicate(timeout=20)
    assert (long_build.returncode, *said) == (130, b"", b"\n")
    assert [file.name for file in tmp_path.iterdir()] == ["gru.onnx"]
    assert children_of(long_build.pid) == []


def children_of(session: int) -> list[int]:
    """The processes that a compile started, which have its session or one that they began."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if session in (int(fields[1]), int(fields[3])):
            found.append(int(folder.name))
    return found


def test_in_a_terminal_it_shows_how_far_it_is_and_hears_ctrl_c(tmp_path: Path) -> None:
    source = save(zoo.build("gru"), tmp_path, "gru.onnx")
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "r+b", buffering=0) as terminal:
        process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *command(source, tmp_path / "gru.plan")],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=os.environ | {"TERM": "xterm"},
        )
        os.close(theirs)
        shown = b""
        while b"Building engine" not in shown:
            shown += terminal.read(1024)
        terminal.write(b"\x03")
        with suppress(OSError):  # the other end is closed
            while more := terminal.read(1024):
                shown += more
    assert process.wait(20) == 130
    assert shown.count(b"\x1b[?25l") == shown.count(b"\x1b[?25h") == 1, "the cursor is there again"
    assert b"Traceback" not in shown
    assert [file.name for file in tmp_path.iterdir()] == ["gru.onnx"]


def test_two_builders_at_once(source: Path) -> None:
    out = source.with_suffix(".plan")
    builders = [
        subprocess.Popen(command(source, out, "--force"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    said = [builder.communicate(timeout=60) for builder in builders]
    assert [builder.returncode for builder in builders] == [0, 0], said
    assert read_plan(out).sidecar.recipe.options.targets == ("sm89",)
    assert sorted(file.name for file in source.parent.iterdir()) == ["mlp.onnx", "mlp.plan", "mlp.plan.json"]


def test_a_plan_that_is_damaged_is_built_again(source: Path) -> None:
    out = source.with_suffix(".plan")
    compile_model(source, out, OPTIONS)
    out.write_bytes(out.read_bytes()[:1000])

    def load(path: Path) -> int:
        return len(read_plan(path).content)

    with pytest.raises(BadPlanError, match="truncated"):
        load_or_fall_back(out, "refuse", load, load_onnx)
    size, problem = load_or_fall_back(out, "rebuild", load, load_onnx)
    assert isinstance(size, int)
    assert size > 1000
    assert problem.endswith("it was built again from mlp.onnx")
    assert load_or_fall_back(out, "rebuild", load, load_onnx) == (size, "")


def test_without_a_gpu_a_plan_is_refused_with_the_runtimes_reason(source: Path) -> None:
    """With one this is where conformance begins, in tests/gpu."""
    out = source.with_suffix(".plan")
    compile_model(source, out, OPTIONS)
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a GPU, and tests/gpu runs plans on it")
    with pytest.raises(BadPlanError, match=r"does not take this plan: .*; built for sm89: there is no GPU here"):
        load_plan(out)


def test_a_plan_of_another_release(source: Path) -> None:
    out = source.with_suffix(".plan")
    compile_model(source, out, OPTIONS)
    plan = read_plan(out)
    older = msgspec.structs.replace(plan.sidecar.recipe, runtime="tensorrt-rtx 1.0")
    publish(out, plan.content, msgspec.structs.replace(plan.sidecar, recipe=older))
    with pytest.raises(BadPlanError, match=r"built by tensorrt-rtx 1\.0, and this is tensorrt-rtx \S+: compile"):
        load_plan(out)


def test_recurrent_models_of_few_steps_are_built_unrolled(tmp_path: Path) -> None:
    compiled = compile_model(save(gru(hidden=8), tmp_path), tmp_path / "out.plan", OPTIONS)
    assert [entry.batch_axis for entry in compiled.sidecar.recipe.inputs] == [0, 1]


def test_a_version_is_checked_as_far_as_a_machine_without_a_gpu_can(source: Path, tmp_path: Path) -> None:
    if has_device():
        pytest.skip("there is a GPU, and models check runs the plan on it")
    out = tmp_path / "models" / "mlp" / "8" / "model.plan"
    made = subprocess.run(command(source, out), capture_output=True, text=True, check=False, timeout=60)
    assert made.returncode == 0, made.stderr
    whole = checked(tmp_path / "models")
    assert whole.returncode == 0, whole.stdout
    (line,) = [line for line in whole.stdout.splitlines() if line.startswith("mlp 8: ")]
    assert re.match(r"mlp 8: no GPU here, so model\.plan was not run; it is whole, and .*from source\.onnx", line)
    source.with_name("other.onnx").write_bytes(zoo.build("null").SerializeToString())
    source.with_name("other.onnx").replace(out.with_name("source.onnx"))
    assert "source.onnx is not what it was made of" in checked(tmp_path / "models").stdout
    out.with_name("source.onnx").unlink()
    assert "no source.onnx beside it to judge by" in checked(tmp_path / "models").stdout
    out.write_bytes(out.read_bytes()[:1000])
    damaged = checked(tmp_path / "models")
    assert (damaged.returncode, "truncated" in damaged.stdout) == (3, True)


def checked(models: Path) -> subprocess.CompletedProcess[str]:
    tickpath = Path(sys.executable).with_name("tickpath")
    return subprocess.run(
        [tickpath, "models", "check", models], capture_output=True, text=True, check=False, timeout=60
    )
