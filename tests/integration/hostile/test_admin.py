"""The admin socket in the wrong hands: whatever comes is answered or ended, and moves nobody's answers."""

import json
import os
import signal
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from tests.operators import Operator, add_whole_version
from tests.processes import serve_until_end
from tests.repositories import add_version, scale
from tests.serving import RunningServer, serve
from tests.traffic import Floats, Traffic

from tickpath.server.admin import CONNECTIONS_MAX, LINE_BYTES_MAX

LINES: Final[dict[str, bytes]] = {
    "nothing": b"\n",
    "not JSON": b"reload\n",
    "not text": b"\xff\xfe\x00\x80\n",
    "zeros": bytes(1000) + b"\n",
    "no object": b'["reload"]\n',
    "a number": b"1e999999\n",
    "no verb": b"{}\n",
    "an unknown verb": b'{"do": "restart"}\n',
    "an unknown field": b'{"do": "reload", "force": true}\n',
    "a field of another verb": b'{"do": "rollback", "model": "btc", "version": "1"}\n',
    "a missing field": b'{"do": "load", "model": "btc"}\n',
    "a wrong type": b'{"do": "reload", "model": 7}\n',
    "a path for a name": b'{"do": "load", "model": "../../etc", "version": "1"}\n',
    "an empty name": b'{"do": "unload", "model": ""}\n',
    "NUL in a name": b'{"do": "unload", "model": "b\\u0000"}\n',
    "a long name": b'{"do": "unload", "model": "' + b"b" * 100 + b'"}\n',
    "too large a share": b'{"do": "canary", "model": "btc", "version": "1", "share": 1.5}\n',
    "a negative share": b'{"do": "canary", "model": "btc", "version": "1", "share": -0.1}\n',
    "deep arrays": b"[" * (LINE_BYTES_MAX - 10) + b"\n",
    "deep objects": b'{"do":' * 600 + b"\n",
    "a deep field": b'{"do": "reload", "model": ' + b"[" * 1000 + b"]" * 1000 + b"}\n",
    "a model that is not there": b'{"do": "rollback", "model": "nobody"}\n',
    "a version that is not there": b'{"do": "load", "model": "btc", "version": "9"}\n',
}


@dataclass(frozen=True)
class Site:
    """A server that is asked all the while."""

    server: RunningServer
    traffic: Traffic
    admin: Path
    models: Path


def answering(version: str, inputs: Floats) -> Floats:
    return inputs * np.float32(int(version))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("admin")
    models, admin = folder / "models", folder / "admin"
    add_version(models, "btc", "1", scale(1))
    with (
        serve(folder, [], repository=str(models), admin=str(admin)) as server,
        Traffic(server, "btc", answering, rate=500) as traffic,
    ):
        yield Site(server, traffic, admin, models)


@pytest.fixture(autouse=True)
def nobody_notices(site: Site) -> Iterator[None]:
    """After each test: answers go on, all of them right, and an operator is answered."""
    yield
    site.traffic.wait_for(20)
    assert site.traffic.wrong == []
    with Operator(site.admin) as operator:
        assert operator.live("btc") == max(site.traffic.versions(), key=int)
    assert "Traceback" not in site.server.log.read_text()


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_what_is_no_request_is_refused_in_one_line_and_the_connection_goes_on(site: Site, line: bytes) -> None:
    with Operator(site.admin) as operator:
        answer = operator.say(line)
        assert (answer["done"], len(answer["text"])) == (False, 1)
        assert "\n" not in answer["text"][0]
        assert operator.ask(do="status")["done"]


def test_a_line_without_end_is_cut_off(site: Site) -> None:
    with Operator(site.admin) as operator:
        with suppress(ConnectionError):  # it may be gone before all has been said
            operator.socket.sendall(b"x" * 1_000_000)
        assert f"one line of at most {LINE_BYTES_MAX} bytes" in operator.answer()["text"][0]
        with suppress(ConnectionError):
            assert operator.socket.recv(1) == b""


def test_half_a_line_and_silence_keeps_nobody_waiting(site: Site) -> None:
    with Operator(site.admin) as silent, Operator(site.admin) as operator:
        silent.socket.sendall(b'{"do": "rel')
        assert operator.ask(do="status")["done"]
        silent.socket.sendall(b'oad"}\n')
        assert silent.answer()["done"]


def test_half_a_line_and_the_end_is_no_request(site: Site) -> None:
    with Operator(site.admin) as operator:
        operator.socket.sendall(b'{"do": "unload", "model": "btc"')
        operator.socket.shutdown(socket.SHUT_WR)
        assert not operator.answer()["done"]


def test_many_connections_are_told_to_come_again(site: Site) -> None:
    with ExitStack() as stack:
        operators = [stack.enter_context(Operator(site.admin)) for _ in range(50)]
        answers = []
        for operator in operators:
            with suppress(ConnectionError):  # who is told to come again need not be listened to
                operator.begin(do="status")
            answers.append(operator.answer())
        served = [answer for answer in answers if answer["done"]]
        assert 1 <= len(served) <= CONNECTIONS_MAX
        refused = {answer["text"][0] for answer in answers if not answer["done"]}
        assert refused == {f"{CONNECTIONS_MAX} connections are open: try again later"}


def test_who_asks_and_reads_nothing_is_waited_for_by_nobody(site: Site) -> None:
    with Operator(site.admin) as greedy, Operator(site.admin) as operator:
        greedy.socket.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                greedy.socket.send(b'{"do": "status"}\n' * 100)
        assert operator.ask(do="status")["done"]


def test_who_leaves_has_what_was_asked_for_done(site: Site) -> None:
    add_whole_version(site.models, "btc", "2", scale(2))
    with Operator(site.admin) as operator:
        operator.begin(do="reload", model="btc")
    with Operator(site.admin) as operator:
        operator.done("reload", model="btc")  # waits for its turn
        assert operator.live("btc") == "2"


def test_only_the_servers_user_may_open_it_and_a_second_server_leaves_it_alone(site: Site, tmp_path: Path) -> None:
    found = site.admin.stat()
    assert (stat.S_ISSOCK(found.st_mode), stat.S_IMODE(found.st_mode), found.st_uid) == (True, 0o600, os.getuid())
    path = add_version(tmp_path, "btc", "1", scale(1)) / "model.onnx"
    code, lines = serve_until_end(str(path), "--port", "0", "--no-observer", "--admin", str(site.admin))
    assert code == 4
    assert lines[-1].endswith(
        f"can't listen on {site.admin}: Address already in use; stop what uses it, or give another --admin"
    )
    assert site.admin.stat().st_ino == found.st_ino


def test_what_a_killed_server_left_behind_is_replaced(tmp_path: Path) -> None:
    admin = tmp_path / "admin"
    settings: dict[str, Any] = {"admin": str(admin), "repository": str(tmp_path / "models")}
    add_version(tmp_path / "models", "btc", "1", scale(1))
    with serve(tmp_path, [], exit_code=-signal.SIGKILL, **settings) as server:
        server.process.kill()
        server.process.wait()
    assert admin.is_socket()
    with serve(tmp_path, [], **settings), Operator(admin) as operator:
        assert json.dumps(operator.ask(do="status"))
        assert stat.S_IMODE(admin.stat().st_mode) == 0o600
    assert not admin.exists()
