"""Tokens and certificates change while the server serves."""

import grp
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from tests.secured import TOKENS, Secured, secured
from tests.serving import write_zoo
from tests.waiting import wait_until

from tickpath.client import Client, ConnectError, ConnectionLostError, UnauthenticatedError, token_file

ROW: Final = np.zeros((1, 64), np.float32)
NEW: Final = "the-new-token-of-the-desk"


def replace(path: Path, text: str) -> None:
    """As an operator should: never half of it."""
    part = path.with_suffix(".part")
    part.write_text(text)
    part.chmod(0o600)
    part.rename(path)


def renew(server: Secured) -> str:
    """`tickpath renew`; what it says."""
    command = [sys.executable, "-m", "tickpath.cli", "renew", "--admin", str(server.folder / "a")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    return f"{done.returncode}: {done.stdout}{done.stderr}"


def certificate_of(server: Secured) -> bytes:
    """The one that a new connection is shown."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.load_verify_locations(server.authority.path)
    with made.wrap_socket(server.server.connect(), server_hostname="127.0.0.1") as connection:
        shown = connection.getpeercert(binary_form=True)
    assert shown is not None
    return shown


class Asking:
    """A client that asks on a thread, each answer awaited, until it is stopped."""

    def __init__(self, make: Callable[[], Client]) -> None:
        self.answered = 0
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._make = make
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._make() as client:
                while not self._stop.is_set():
                    client.infer("mlp", ROW)
                    self.answered += 1
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        self._stop.set()
        self._thread.join()


def test_renewing_under_load_loses_no_reply(tmp_path: Path) -> None:
    with secured(tmp_path, write_zoo(tmp_path, "mlp")) as server:
        desk = tmp_path / "desk.token"
        asking = [Asking(lambda: server.client("desk", timeout_s=60)) for _ in range(3)]
        wait_until(lambda: all(each.answered > 10 for each in asking), "answers")
        for turn in range(6):
            server.authority.server()
            replace(desk, f"{NEW}-{turn}\n{TOKENS['desk']}\n")
            if turn % 2:
                server.server.process.send_signal(signal.SIGHUP)
                wait_until(lambda turn=turn: _knows(server, f"{NEW}-{turn}"), "the new token")  # type: ignore[misc]
            else:
                assert renew(server).startswith("0: ")
            assert _knows(server, f"{NEW}-{turn}")
            before = [each.answered for each in asking]
            wait_until(lambda before=before: all(e.answered > n for e, n in zip(asking, before, strict=True)), "more")  # type: ignore[misc]
        for each in asking:
            each.end()
        assert [each.error for each in asking] == [None, None, None]


def _knows(server: Secured, token: str) -> bool:
    try:
        with server.client("desk", token=token):
            return True
    except UnauthenticatedError:
        return False


def test_a_token_that_is_withdrawn_ends_its_sessions_and_no_others(tmp_path: Path) -> None:
    with secured(tmp_path, write_zoo(tmp_path, "mlp")) as server:
        desk = tmp_path / "desk.token"
        replace(desk, f"{NEW}\n{TOKENS['desk']}\n")
        assert renew(server).startswith("0: ")
        with (
            server.client("desk", reconnect=None) as old,
            server.client("desk", token=NEW) as new,
            server.client("lab") as lab,
        ):
            replace(desk, f"{NEW}\n")
            assert renew(server).startswith("0: ")
            wait_until(lambda: _has_ended(old), "the end of a session whose token was withdrawn")
            new.ping()
            lab.ping()
        with pytest.raises(UnauthenticatedError):
            server.client("desk").connect()
        asking = tmp_path / "client.token"  # a client that reads a file takes up what is there as it connects again
        asking.write_text(TOKENS["lab"])
        with server.client("desk", token=token_file(str(asking))) as client:
            client.close()
            asking.write_text(NEW)
            client.connect()
            client.ping()


def _has_ended(client: Client) -> bool:
    try:
        client.ping()
    except (ConnectError, ConnectionLostError):
        return True
    return False


def test_new_connections_get_the_new_certificate_and_running_ones_go_on(tmp_path: Path) -> None:
    with secured(tmp_path, write_zoo(tmp_path, "mlp")) as server, server.client("desk", reconnect=None) as running:
        first = certificate_of(server)
        server.authority.server()
        assert certificate_of(server) == first  # nobody has asked for it yet
        assert "TLS: certificate" in renew(server)
        second = certificate_of(server)
        assert second != first
        running.infer("mlp", ROW)
        server.authority.server(days=-1)  # has ended
        assert "certificate has expired" in renew(server)
        assert certificate_of(server) == second
        (tmp_path / "server.key").write_text("no key")
        said = renew(server)
        assert said.startswith("1: ")
        assert "give a certificate and the key" in said
        assert certificate_of(server) == second
        (tmp_path / "desk.token").write_text("short")
        server.authority.server()
        assert "a token of 16 to 2048" in renew(server)
        assert certificate_of(server) == second  # all of it is taken up, or none
        running.infer("mlp", ROW)
        assert "stay as they were" in server.server.log.read_text()


def test_a_socket_of_a_group_is_open_to_it_and_to_nobody_else(tmp_path: Path) -> None:
    group = grp.getgrgid(os.getgid()).gr_name
    kinds: list[tuple[dict[str, Any], int]] = [
        ({}, 0o600),
        ({"uds_group": group}, 0o660),
        ({"uds_mode": "0666"}, 0o666),
    ]
    for settings, mode in kinds:
        with secured(tmp_path, write_zoo(tmp_path, "mlp"), tls=None, **settings) as server:
            found = Path(server.server.uds.removeprefix("unix:")).stat()
            assert (stat.S_IMODE(found.st_mode), found.st_gid) == (mode, os.getgid())
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(server.server.uds.removeprefix("unix:"))
