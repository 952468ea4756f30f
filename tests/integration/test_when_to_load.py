"""When a real server loads: asked by SIGHUP, by looking at its repository itself, and not while it is quiet."""

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any, Final

import numpy as np
import pytest
from tests.integration.observer.observing import Scrape, get
from tests.operators import Operator, add_whole_version, remove_version
from tests.repositories import add_version, scale
from tests.serving import RunningServer, serve
from tests.waiting import wait_until

from tickpath.client import Client

WATCH_S: Final = 0.1
X: Final = np.ones((1, 3), np.float32)
# An hour ago to an hour from now, by the server's clock, where it is noon.
QUIET_HOURS: Final = ("11:00-13:30",)


def zone(hour: int) -> str:
    """A time zone in which it is this hour (and as many minutes as everywhere); signs are POSIX's: west is positive."""
    ahead = (hour - datetime.now(UTC).hour + 12) % 24 - 12
    return f"TST{-ahead:+d}"


@dataclass(frozen=True)
class Site:
    """A server with an observer, its repository, and who runs it."""

    server: RunningServer
    models: Path
    operator: Operator

    def version(self, name: str) -> str:
        """Who answers, rightly."""
        with Client(self.server.address) as client:
            prediction = client.infer(name, [X])
        assert prediction.outputs["y"].tolist() == [[float(prediction.version)] * 3]
        return prediction.version

    def value(self, metric: str, **labels: str) -> float:
        assert self.server.ready.observer is not None
        return Scrape(get(f"{self.server.ready.observer}/metrics")[1]).value(metric, **labels)

    def add(self, name: str, version: str) -> None:
        add_whole_version(self.models, name, version, scale(float(version)))

    def watched(self, name: str, version: str) -> None:
        """A version of another model has come and is live: what was there before it was looked at twice since."""
        self.add(name, version)
        wait_until(lambda: self.operator.live(name) == version, "the version is live")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One that watches."""
    folder = tmp_path_factory.mktemp("watching")
    models, admin = folder / "models", folder / "admin"
    for name in ("btc", "eth", "other"):
        add_version(models, name, "1", scale(1))
    with (
        serve(folder, [], repository=str(models), admin=str(admin), observer_port=0, watch_s=WATCH_S) as server,
        Operator(admin) as operator,
    ):
        yield Site(server, models, operator)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One that watches, at noon, which is among its quiet hours."""
    folder = tmp_path_factory.mktemp("quiet")
    models, admin = folder / "models", folder / "admin"
    add_version(models, "btc", "1", scale(1))
    settings: dict[str, Any] = {"observer_port": 0, "watch_s": WATCH_S, "quiet_hours": QUIET_HOURS}
    settings |= {"repository": str(models), "admin": str(admin)}
    with (
        serve(folder, [], prefix=("env", f"TZ={zone(12)}"), **settings) as server,
        Operator(admin) as operator,
    ):
        yield Site(server, models, operator)


def test_a_version_that_is_renamed_in_is_live_soon_and_loaded_once(site: Site) -> None:
    reloads = site.value("tickpath_reloads_total", model="btc")
    site.watched("btc", "2")
    assert site.version("btc") == "2"
    site.watched("other", "2")
    assert site.value("tickpath_reloads_total", model="btc") == reloads + 1


def test_a_copy_in_progress_is_not_loaded(site: Site) -> None:
    """Written piece by piece under its final name: it is never the same twice in a row until it is whole."""
    failed = site.value("tickpath_loads_failed_total")
    content = scale(3).SerializeToString()
    folder = site.models / "btc" / "3"
    folder.mkdir()
    written_s = [time.monotonic()]
    with (folder / "model.onnx").open("wb") as file:
        for start in range(0, len(content), 8):
            file.write(content[start : start + 8])
            file.flush()
            written_s.append(time.monotonic())
            time.sleep(WATCH_S / 4)  # the pace of a slow disk
    wait_until(lambda: site.operator.live("btc") == "3", "version 3 is live")
    assert site.version("btc") == "3"
    # Who pauses for longer than that, as a busy machine may have had us do, has ended for all that anyone can see.
    paused = max(after - before for before, after in pairwise(written_s)) > WATCH_S
    assert paused or site.value("tickpath_loads_failed_total") == failed


def test_content_decides_and_not_the_time_it_was_written(site: Site) -> None:
    before = site.operator.model("btc")
    reloads = site.value("tickpath_reloads_total", model="btc")
    for version in before["loaded"]:
        (site.models / "btc" / version / "model.onnx").touch()
    site.watched("other", "3")
    assert site.operator.model("btc") == before
    assert site.value("tickpath_reloads_total", model="btc") == reloads


