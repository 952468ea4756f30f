"""What connects to a server that asks, or stands beside it: commands, the load test, the door, the observer, the admin
socket."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import tritonclient.grpc
from tests.integration.hostile.arena import WAIT_S_MAX
from tests.secured import TOKENS, Secured, secured
from tests.serving import write_zoo
from tritonclient.utils import InferenceServerException

SCRAPER: Final = "the-token-of-prometheus"
ROWS: Final = {"inputs": [{"name": "x", "shape": [1, 64], "datatype": "FP32", "data": [0.0] * 64}]}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """With a door and an observer that asks."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "scraper.token").write_text(SCRAPER)
    with secured(
        folder,
        [*write_zoo(folder, "mlp", "gru")],
        observer_port=0,
        observer_token_file=str(folder / "scraper.token"),
        oip_port=0,
        oip_grpc_port=0,
        oip_admin=True,
    ) as server:
        yield server


def command(server: Secured, *words: str, token: str | None = TOKENS["desk"]) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "TICKPATH_TOKEN"}
    if token is not None:
        environment["TICKPATH_TOKEN"] = token
    return subprocess.run(
        [sys.executable, "-m", "tickpath.cli", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
        cwd=server.folder,
    )


def test_commands_bring_a_token_from_the_environment_or_a_file(whole: Secured) -> None:
    at = ("--at", whole.server.address, "--tls-ca", whole.authority.path)
    lab = str(whole.folder / "lab.token")
    listed = command(whole, "models", "list", *at, "--json", "--token-file", lab)
    assert [model["name"] for model in json.loads(listed.stdout)] == ["mlp"], listed.stderr
    called = command(whole, "call", "gru", "--input", "x=random", *at, "--json")
    assert called.returncode == 0, called.stderr
    refused = command(whole, "call", "gru", "--input", "x=random", *at, token=None)
    assert refused.returncode == 1
    assert "it has no token" in refused.stderr
    wrong = command(whole, "call", "gru", *at, "--token-file", "none.token")
    assert wrong.returncode == 1
    assert "none.token: No such file" in wrong.stderr
    for done in (listed, called, refused, wrong):
        assert not any(token in done.stdout + done.stderr for token in TOKENS.values())


def test_the_load_test_brings_one_and_speaks_tls(whole: Secured) -> None:
    at, ca = whole.server.address, whole.authority.path
    words = ["loadtest", "--at", at, "--tls-ca", ca, "--model", "mlp", "--rate", "100"]
    words += ["--duration", "1", "--warmup", "10", "--json", "-"]
    done = command(whole, *words, "--token-file", str(whole.folder / "desk.token"))
    assert done.returncode in (0, 5), done.stderr  # 5: this machine was too busy for its figures
    assert TOKENS["desk"] not in done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert "tls://" in json.dumps(told)
    refused = command(whole, *words, token=None)
    assert refused.returncode == 1
    assert "it has no token" in refused.stderr
    unix = command(whole, "loadtest", "--at", "unix:s", "--tls-ca", ca, "--rate", "100")
    assert unix.returncode == 2
    assert "--tls-ca is for tls://HOST:PORT, unix:s came" in unix.stderr


def ask(url: str, token: str | None, body: Any = None, kind: str = "Bearer") -> tuple[int, Any, Any]:
    """Status, body and headers."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data)
    if token is not None:
        request.add_header("Authorization", f"{kind} {token}")
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S_MAX) as response:
            return response.status, response.read().decode(), response.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), error.headers


def test_the_door_passes_tokens_on_and_the_server_says_who_may(whole: Secured) -> None:
    door = whole.server.ready.oip
    assert door is not None
    infer = f"{door}/v2/models/mlp/infer"
    for token in ("desk", "lab", "desk"):
        status, body, _ = ask(infer, TOKENS[token], ROWS)
        assert status == 200, body
    for given, kind in ((None, ""), ("nobody-that-is-known", "Bearer"), (TOKENS["desk"], "Basic")):
        status, body, headers = ask(infer, given, ROWS, kind)
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer"), body
        assert given is None or given not in body
    assert ask(f"{door}/v2/models/gru", TOKENS["desk"])[0] == 200
    assert ask(f"{door}/v2/models/gru", TOKENS["lab"])[0] == 404
    index = json.loads(ask(f"{door}/v2/repository/index", TOKENS["lab"], {})[1])
    assert {model["name"] for model in index} == {"mlp"}
    assert ask(f"{door}/v2/health/live", None)[0] == ask(f"{door}/v2/health/ready", None)[0] == 200


def test_only_an_admin_loads_by_the_door(whole: Secured) -> None:
    door = whole.server.ready.oip
    load = f"{door}/v2/repository/models/mlp/load"
    for token in ("desk", "lab"):
        status, body, _ = ask(load, TOKENS[token], {})
        assert status == 400
        assert "`admin`" in body
    assert ask(load, None, {})[0] in (400, 401)
    assert ask(load, TOKENS["operator"], {})[0] == 200
    done = command(whole, "reload", "mlp", "--admin", "a", token=None)  # who may open the socket
    assert done.returncode == 0, done.stderr


def test_grpc_brings_tokens_as_metadata(whole: Secured) -> None:
    assert whole.server.ready.oip_grpc is not None
    with tritonclient.grpc.InferenceServerClient(whole.server.ready.oip_grpc) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        given = {"authorization": f"Bearer {TOKENS['lab']}"}
        row = tritonclient.grpc.InferInput("x", [1, 64], "FP32")
        row.set_data_from_numpy(np.zeros((1, 64), np.float32))
        assert client.infer("mlp", [row], headers=given).as_numpy("y").shape == (1, 3)
        for headers, code in ((None, "UNAUTHENTICATED"), ({"authorization": "Bearer nobody-here"}, "UNAUTHENTICATED")):
            with pytest.raises(InferenceServerException) as refused:
                client.infer("mlp", [row], headers=headers)
            assert code in str(refused.value.status())
        with pytest.raises(InferenceServerException, match="gru"):
            client.get_model_metadata("gru", headers=given)


def test_the_observer_asks_for_a_scrapers_token(whole: Secured) -> None:
    url = whole.server.ready.observer
    status, body, headers = ask(f"{url}/metrics", None)
    assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
    assert ask(f"{url}/metrics", TOKENS["desk"])[0] == 401
    assert ask(f"{url}/metrics", SCRAPER, kind="Basic")[0] == 401
    status, body, _ = ask(f"{url}/metrics", SCRAPER)
    assert status == 200
    assert "tickpath_access_refused_total" in body
    assert ask(f"{url}/livez", None)[0] == ask(f"{url}/readyz", None)[0] == 200
    file = whole.folder / "scraper.token"
    file.write_text(f"another-token-of-it\n{SCRAPER}\n")
    assert ask(f"{url}/metrics", "another-token-of-it")[0] == 200
    file.unlink()
    assert ask(f"{url}/metrics", SCRAPER)[0] == 401
    file.write_text(SCRAPER)
    assert ask(f"{url}/metrics", SCRAPER)[0] == 200


@pytest.mark.parametrize("words", [("serve", "mlp.onnx", "--host", "0.0.0.0"), ("door", "--http", "0", "--host", "::")])
def test_to_listen_beyond_this_machine_is_said(whole: Secured, words: tuple[str, ...]) -> None:
    done = command(whole, *words)
    assert done.returncode == 2
    assert "asked for nothing" in done.stderr
    assert "--insecure" in done.stderr


def test_secrets_are_not_in_the_titles_of_the_door_and_the_observer(whole: Secured) -> None:
    children = Path(f"/proc/{whole.server.ready.pid}/task/{whole.server.ready.pid}/children").read_text().split()
    assert len(children) >= 2
    for pid in [*children, str(whole.server.ready.pid)]:
        for file in ("cmdline", "environ"):
            said = Path(f"/proc/{pid}/{file}").read_bytes()
            assert not any(token.encode() in said for token in (*TOKENS.values(), SCRAPER))
    log = whole.server.log.read_text()
    assert not any(token in log for token in (*TOKENS.values(), SCRAPER))


def test_a_door_of_its_own_says_what_is_missing(whole: Secured) -> None:
    """What it is to show can't be read: at the start. What it shows will not do: to who asks."""
    ca, at = whole.authority.path, whole.server.address
    for option, file in (("--token-file", "none.token"), ("--tls-ca", "none.pem")):
        done = command(whole, "door", "--at", at, "--http", "0", option, file, token=None)
        assert (done.returncode, file in done.stderr) == (2, True), done.stderr
    cases: list[tuple[tuple[str, ...], int, str]] = [
        (("--at", at, "--tls-ca", ca), 401, "it has no token"),
        (("--at", at), 503, "certificate is refused"),
        (("--at", at.removeprefix("tls://")), 503, "is it plain, not tls://"),
        (("--at", at, "--tls-ca", ca, "--token-file", str(whole.folder / "lab.token")), 200, "FP32"),
    ]
    for words, status, told in cases:
        with door(whole, *words) as url:
            answered, body, _ = ask(f"{url}/v2/models/mlp/infer", None, ROWS)
            assert (answered, told in body) == (status, True), body


def test_a_door_whose_token_file_vanishes_is_not_ready_and_names_no_file(whole: Secured) -> None:
    file = whole.folder / "vanishing.token"
    file.write_text(TOKENS["lab"])
    with door(whole, "--at", whole.server.uds, "--token-file", str(file)) as url:
        file.unlink()
        for path, body in (("models/mlp/infer", ROWS), ("health/ready", None)):
            status, said, _ = ask(f"{url}/v2/{path}", None, body)
            assert (status, "its log says why" in said, file.name in said) == (503, True, False), said
        file.write_text(TOKENS["lab"])
        assert ask(f"{url}/v2/health/ready", None)[0] == 200


def test_a_door_whose_own_token_will_not_do_is_not_ready_whoever_asks(whole: Secured) -> None:
    with door(whole, "--at", whole.server.uds) as url:
        for token in (None, TOKENS["desk"]):
            status, said, headers = ask(f"{url}/v2/health/ready", token)
            assert (status, headers["WWW-Authenticate"]) == (503, None), said
            assert "does not take the door's own token" in said


@contextmanager
def door(server: Secured, *words: str) -> Iterator[str]:
    """A `tickpath door`: where it listens."""
    line = [sys.executable, "-m", "tickpath.cli", "door", "--http", "0", "--json", *words]
    environment = {key: value for key, value in os.environ.items() if key != "TICKPATH_TOKEN"}
    with subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, text=True, cwd=server.folder) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["http"]
        finally:
            process.terminate()


def test_commands_that_speak_plainly_to_tls_say_so(whole: Secured) -> None:
    plain = whole.server.address.removeprefix("tls://")
    words = ("--model", "mlp", "--rate", "10", "--duration", "1")
    for done in (
        command(whole, "loadtest", "--at", plain, *words),
        command(whole, "models", "list", "--at", plain),
    ):
        assert done.returncode == 1
        assert f"is it plain, not tls://{plain}" in done.stderr
