"""The commands by which people change what a running server serves."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.operators import Operator, add_whole_version, remove_version
from tests.processes import children, wait_until_ended
from tests.repositories import add_version, scale, slow_scale
from tests.serving import RunningServer, serve

from tickpath.cli import tickpath
from tickpath.server.admin import CONNECTIONS_MAX

# A second a row and replay: nobody waits for that.
ENDLESS_STEPS = 5_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("operating")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    add_version(folder / "models", "btc", "1", scale(1))
    with serve(folder, [], repository=str(folder / "models"), admin=str(folder / "admin")) as server:
        yield server


@pytest.fixture
def models(server: RunningServer, folder: Path) -> Path:
    return folder / "models"


@pytest.fixture
def run(server: RunningServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TICKPATH_ADMIN", str(folder / "admin"))

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(tickpath, arguments)

    return invoke


def test_a_day_of_an_operator(run: Any, models: Path) -> None:
    add_whole_version(models, "btc", "2", scale(2))
    assert run("reload", "btc").output.startswith("model btc: version 2 is live, after 1; verified by")
    assert run("rollback", "btc").output == "model btc: version 1 is live again\n"
    assert (
        run("canary", "btc", "2", "--share", "0.05").output
        == "model btc: version 2 answers 5 % of the clients, by their names: 0 of 0 that are connected\n"
    )
    assert run("shadow", "btc", "2").output == "model btc: version 2 computes what is answered\n"
    table = run("status").output
    assert "btc" in table
    assert "not quiet" in table
    (btc,) = json.loads(run("status", "--json").output)["models"]
    assert btc == {
        "name": "btc",
        "live": "1",
        "previous": "2",
        "loaded": ["1", "2"],
        "canary": "2",
        "canary_share": 0.05,
        "shadow": "2",
    }
    assert run("canary", "btc", "--off").output == "model btc: no canary\n"
    assert run("shadow", "btc", "--off").output == "model btc: no shadow\n"
    assert run("quiet", "on").output == "quiet: nothing is loaded or unloaded\n"
    refused = run("reload")
    assert (refused.exit_code, refused.output.startswith("Error: it is quiet")) == (1, True)
    assert run("quiet", "auto").output == "not quiet\n"
    assert run("load", "btc", "2").output.startswith("model btc: version 2 is loaded; it was loaded already")
    assert run("unload", "btc", "2").output == "model btc: version 2 is unloaded\n"
    remove_version(models, "btc", "2")


@pytest.mark.parametrize(
    "arguments",
    [
        ("canary", "btc"),
        ("canary", "btc", "2"),
        ("canary", "btc", "2", "--share", "0.5", "--off"),
        ("canary", "btc", "2", "--share", "1.5"),
        ("shadow", "btc"),
        ("shadow", "btc", "2", "--off"),
        ("quiet", "perhaps"),
        ("load", "btc"),
    ],
)
def test_what_is_not_understood_asks_no_server(run: Any, arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


def test_a_refusal_is_one_line_on_stderr_and_exit_code_1(folder: Path, models: Path) -> None:
    add_whole_version(models, "btc", "9", b"")
    command = [sys.executable, "-m", "tickpath.cli", "reload", "btc", "--admin", str(folder / "admin")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"tickpath: {models}/btc/9/model.onnx: the file is empty: copy the model again\n"
    remove_version(models, "btc", "9")


def test_no_server_is_said(run: Any, tmp_path: Path) -> None:
    done = run("status", "--admin", str(tmp_path / "none"))
    assert done.exit_code == 1
    assert "none: No such file or directory: name the server's admin socket (serve --admin)" in done.output


def test_operators_who_gave_up_keep_nobody_out(tmp_path: Path) -> None:
    """Whoever wants to roll back while something large is loaded, and scripts have asked for it again and again."""
    models, admin = tmp_path / "models", tmp_path / "admin"
    add_version(models, "btc", "1", scale(1))
    with serve(tmp_path, [], repository=str(models), admin=str(admin)) as server:
        add_whole_version(models, "long", "1", slow_scale(1, ENDLESS_STEPS))
        for _ in range(2 * CONNECTIONS_MAX):
            with Operator(admin) as script, suppress(ConnectionError):  # it may be told to come again
                script.begin(do="reload", model="long")
        with Operator(admin) as operator:
            assert operator.ask(do="status")["changing"]
            assert "none was live before" in operator.refused("rollback", model="btc")
        others = [Operator(admin) for _ in range(CONNECTIONS_MAX)]
        assert [other.ask(do="status")["done"] for other in others] == [True] * CONNECTIONS_MAX
        for other in others:
            other.close()
        assert server.stop() == 0


def test_a_server_that_is_stopped_waits_for_no_load(tmp_path: Path) -> None:
    """And leaves no process behind, and no operator whose connection is a fault to it."""
    models, admin = tmp_path / "models", tmp_path / "admin"
    add_version(models, "btc", "1", scale(1))
    with serve(tmp_path, [], repository=str(models), admin=str(admin)) as server, Operator(admin) as operator:
        add_whole_version(models, "long", "1", slow_scale(1, ENDLESS_STEPS))
        operator.begin(do="reload", model="long")
        with Operator(admin) as other:
            while not other.ask(do="status")["changing"]:
                pass
            while not (provers := [each for pid in children(server.ready.pid) for each in children(pid)]):
                pass
            assert server.stop() == 0
        for pid in provers:
            wait_until_ended(pid)
    assert "Traceback" not in server.log.read_text()