def test_what_is_refused_is_tried_once_and_again_when_it_has_changed(site: Site) -> None:
    failed = site.value("tickpath_loads_failed_total")
    add_whole_version(site.models, "eth", "2", b"version https://git-lfs.github.com/spec/v1\n")
    wait_until(lambda: site.value("tickpath_loads_failed_total") == failed + 1, "a load has failed")
    site.watched("other", "4")
    site.watched("other", "5")
    assert site.value("tickpath_loads_failed_total") == failed + 1
    assert site.version("eth") == "1"
    assert "a Git LFS pointer" in site.server.log.read_text()
    remove_version(site.models, "eth", "2")
    site.add("eth", "2")
    wait_until(lambda: site.operator.live("eth") == "2", "version 2 is live")
    assert site.version("eth") == "2"


def test_a_model_that_comes_is_served_and_one_that_goes_still_is(site: Site) -> None:
    site.watched("new", "1")
    assert site.version("new") == "1"
    remove_version(site.models, "new", "1")
    (site.models / "new").rmdir()
    site.watched("other", "6")
    assert site.version("new") == "1"


def test_what_is_out_of_order_is_said_once(site: Site) -> None:
    stray = site.models / "notes.txt"
    stray.write_text("")
    wait_until(lambda: "notes.txt" in site.server.log.read_text(), "it has looked")
    time.sleep(3 * WATCH_S)  # it looks again, and has said so
    stray.unlink()
    site.watched("other", "7")
    assert site.server.log.read_text().count("notes.txt") == 1


def test_sighup_reloads_everything_that_can_be(quiet: Site) -> None:
    quiet.operator.done("quiet", quiet=False)
    add_whole_version(quiet.models, "bad", "1", b"")
    quiet.add("btc", "5")
    quiet.server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: quiet.operator.live("btc") == "5", "version 5 is live")
    wait_until(lambda: "model.onnx: the file is empty" in quiet.server.log.read_text(), "the empty file is told")
    assert quiet.version("btc") == "5"
    remove_version(quiet.models, "bad", "1")
    (quiet.models / "bad").rmdir()
    quiet.operator.done("quiet")


def test_while_it_is_quiet_nothing_is_loaded_or_unloaded_and_it_says_why(quiet: Site) -> None:
    assert quiet.operator.done("quiet") == "quiet: nothing is loaded or unloaded"
    wait_until(lambda: quiet.value("tickpath_quiet") == 1, "it is quiet")
    live = quiet.version("btc")
    quiet.add("btc", "8")
    for asked in (
        {"do": "reload"},
        {"do": "reload", "model": "btc"},
        {"do": "load", "model": "btc", "version": "8"},
        {"do": "unload", "model": "btc"},
        {"do": "shadow", "model": "btc"},
    ):
        answer = quiet.operator.ask(**asked)
        assert (answer["done"], answer["quiet"]) == (False, True)
        assert "it is quiet" in answer["text"][0]
        assert "`tickpath quiet off`" in answer["text"][0]
    quiet.server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "reload: it is quiet" in quiet.server.log.read_text(), "the reload is told to wait")
    time.sleep(3 * WATCH_S)  # it looks, and waits
    assert quiet.version("btc") == live
    assert quiet.operator.done("quiet", quiet=False) == "not quiet"
    wait_until(lambda: quiet.operator.live("btc") == "8", "version 8 is live")
    wait_until(lambda: quiet.value("tickpath_quiet") == 0, "it is quiet no more")
    assert quiet.operator.done("quiet", quiet=True) == "quiet: nothing is loaded or unloaded"
    assert quiet.operator.done("rollback", model="btc") == f"model btc: version {live} is live again"
    assert quiet.version("btc") == live


def test_outside_the_hours_it_is_not_quiet(tmp_path: Path) -> None:
    models, admin = tmp_path / "models", tmp_path / "admin"
    add_version(models, "btc", "1", scale(1))
    settings: dict[str, Any] = {"repository": str(models), "admin": str(admin), "quiet_hours": QUIET_HOURS}
    with serve(tmp_path, [], prefix=("env", f"TZ={zone(20)}"), **settings), Operator(admin) as operator:
        assert not operator.ask(do="status")["quiet"]
        add_whole_version(models, "btc", "2", scale(2))
        assert "version 2 is live" in operator.done("reload")


def test_what_comes_while_a_server_starts_is_loaded_soon(tmp_path: Path) -> None:
    """btc is loaded first, then others take their time."""
    models, admin, log = tmp_path / "models", tmp_path / "admin", tmp_path / "server.log"
    for name in ("btc", *(f"later-{number}" for number in range(8))):
        add_version(models, name, "1", scale(1))

    def add_once_loaded() -> None:
        wait_until(lambda: log.exists() and "serving btc version 1" in log.read_text(), "version 1 is served")
        add_whole_version(models, "btc", "2", scale(2))

    adding = Thread(target=add_once_loaded)
    adding.start()
    settings: dict[str, Any] = {"repository": str(models), "admin": str(admin), "watch_s": WATCH_S}
    with serve(tmp_path, [], **settings), Operator(admin) as operator:
        adding.join()
        wait_until(lambda: operator.live("btc") == "2", "version 2 is live")
