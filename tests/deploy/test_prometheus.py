"""A real Prometheus scrapes a real server under load: every rule and every panel of the dashboards finds what it asks
for, and an alert fires."""

import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.deploy.dashboards import DASHBOARDS, OF_EACH_GPU, annotations, load, queries, series_of_variables
from tests.deploy.prometheus import Prometheus, scraping
from tests.deploy.rules import alerts, recorded
from tests.operators import add_whole_version
from tests.serving import RunningServer, serve
from tests.waiting import wait_until

from tickpath.client import Client
from tickpath.engines.zoo import build

METRIC = re.compile(r"\b(?:tickpath|process)_\w+")


@dataclass
class Scraped:
    """A server under load, who scrapes it, and where its models are."""

    server: RunningServer
    prometheus: Prometheus
    models: Path


class Load(threading.Thread):
    """Asks one request after another until it is told to end."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address
        self._over = threading.Event()

    def run(self) -> None:
        row = np.zeros((1, 64), np.float32)
        with Client(self._address) as client:
            # A pause, since it shares its processors with all the others here.
            while not self._over.wait(0.002):
                client.infer("mlp", {"x": row})

    def end(self) -> None:
        self._over.set()
        self.join()


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    folder = tmp_path_factory.mktemp("scraped")
    models = folder / "models"
    (models / "mlp" / "1").mkdir(parents=True)
    (models / "mlp" / "1" / "model.onnx").write_bytes(build("mlp").SerializeToString())
    with serve(folder, [], repository=str(models), observer_port=0) as server:
        assert server.ready.observer is not None
        with scraping(server.ready.observer.removeprefix("http://"), folder) as prometheus:
            load_thread = Load(server.address)
            load_thread.start()
            try:
                yield Scraped(server, prometheus, models)
            finally:
                load_thread.end()


def test_the_server_is_scraped_and_the_rules_are_evaluated(scraped: Scraped) -> None:
    prometheus = scraped.prometheus
    wait_until(lambda: prometheus.query('up{job="tickpath"} == 1') != [], lambda: str(prometheus.ask("targets")))
    names = {rule["record"] for rule in recorded()} | {alert["alert"] for alert in alerts()}
    wait_until(
        lambda: {rule["name"] for rule in prometheus.rules() if rule["health"] == "ok"} == names,
        lambda: str([rule for rule in prometheus.rules() if rule["health"] != "ok"]),
    )


def test_every_metric_that_rules_and_dashboards_name_is_there(scraped: Scraped) -> None:
    prometheus = scraped.prometheus
    expressions = [rule["expr"] for rule in (*alerts(), *recorded())]
    asked = (queries, annotations, series_of_variables)
    expressions += [query.expression for path in DASHBOARDS for each in asked for query in each(load(path))]
    named = {name for text in expressions for name in METRIC.findall(re.sub(r"\w+:tickpath\w+(:\w+)?", "", text))}
    named = {name for name in named if not name.startswith(OF_EACH_GPU)}
    assert len(named) > 30

    def missing() -> set[str]:
        return named - set(prometheus.ask("label/__name__/values"))

    wait_until(lambda: missing() == set(), lambda: f"named and not exported: {sorted(missing())}")


def test_every_panel_finds_something(scraped: Scraped) -> None:
    """But for those of a GPU (`Query.is_of_gpu`)."""
    asked = [query for path in DASHBOARDS for query in queries(load(path)) if not query.is_of_gpu]
    asked += [query for path in DASHBOARDS for query in series_of_variables(load(path))]
    assert len(asked) > 30

    def empty() -> list[str]:
        return [f"{query.row} / {query.panel}" for query in asked if not scraped.prometheus.query(query.chosen)]

    wait_until(lambda: empty() == [], lambda: f"panels that show nothing: {empty()}")


def test_what_is_recorded_is_there_too(scraped: Scraped) -> None:
    names = {rule["record"] for rule in recorded()}

    def missing() -> list[str]:
        return [name for name in sorted(names) if not scraped.prometheus.query(name)]

    wait_until(lambda: missing() == [], lambda: f"recorded and empty: {missing()}")


def test_a_reload_that_is_refused_is_an_alert(scraped: Scraped) -> None:
    """From a file that is no model, by SIGHUP, to what a person reads."""
    broken = scraped.models / "mlp" / "2"
    broken.mkdir()
    (broken / "model.onnx").write_bytes(b"<html>not found</html>")
    os.kill(scraped.server.ready.pid, signal.SIGHUP)

    def firing() -> list[str]:
        """What is said of it."""
        (rule,) = (rule for rule in scraped.prometheus.rules() if rule["name"] == "TickpathReloadFailed")
        return [alert["annotations"]["summary"] for alert in rule["alerts"] if alert["state"] == "firing"]

    wait_until(lambda: firing() != [], scraped.server.log.read_text)
    target = scraped.server.ready.observer
    assert target is not None
    assert firing() == [f"{target.removeprefix('http://')}: a load was refused"]
    quiet = {"TickpathDown", "TickpathNoTargets", "TickpathNotReady", "TickpathRecordsLost", "TickpathEngineFailed"}
    fired = {alert["labels"]["alertname"] for alert in scraped.prometheus.ask("alerts")["alerts"]}
    assert not fired & quiet


def test_annotations_mark_what_happened(scraped: Scraped) -> None:
    """The alert of the test before, and a reload that is taken."""
    shutil.rmtree(scraped.models / "mlp" / "2", ignore_errors=True)
    add_whole_version(scraped.models, "mlp", "3", build("mlp"))
    os.kill(scraped.server.ready.pid, signal.SIGHUP)
    marked = [query for path in DASHBOARDS for query in annotations(load(path))]
    assert {query.panel for query in marked} == {"Alerts", "Reloads"}
    seen: set[str] = set()

    def all_were_seen() -> bool:
        seen.update(query.panel for query in marked if scraped.prometheus.query(query.chosen))
        return len(seen) == len(marked)

    wait_until(all_were_seen, scraped.server.log.read_text)
