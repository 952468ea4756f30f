"""Files of tokens and certificates that somebody spoilt, swapped or left half-written while the server serves: what was
read before stays, the fault is told by its file, and nobody waits for anything."""

import json
import os
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.integration.secure.test_renewing import NEW, certificate_of, replace
from tests.processes import serve_until_end
from tests.secured import TOKENS, Secured, secured
from tests.serving import write_zoo
from tests.waiting import wait_until

from tickpath.client import ConnectError, UnauthenticatedError

ANSWER_S_MAX: Final = 60
SCRAPER: Final = "the-token-of-the-scraper"
GOOD: Final = f"{NEW}\n".encode()

GOOD_FILES: Final = {
    "CRLF": GOOD.replace(b"\n", b"\r\n"),
    "no end of line": GOOD.strip(),
    "a comment of CR alone": b"# desk\r" + GOOD,
    "64 tokens": b"".join(b"token-number-%08d\n" % number for number in range(63)) + GOOD,
}
BAD_FILES: Final = {
    "BOM": b"\xef\xbb\xbf" + GOOD,
    "UTF-16": GOOD.decode().encode("utf-16"),
    "NULs": GOOD[:8] + b"\0" + GOOD[8:],
    "NULs alone": bytes(4096),
    "empty": b"",
    "blank": b"\r\n \t\r\n",
    "65 tokens": b"".join(b"token-number-%08d\n" % number for number in range(65)),
    "huge": b"# " + b"x" * (1 << 20),
    "one huge line": b"x" * 200_000,
    "half a hash": b"sha256:abcdef\n",
}


def _removed(path: Path) -> None:
    path.unlink()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _endless(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


SWAPS: Final = (_removed, _pipe, _folder, _endless, _loop)


def renew(server: Secured) -> str:
    """What `tickpath renew` asks on the admin socket: whether it is done, and what is said."""
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rb") as answers:
        connection.settimeout(ANSWER_S_MAX)
        connection.connect(str(server.folder / "a"))
        connection.sendall(b'{"do": "renew"}\n')
        reply = json.loads(answers.readline())
    return f"{0 if reply['done'] else 1}: {'; '.join(reply['text'])}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("odd")
    scraper = folder / "scraper.token"
    scraper.write_text(SCRAPER)
    scraper.chmod(0o600)
    with secured(folder, write_zoo(folder, "mlp"), observer_port=0, observer_token_file=str(scraper)) as made:
        yield made
    log = made.server.log.read_text()
    assert "Traceback" not in log
    assert not any(token in log for token in (*TOKENS.values(), NEW, SCRAPER))


@pytest.fixture
def desk(server: Secured) -> Iterator[Path]:
    """The desk's file of tokens, as it was again afterwards."""
    path = server.folder / "desk.token"
    yield path
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    replace(path, TOKENS["desk"] + "\n")
    assert renew(server).startswith("0: ")


@pytest.mark.parametrize("kind", GOOD_FILES)
def test_a_file_that_another_editor_wrote_is_read(server: Secured, desk: Path, kind: str) -> None:
    desk.write_bytes(GOOD_FILES[kind])
    assert renew(server).startswith("0: ")
    with server.client("desk", token=NEW) as client:
        client.ping()


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_file_that_holds_no_tokens_changes_nothing(server: Secured, desk: Path, kind: str) -> None:
    with server.client("desk", reconnect=None) as running:
        desk.write_bytes(BAD_FILES[kind])
        _expect_nothing_changes(server, desk, running.ping)


@pytest.mark.parametrize("swap", SWAPS)
def test_what_is_no_file_changes_nothing(server: Secured, desk: Path, swap: Callable[[Path], None]) -> None:
    with server.client("desk", reconnect=None) as running:
        swap(desk)
        _expect_nothing_changes(server, desk, running.ping)


def _expect_nothing_changes(server: Secured, path: Path, ping: Callable[[], object]) -> None:
    said = renew(server)
    assert said.startswith("1: "), said
    assert str(path) in said
    assert len(said) < 600
    ping()
    with server.client("desk") as another:
        another.ping()


@pytest.mark.parametrize("swap", SWAPS)
def test_without_a_file_of_its_tokens_the_observer_lets_nobody_in_and_lives(
    server: Secured, swap: Callable[[Path], None]
) -> None:
    path = server.folder / "scraper.token"
    assert _asked(server, "metrics") == 200
    swap(path)
    assert _asked(server, "metrics") == 401
    assert _asked(server, "livez") == _asked(server, "readyz") == 200
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    replace(path, SCRAPER)
    assert _asked(server, "metrics") == 200


def _asked(server: Secured, path: str) -> int:
    request = urllib.request.Request(f"{server.server.ready.observer}/{path}")
    request.add_header("Authorization", f"Bearer {SCRAPER}")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code


@pytest.mark.parametrize("which", ["server.pem", "server.key"])
def test_a_certificate_that_is_half_written_at_sighup_is_not_taken(server: Secured, which: str) -> None:
    """Whatever of it is there; and the next signal, once all of it is, takes it."""
    path = server.folder / which
    before = certificate_of(server)
    server.authority.server()
    whole = path.read_bytes()
    with server.client("desk", reconnect=None) as running:
        for share in (0.0, 0.01, 0.25, 0.5, 0.99):
            path.write_bytes(whole[: int(len(whole) * share)])
            server.server.process.send_signal(signal.SIGHUP)
            assert renew(server).startswith("1: ")  # one change at a time: the signal's was before it, or is this one
            assert certificate_of(server) == before
            running.ping()
        path.write_bytes(whole)
        server.server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: certificate_of(server) != before, "the new certificate")


@pytest.mark.parametrize("swap", SWAPS)
@pytest.mark.parametrize("which", ["server.pem", "server.key"])
def test_a_certificate_that_is_no_file_is_not_taken(server: Secured, which: str, swap: Callable[[Path], None]) -> None:
    path = server.folder / which
    before = certificate_of(server)
    swap(path)
    said = renew(server)
    assert said.startswith("1: "), said
    assert str(path) in said
    assert certificate_of(server) == before
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    server.authority.server()
    assert renew(server).startswith("0: ")
    with pytest.raises((UnauthenticatedError, ConnectError)):
        server.client("desk", token=NEW).connect()


def test_a_server_does_not_start_on_a_pipe_and_says_why(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "desk.token")
    (model,) = write_zoo(tmp_path, "mlp")
    config = tmp_path / "tickpath.toml"
    config.write_text(
        f'port = 0\n[[models]]\npath = "{model["path"]}"\n[[clients]]\nname = "desk"\ntoken_file = "desk.token"\n'
    )
    code, lines = serve_until_end("--config", str(config), "--no-observer")
    assert code == 2
    assert "a file expected" in lines[-1]
