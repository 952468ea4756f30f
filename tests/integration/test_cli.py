"""The `tickpath` command as people and programs meet it: real processes, exit codes, one line of error, valid JSON."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tickpath.cli import tickpath
from tickpath.server.ready import Ready

COMMAND = (sys.executable, "-m", "tickpath.cli")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)


def refused(*arguments: str) -> tuple[int, str]:
    """Exit code and the one line on stderr."""
    done = run(*arguments)
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert done.stdout == ""
    return done.returncode, lines[0]


def test_ctrl_c_while_it_is_imported_ends_it_without_a_word() -> None:
    interrupted = """
import sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
import tickpath.cli
"""
    done = subprocess.run([sys.executable, "-c", interrupted], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """mlp.onnx, and nan.onnx whose answer is 0/0 and 1/0 and 1."""
    path = tmp_path_factory.mktemp("models")
    assert run("zoo", "mlp", str(path / "mlp.onnx")).returncode == 0
    divide = helper.make_node("Div", ["x", "x"], ["y"])
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3]) for name in "xy"]
    graph = helper.make_graph([divide], "nan", value[:1], value[1:])
    model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, path / "nan.onnx")
    (path / "config.toml").write_text(
        "port = 0\nobserver_port = 0\n[[models]]\npath = 'mlp.onnx'\n[[models]]\npath = 'nan.onnx'\nname = 'nan-1'\n"
    )
    return path


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """A server of both models; it must end with 0."""
    command = [*COMMAND, "serve", "--config", str(folder / "config.toml"), "--uds", str(folder / "s"), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield msgspec.json.decode(process.stdout.readline(), type=Ready).address
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
    assert process.returncode == 0


def test_help_reads_well() -> None:
    for arguments in (
        (),
        ("--help",),
        ("serve", "-h"),
        ("models", "-h"),
        ("models", "list", "-h"),
        ("models", "check", "-h"),
        ("golden", "-h"),
        ("call", "-h"),
        ("demo", "-h"),
        ("zoo", "-h"),
    ):
        done = run(*arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert "Usage: " in done.stdout
        assert max(map(len, done.stdout.splitlines())) <= 80
        assert "..." not in done.stdout.replace("[ARGS]...", "")


def test_all_commands_name_a_server_alike() -> None:
    """But for those that listen themselves, whose address is their own."""

    def options(command: click.Command) -> set[str]:
        inner = command.commands.values() if isinstance(command, click.Group) else ()
        own = {option for parameter in command.params for option in parameter.opts}
        return own.union(*map(options, inner))

    all_commands = {name: options(command) for name, command in tickpath.commands.items()}
    asking = {name for name, found in all_commands.items() if "--token-file" in found and "--observer" not in found}
    assert asking == {name for name, found in all_commands.items() if "--at" in found}
    assert asking >= {"models", "call", "loadtest", "replay", "door"}
    others = {"--to", "--host", "--port", "--uds", "--tls", "--address", "--url", "--server"}
    assert {name for name, found in all_commands.items() if found & others} == {"serve", "door"}


def test_help_imports_nothing_heavy() -> None:
    heavy = ("numpy", "onnx", "onnxruntime", "rich", "uvloop", "msgspec", "asyncio")
    code = f"import sys, tickpath.cli; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_click_says_what_to_install() -> None:
    code = "import sys; sys.modules['click'] = None; import tickpath.cli"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install 'tickpath[server]'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("serve", "--prot", "1"), "--port"),
        (("sevre",), "serve"),
        (("serve",), "name an .onnx file"),
        (
            ("serve", "a.onnx", "b.onnx", "--port", "0"),
            "for several, put them under [[models]] of a FILE.toml (--config)",
        ),
        (("serve", "m.onnx", "--port", "99999"), "'--port': 99999 is not in the range"),
        (("serve", "m.onnx", "--host", "a\x1b[2J"), "host a\\x1b[2J: that is more than this machine"),
        (("serve", "m.onnx", "--name", "a b"), "'--name': expected a name of letters"),
        (("serve", "m.onnx", "--buckets", "2,1"), "ascend"),
        (("serve", "m.onnx", "--shape", "x"), "x=N,120,3"),
        (("serve", "--config", "/nowhere.toml"), "/nowhere.toml: No such file"),
        (("call",), "NAME"),
        (("models", "localhost:1"), "No such command 'localhost:1'"),
        (("models", "check"), "FOLDER|MODEL.onnx"),
        (("zoo", "resnet", "x.onnx"), "it has null, mlp"),
        (("demo", "--model", "resnet"), "it has null, mlp"),
    ],
)
def test_usage_and_configuration_end_with_2(arguments: tuple[str, ...], says: str) -> None:
    code, line = refused(*arguments)
    assert code == 2
    assert says in line


def test_a_refused_model_ends_with_3(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"<html>not found</html>")
    code, line = refused("serve", str(tmp_path / "broken.onnx"), "--port", "0", "--no-observer")
    assert code == 3
    assert "broken.onnx" in line


def test_an_address_in_use_ends_with_4(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("serve", str(folder / "mlp.onnx"), "--port", port, "--no-observer")
    assert done.returncode == 4
    assert f"127.0.0.1:{port}" in done.stderr


def test_the_zoo_writes_over_nothing_unless_told(tmp_path: Path) -> None:
    path = tmp_path / "null.onnx"
    path.write_text("precious")
    code, line = refused("zoo", "null", str(path))
    assert (code, path.read_text()) == (1, "precious")
    assert "--force" in line
    done = run("zoo", "null", str(path), "--force")
    assert (done.returncode, done.stderr) == (0, "")
    assert str(path) in done.stdout
    onnx.load(path)


def test_nobody_there_ends_with_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
    for arguments in (("models", "--at", nobody), ("call", "m", "--input", "x=random", "--at", nobody)):
        code, line = refused(*arguments)
        assert code == 1
        assert nobody in line


def test_models(address: str, folder: Path) -> None:
    (mlp, nan) = json.loads(run("models", "--at", address, "--json").stdout)
    assert (mlp["name"], nan["name"]) == ("mlp", "nan-1")
    assert mlp["inputs"] == [{"name": "x", "dtype": "float32", "shape": [1, 64], "batch_axis": 0, "optional": False}]
    assert mlp["buckets"] == [1, 2, 4, 8]
    for where in (address, f"unix:{folder / 's'}"):
        table = run("models", "list", "--at", where).stdout
        assert "x float32[N,64]" in table
        assert "y float32[N,3]" in table


def test_call_prints_outputs_and_stages(address: str) -> None:
    done = run("call", "mlp", "--input", "x=random", "--rows", "2", "--at", address)
    assert (done.returncode, done.stderr) == (0, "")
    assert "y float32[2, 3]" in done.stdout
    for line in ("network", "receive", "queue", "input", "compute", "output", "client total"):
        assert line in done.stdout
    assert "One request, not warmed up" in done.stdout


def test_many_calls_tell_the_tail(address: str) -> None:
    done = run("call", "mlp", "--input", "x=random", "--count", "20", "--at", address)
    for heading in ("p50", "p90", "p99", "p99.9", "max", "samples", "~ thin"):
        assert heading in done.stdout


def test_call_from_a_file_many_times_as_json(address: str, folder: Path) -> None:
    np.save(folder / "x.npy", np.zeros((1, 64), np.float32))
    done = run("call", "mlp", "--input", f"x={folder / 'x.npy'}", "--count", "20", "--at", address, "--json")
    answer = json.loads(done.stdout)
    assert answer["outputs"] == {"y": [[0.0, 0.0, 0.0]]}
    assert answer["count"] == 20
    stages = sum(stage["mean"] for stage in answer["stages_us"].values())
    assert stages == pytest.approx(answer["total_us"]["mean"], abs=0.01)


def test_nan_becomes_null(address: str, folder: Path) -> None:
    np.save(folder / "zero.npy", np.array([[0, 1, 2]], np.float32))
    done = run("call", "nan-1", "--input", f"x={folder / 'zero.npy'}", "--at", address, "--json")
    assert json.loads(done.stdout, parse_constant=pytest.fail)["outputs"] == {"y": [[None, 1.0, 1.0]]}


def test_call_refuses_in_one_line(address: str, folder: Path) -> None:
    np.save(folder / "double.npy", np.zeros((1, 64)))
    for arguments, says in (
        (("resnet", "--input", "x=random"), "'mlp', 'nan-1'"),
        (("mlp",), "--input x=FILE.npy"),
        (("mlp", "--input", "x=rnadom"), "rnadom: No such file or directory: a .npy file, a number or random expected"),
        (("mlp", "--input", f"x={folder / 'double.npy'}"), "float64"),
    ):
        code, line = refused("call", *arguments, "--at", address)
        assert code == 1
        assert says in line


def test_a_full_disk_is_one_line(address: str) -> None:
    models = ("models", "--at", address)
    for arguments in (("zoo", "--list"), models, (*models, "--json"), ("serve", "--help")):
        with open("/dev/full", "w") as full:
            done = subprocess.run([*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, done.stderr) == (1, "tickpath: [Errno 28] No space left on device\n")


def test_a_closed_stdout_is_no_harm(folder: Path) -> None:
    done = subprocess.run(["sh", "-c", '"$@" >&-', "-", *COMMAND, "zoo", "--list"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_terminal_without_greek_gets_a_question_mark(address: str) -> None:
    command = [*COMMAND, "call", "mlp", "--input", "x=random", "--at", address]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert " ?s |" in done.stdout
