"""An observer that asks for a token: scrapers, `tickpath top` and `slow`, and the live page in a real browser."""

import http.server
import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.browser import Tab, browsing
from tests.integration.observer.observing import Observing, observing, write

from tickpath.observe.records import GlobalCell, RecordWriter, State

TOKEN: Final = "the-token-of-prometheus"
OTHER: Final = "a-token-that-is-not-known"
ASKS: Final = "!document.getElementById('asking').hidden"
SHOWN: Final = "document.getElementById('asking').hidden && document.querySelectorAll('#stages tbody tr').length === 6"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The observer's tokens."""
    path = tmp_path / "observer.token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture
def asking(writer: RecordWriter, file: Path) -> Iterator[Observing]:
    writer.set_cell(GlobalCell.STATE, State.READY)
    write(writer, 0, [50_000] * 20)
    with observing(writer, token_file=str(file)) as observer:
        yield observer


@pytest.fixture
def tab(tmp_path: Path, asking: Observing) -> Iterator[Tab]:
    (tmp_path / "profile").mkdir()
    with browsing(tmp_path / "profile") as tab:
        tab.show(1280, 900)
        tab.open(f"{asking.url}/")
        yield tab


def status_of(url: str, authorization: str = "", accept: str = "*/*") -> int:
    request = urllib.request.Request(url, headers={"Accept": accept, "Authorization": authorization})
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return int(response.status)
    except urllib.error.HTTPError as refused:
        with refused:
            code, kind, said = refused.code, refused.headers["WWW-Authenticate"], refused.read()
    assert kind == "Bearer"
    assert b"Authorization: Bearer" in said
    return code


@pytest.mark.parametrize("path", ["/metrics", "/status.json", "/slow", "/slow?count=1&model=fast", "/slow?count=no"])
def test_what_is_known_of_requests_takes_a_token(asking: Observing, path: str) -> None:
    url = asking.url + path
    for authorization in ("", "Bearer", f"Bearer {OTHER}", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x"):
        assert status_of(url, authorization) == 401, authorization
    if "no" not in path:
        assert status_of(url, f"Bearer {TOKEN}") == 200


def test_health_and_the_empty_page_are_anybodys(asking: Observing) -> None:
    for path in ("/livez", "/readyz", "/"):
        assert status_of(asking.url + path) == 200
    assert status_of(f"{asking.url}/slow", accept="text/html") == 200


def command(*words: str, token: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "TICKPATH_TOKEN"}
    if token is not None:
        environment["TICKPATH_TOKEN"] = token
    line = [sys.executable, "-m", "tickpath.cli", *words]
    return subprocess.run(line, env=environment, capture_output=True, text=True, check=False, timeout=100)


@pytest.mark.parametrize("words", [("top", "--once"), ("slow",)], ids=["top", "slow"])
def test_commands_bring_a_token_from_the_environment_or_a_file(
    asking: Observing, file: Path, words: tuple[str, ...], tmp_path: Path
) -> None:
    words = (*words, "--observer", asking.url)
    done = command(*words, token=TOKEN)
    assert done.returncode == 0, done.stderr
    assert "fast" in done.stdout
    assert command(*words, "--token-file", str(file), token=OTHER).returncode == 0  # the file goes first
    none = command(*words)
    assert none.returncode == 1
    assert "it asks for a token, and none was given" in none.stderr
    wrong = command(*words, token=OTHER)
    assert wrong.returncode == 1
    assert "it does not know the token of TICKPATH_TOKEN" in wrong.stderr
    for refused in (none, wrong):
        assert "--token-file" in refused.stderr
        assert "observer_token_file" in refused.stderr
    missing = command(*words, "--token-file", str(tmp_path / "none"))
    assert (missing.returncode, "No such file" in missing.stderr) == (1, True)
    broken = command(*words, token=f"{OTHER} and\nmore")
    assert (broken.returncode, "TICKPATH_TOKEN: line 1" in broken.stderr) == (1, True)
    for each in (done, none, wrong, broken):
        assert not any(token in each.stdout + each.stderr for token in (TOKEN, OTHER))


def test_a_token_goes_nowhere_else(asking: Observing) -> None:
    """Where what answers points to somebody else, that one is asked without it."""
    told: list[str | None] = []

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told.append(self.headers["Authorization"])
            if len(told) == 1:
                self.send_response(302)
                self.send_header("Location", f"http://localhost:{server.server_port}/status.json")
            else:
                self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            done = command("top", "--once", "--observer", f"127.0.0.1:{server.server_port}", token=TOKEN)
        finally:
            server.shutdown()
            thread.join()
    assert done.returncode == 1
    assert told == [f"Bearer {TOKEN}", None]


def give(tab: Tab, token: str) -> None:
    """Type it and press the button."""
    tab.evaluate(f"document.getElementById('token').value = {json.dumps(token)}")
    tab.evaluate("document.querySelector('#asking button').click()")


def test_the_page_asks_for_a_token_and_says_when_it_is_wrong(asking: Observing, tab: Tab, tmp_path: Path) -> None:
    tab.wait_for(ASKS)
    tab.wait_for("document.getElementById('told').innerText === 'a token is asked for'")
    assert tab.evaluate("document.getElementById('main').hidden")
    assert tab.evaluate("document.activeElement.id") == "token"
    assert "does not know" not in tab.text()
    tab.screenshot(tmp_path / "asked.png")
    for wrong in (OTHER, "ein Schlüssel"):
        give(tab, wrong)
        tab.wait_for("!document.getElementById('token-wrong').hidden")
        assert "does not know this token" in tab.text()
        assert tab.evaluate("document.getElementById('token').value") == ""
    tab.show(375, 800, dark=True)
    assert tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    tab.screenshot(tmp_path / "wrong.png")
    give(tab, f" {TOKEN} ")
    tab.wait_for(SHOWN)
    tab.wait_for("document.querySelectorAll('#slow > li').length > 0")
    assert tab.text().count("fast")
    assert all("401" in problem for problem in tab.problems), tab.problems


def test_the_page_keeps_a_token_in_this_tab_alone(asking: Observing, tab: Tab, file: Path) -> None:
    tab.wait_for(ASKS)
    give(tab, TOKEN)
    tab.wait_for(SHOWN)
    tab.open(f"{asking.url}/slow")
    tab.wait_for(SHOWN)
    assert tab.evaluate("Object.values(sessionStorage)") == [TOKEN]
    assert tab.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    assert TOKEN not in tab.evaluate("document.documentElement.outerHTML + location.href")
    alarm = "document.getElementById('alarm').hidden ? '' : document.getElementById('alarm').innerText"
    file.write_text(f"{OTHER}\n")  # withdrawn: what is shown stays, and looks old
    assert tab.wait_for(f"{ASKS} && {alarm}").startswith("Stale: what is shown is from")
    assert tab.text().count("fast")
    file.write_text(f"{OTHER}\n{TOKEN}\n")  # and goes on by itself
    tab.wait_for(f"{SHOWN} && !document.body.classList.contains('stale')")
