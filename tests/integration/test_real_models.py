"""Every real model is served over the socket, answer for answer as the runtime gives it, or refused with its reason;
the table of all of them is the test's output."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.inputs import inputs_root
from tests.real_models import REFUSED, SCALARS, SHAPES, UNDECLARED, name_of, served_name
from tests.reference import assert_same_bits, reference_session, run_in_bucket
from tests.serving import RunningServer, serve

from tickpath.client import Client
from tickpath.console.tensors import describe
from tickpath.engines import Array, ModelRefusedError
from tickpath.engines.load import load
from tickpath.wire import ModelInfo, TensorInfo

ROOT = inputs_root()
if ROOT is None:
    pytest.skip("no real models: set TICKPATH_INPUTS", allow_module_level=True)
MODELS_ROOT = ROOT / "models"
MODELS = [name_of(path, MODELS_ROOT) for path in sorted(MODELS_ROOT.rglob("*.onnx"))]
SERVED = [name for name in MODELS if name not in REFUSED]

ANYWHERE = ("--port", "0", "--no-observer")

# Runs `tickpath serve` on each of the argument lists on stdin, and prints [exit code, what stderr got] for each.
COMMANDS = """
import contextlib, io, json, sys
from tickpath import cli
for arguments in json.load(sys.stdin):
    sys.argv = ["tickpath", "serve", *arguments]
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            cli.main()
        except SystemExit as end:
            print(json.dumps([end.code, said.getvalue()]))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server of all models that can be served."""
    entries = [
        {"path": str(MODELS_ROOT / name), "name": served_name(name), "shapes": SHAPES.get(name, {})} for name in SERVED
    ]
    with serve(tmp_path_factory.mktemp("all"), entries) as server:
        yield server


@pytest.fixture(scope="module")
def clients(server: RunningServer) -> Iterator[tuple[Client, Client]]:
    """Over TCP and over the Unix socket."""
    with Client(server.address) as tcp, Client(server.uds) as unix:
        yield tcp, unix


@pytest.fixture(scope="module")
def refusals() -> dict[str, tuple[int, str]]:
    """Exit code and stderr of the command, for the files it must refuse when nothing is declared."""
    names = [*REFUSED, *UNDECLARED]
    commands = json.dumps([[str(MODELS_ROOT / name), *ANYWHERE] for name in names])
    command = [sys.executable, "-c", COMMANDS]
    done = subprocess.run(command, input=commands, stdout=subprocess.PIPE, text=True, timeout=90, check=True)
    lines = done.stdout.splitlines()
    return {name: tuple(json.loads(line)) for name, line in zip(names, lines, strict=True)}


def described(model: ModelInfo) -> str:
    inputs, outputs = (", ".join(map(describe, side)) for side in (model.inputs, model.outputs))
    return f"{inputs or 'nothing'} -> {outputs}; buckets {','.join(map(str, model.buckets))}"


def draw(tensor: TensorInfo, rows: int, random: np.random.Generator) -> Array:
    shape = tensor.shape_at(rows)
    if tensor.name in SCALARS:
        return np.full(shape, SCALARS[tensor.name], tensor.dtype)
    if tensor.dtype.startswith("float"):
        return np.asarray(random.standard_normal(shape)).astype(tensor.dtype)
    return np.asarray(random.integers(0, 2, shape)).astype(tensor.dtype)


@pytest.mark.parametrize("name", SERVED)
def test_a_model_is_served(name: str, clients: tuple[Client, Client], table: list[str]) -> None:
    """With as many rows as it takes, over both transports, bit for bit what a plain run of the same batch gives."""
    model = clients[0].model(served_name(name))
    table.append(f"{name}  served  {described(model)}")
    session = reference_session(MODELS_ROOT / name)
    random = np.random.default_rng(0)
    batched = any(tensor.batch_axis >= 0 for tensor in model.inputs)
    for rows in range(1, model.buckets[-1] + 1):
        for client in clients:
            feeds = {tensor.name: draw(tensor, rows, random) for tensor in model.inputs if not tensor.optional}
            answer = client.infer(model.name, feeds, rows=None if batched else 1).outputs
            expected = run_in_bucket(session, model, feeds, rows)
            assert list(answer) == list(expected)
            assert_same_bits(list(answer.values()), list(expected.values()))


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_is_refused(name: str, refusals: dict[str, tuple[int, str]], table: list[str]) -> None:
    text = refused_line(refusals[name], name)
    table.append(f"{name}  refused  {text}")
    assert REFUSED[name] in text


@pytest.mark.parametrize("name", UNDECLARED)
def test_what_a_model_needs_is_said(name: str, refusals: dict[str, tuple[int, str]]) -> None:
    assert UNDECLARED[name] in refused_line(refusals[name], name)


@pytest.mark.parametrize(
    "name", ["gonnx/mnist-8-opset13.onnx", "polygraphy/nonzero.onnx", "silero_vad/silero_vad.onnx"]
)
def test_the_command_itself_refuses(name: str, refusals: dict[str, tuple[int, str]]) -> None:
    command = [sys.executable, "-m", "tickpath.cli", "serve", str(MODELS_ROOT / name), *ANYWHERE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == refusals[name]
    assert done.stdout == ""


def refused_line(refusal: tuple[int, str], name: str) -> str:
    """The reason in the command's one line on stderr, behind the file's name."""
    code, said = refusal
    assert code == 3, said
    start, path, reason = said.partition(f"{MODELS_ROOT / name}: ")
    assert (start, path != "", reason.count("\n")) == ("tickpath: ", True, 1)
    return reason.rstrip("\n")


def test_every_file_is_known() -> None:
    """A name in the tables that is no file would test nothing."""
    assert {*SHAPES, *REFUSED, *UNDECLARED} <= set(MODELS)


def test_external_weights_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(MODELS_ROOT / "polygraphy" / "ext_weights_same_dir")
    from_inside = load(Path("ext_weights.onnx")).spec.sha256
    monkeypatch.chdir(tmp_path)
    assert load(MODELS_ROOT / "polygraphy/ext_weights_same_dir/ext_weights.onnx").spec.sha256 == from_inside


def test_an_archive_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes((MODELS_ROOT / "gonnx/nt_1.zip").read_bytes())
    with pytest.raises(ModelRefusedError, match="zip archive"):
        load(path)
