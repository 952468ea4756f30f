"""The live page in a real browser: under load, light and dark, on a desk and on a phone."""

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.browser import Tab, browsing
from tests.integration.observer.observing import FAST, Observing, write
from tests.repositories import add_version, scale, slow_scale
from tests.serving import RunningServer, serve
from tests.traffic import Floats, Traffic

from tickpath.observe.records import CoreDescription, GlobalCell, RecordWriter, State, VersionCell, VersionDescription
from tickpath.wire import Code

DESK = (1280, 900)
PHONE = (375, 800)
HOSTILE = "<img src=x onerror=alert(1)>"
ALL_THERE = """
    document.querySelectorAll('#slow > li').length > 0 && document.querySelectorAll('#stages tbody tr').length === 6
    && document.querySelectorAll('#chart path').length === 4
"""


def answering(_version: str, inputs: Floats) -> Floats:
    return inputs


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Two models under load, one of them on a thread."""
    folder = tmp_path_factory.mktemp("page")
    add_version(folder / "models", "btc", "1", scale(1))
    add_version(folder / "models", "eth", "7", slow_scale(1, 5_000))
    (folder / "models" / "eth" / "model.toml").write_text('executor = "thread"\n')
    with (
        serve(folder, [], repository=str(folder / "models"), observer_port=0) as server,
        Traffic(server, "btc", answering, rate=200),
        Traffic(server, "eth", answering, rate=20),
    ):
        yield server


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Tab]:
    (tmp_path / "profile").mkdir()
    with browsing(tmp_path / "profile") as tab:
        yield tab


def overflow(tab: Tab) -> float:
    """By how many pixels the page is wider than its window."""
    return float(tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_a_person_sees_everything_at_any_width_and_in_the_dark(
    server: RunningServer, tab: Tab, size: tuple[int, int], dark: bool, tmp_path: Path
) -> None:
    tab.show(*size, dark=dark)
    tab.open(f"{server.ready.observer}/")
    tab.wait_for(ALL_THERE)
    text = tab.text()
    for what in (
        "btc",
        "eth",
        "p99.9",
        "requests a second",
        "compute",
        "onnxruntime",
        "sessions open",
        "Slow requests",
    ):
        assert what in text
    assert f"core {server.ready.pid}, ready" in text
    assert overflow(tab) <= 0
    tab.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert overflow(tab) <= 0
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(20, 24, 28)") == dark
    tab.wait_for("document.getElementById('alarm').hidden")
    tab.screenshot(tmp_path / "page.png")
    assert tab.problems == []


def test_the_chart_has_units_and_tells_what_is_under_the_pointer(server: RunningServer, tab: Tab) -> None:
    tab.show(*DESK)
    tab.open(f"{server.ready.observer}/")
    tab.wait_for(ALL_THERE)
    labels = tab.evaluate("[...document.querySelectorAll('#chart text')].map((each) => each.textContent)")
    assert any(label.endswith((" µs", " ms")) for label in labels)
    assert "now" in labels
    where = tab.evaluate(
        "(({x, y, width, height}) => [x + width / 2, y + height / 2])"
        "(document.getElementById('chart').getBoundingClientRect())"
    )
    tab.point_at(*where)
    tip = tab.wait_for("!document.getElementById('tip').hidden && document.getElementById('tip').innerText")
    for what in ("p50", "p99", "p99.9", "longest", "requests"):
        assert what in tip
    tab.wait_for("document.querySelectorAll('#chart circle').length === 4")
    assert tab.problems == []


def test_another_model_is_one_click_away(server: RunningServer, tab: Tab) -> None:
    tab.show(*DESK)
    tab.open(f"{server.ready.observer}/")
    tab.wait_for(ALL_THERE)
    tab.evaluate("[...document.querySelectorAll('#models button')].find((each) => each.textContent === 'eth').click()")
    tab.wait_for("document.querySelector('h2 .chosen-name').textContent === 'eth'")
    tab.wait_for("document.querySelector('#versions tbody').innerText.includes('thread')")
    tab.evaluate("document.getElementById('slow-chosen').click()")
    tab.wait_for("[...document.querySelectorAll('.slow-head')].every((each) => each.innerText.includes('eth@7'))")
    assert tab.problems == []


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_many_models_leave_room_for_the_chosen_one(
    writer: RecordWriter, observer: Observing, tab: Tab, size: tuple[int, int]
) -> None:
    writer.describe(CoreDescription(os.getpid(), tuple(msgspec.structs.replace(FAST, name=f"m{n}") for n in range(64))))
    write(writer, 0, [50_000] * 20)
    tab.show(*size)
    tab.open(f"{observer.url}/")
    tab.wait_for(f"document.querySelectorAll('#models tbody tr').length === 64 && {ALL_THERE}")
    assert tab.evaluate("document.getElementById('chart').getBoundingClientRect().top / innerHeight") < 2
    assert overflow(tab) <= 0
    tab.evaluate("[...document.querySelectorAll('#models button')].at(-1).click()")
    tab.wait_for("document.querySelector('h2 .chosen-name').textContent === 'm63'")
    assert tab.problems == []


def test_slow_is_a_page_for_people(server: RunningServer, tab: Tab) -> None:
    tab.show(*DESK)
    tab.open(f"{server.ready.observer}/slow")
    tab.wait_for(ALL_THERE)
    assert tab.problems == []


def test_an_observer_that_does_not_answer_is_told_and_one_that_does_again(
    writer: RecordWriter, observer: Observing, tab: Tab
) -> None:
    writer.set_cell(GlobalCell.STATE, State.READY)
    write(writer, 0, [50_000] * 20)
    tab.show(*PHONE)
    tab.open(f"{observer.url}/")
    tab.wait_for(ALL_THERE)
    observer.process.send_signal(signal.SIGSTOP)
    alarm = "document.getElementById('alarm').hidden ? '' : document.getElementById('alarm').innerText"
    assert tab.wait_for(alarm).startswith("Stale: the observer has not answered for")
    assert tab.evaluate("document.body.classList.contains('stale')")
    assert tab.text().count("fast")  # what is known is still there
    assert overflow(tab) <= 0
    observer.process.send_signal(signal.SIGCONT)
    tab.wait_for("document.getElementById('alarm').hidden && !document.body.classList.contains('stale')")


def test_the_warm_up_of_feeds_is_told_and_no_error(writer: RecordWriter, observer: Observing, tab: Tab) -> None:
    errors = (
        "[...document.querySelectorAll('#facts div')].find((each) => each.innerText.startsWith('errors')).innerText"
    )
    write(writer, 0, [50_000] * 20)
    for _ in range(7):
        writer.refused(0, Code.NOT_READY)
    writer.add_version(0, VersionCell.WARM_UP, 5)
    tab.open(f"{observer.url}/")
    tab.wait_for(ALL_THERE)
    assert tab.evaluate(errors).split() == ["errors", "2"]
    table = tab.evaluate("document.getElementById('codes').innerText")
    assert [line.split("\t") for line in table.splitlines()][1:] == [
        ["OK", "20"],
        ["NOT_READY", "7"],
        ["of NOT_READY, warm-up of feeds", "5"],
    ]
    writer.add_version(0, VersionCell.WARM_UP, 2)
    tab.wait_for(f"{errors}.split(/\\s+/)[1] === '0'")
    assert tab.problems == []


def test_what_comes_from_the_server_is_never_html(writer: RecordWriter, observer: Observing, tab: Tab) -> None:
    hostile = VersionDescription(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, (1,))
    writer.describe(CoreDescription(os.getpid(), (hostile, FAST)))
    write(writer, 0, [50_000] * 20)
    tab.show(*PHONE)
    tab.open(f"{observer.url}/")
    tab.wait_for(ALL_THERE)
    assert tab.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert tab.text().count(HOSTILE) > 5
    assert overflow(tab) <= 0
    assert tab.problems == []


def test_nothing_but_what_the_page_brings_can_run_in_it(observer: Observing, tab: Tab) -> None:
    tab.show(*DESK)
    tab.open(f"{observer.url}/")
    tab.wait_for("document.getElementById('facts').children.length > 0")
    tab.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}))"
    )
    assert tab.evaluate("typeof window.ran") == "undefined"
    tab.wait_for("1")
    assert any("Content Security Policy" in problem for problem in tab.problems)


def test_browsers_get_the_page_and_others_a_plain_index(observer: Observing) -> None:
    for accept, kind in (("text/html,application/xhtml+xml,*/*;q=0.8", "text/html"), ("*/*", "text/plain")):
        request = urllib.request.Request(f"{observer.url}/", headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=30) as response:
            assert response.headers["Content-Type"] == f"{kind}; charset=utf-8"
            policy = response.headers["Content-Security-Policy"]
    assert policy is None
    assert observer.get("/slow")[0] == "application/json"
    assert json.loads(observer.get("/slow", "*/*")[1])["requests"] == []


def test_the_policy_of_the_page_allows_nothing_inline_by_name(observer: Observing) -> None:
    request = urllib.request.Request(f"{observer.url}/", headers={"Accept": "text/html"})
    with urllib.request.urlopen(request, timeout=30) as response:
        policy = response.headers["Content-Security-Policy"]
        body = response.read().decode()
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert policy.count("'sha256-") == 2
    assert "http://" not in body.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in body
