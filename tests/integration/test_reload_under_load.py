"""2,000 requests a second through reloads of which half fail, each in a way of its own: nobody notices."""

import re
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np
import pytest
from tests.failing import FAILING, FAILING_VERSION, SETTINGS, add_failing
from tests.integration.observer.observing import Scrape, get
from tests.operators import Operator, add_whole_version, remove_version
from tests.repositories import add_version, scale
from tests.serving import RunningServer, serve
from tests.traffic import Floats, Traffic

# 50 ms each, on a busy machine ten times that: `python -m bench.reload` does two hundred.
RELOADS: Final = 40
# By then the runtime's and Python's memory has the size that they need.
SETTLED: Final = 10


def answering(version: str, inputs: Floats) -> Floats:
    """A version is named by its factor."""
    return inputs * np.float32(int(version))


@dataclass
class Seen:
    """What was seen through all of it."""

    traffic: Traffic
    refusals: dict[str, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    scrapes: list[Scrape] = field(default_factory=list)
    rss_bytes: list[int] = field(default_factory=list)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    folder = tmp_path_factory.mktemp("reloads")
    models, admin = folder / "models", folder / "admin"
    add_version(models, "scale", "1", scale(1))
    (models / "scale" / "model.toml").write_text(SETTINGS)
    with (
        serve(folder, [], repository=str(models), admin=str(admin), observer_port=0) as server,
        Operator(admin) as operator,
    ):
        with Traffic(server, "scale", answering) as traffic:
            seen = Seen(traffic)
            traffic.wait_for(1_000)
            _reload(models, operator, server, seen)
            traffic.wait_for(1_000)
        seen.scrapes.append(_scrape(server))
    return seen


def _reload(models: Path, operator: Operator, server: RunningServer, seen: Seen) -> None:
    for number in range(1, RELOADS + 1):
        if number % 2:
            _fail(list(FAILING)[number // 2 % len(FAILING)], models, operator, seen)
        else:
            _succeed(number // 2 + 1, models, operator, seen)
        seen.scrapes.append(_scrape(server))
        seen.rss_bytes.append(server.rss_bytes())


def _fail(how: str, models: Path, operator: Operator, seen: Seen) -> None:
    add_failing(models, "scale", how)
    seen.refusals[how] = operator.refused("reload", model="scale")
    remove_version(models, "scale", FAILING_VERSION)


def _succeed(factor: int, models: Path, operator: Operator, seen: Seen) -> None:
    add_whole_version(models, "scale", str(factor), scale(factor))
    seen.told.append(operator.done("reload"))
    seen.traffic.wait_for(5)


def _scrape(server: RunningServer) -> Scrape:
    assert server.ready.observer is not None
    return Scrape(get(f"{server.ready.observer}/metrics")[1])


def test_every_answer_is_whole_and_of_the_version_it_names(seen: Seen) -> None:
    assert seen.traffic.wrong == []
    assert seen.traffic.versions() == [str(1 + number) for number in range(RELOADS // 2 + 1)]


def test_what_fails_is_refused_with_its_cause_and_what_comes_next_is_loaded(seen: Seen) -> None:
    assert {how: text for how, text in seen.refusals.items() if FAILING[how] not in text} == {}
    assert list(seen.refusals) == list(FAILING)
    assert [f"version {2 + number} is live, after {1 + number};" in told for number, told in enumerate(seen.told)] == [
        True
    ] * (RELOADS // 2)


def test_a_reload_is_compared_on_what_was_asked_lately(seen: Seen) -> None:
    """From version n to n + 1, every answer changes by 1/n; there are requests as soon as there is traffic."""
    for number, told in enumerate(seen.told, 1):
        change = re.search(r"on the last \d+ requests?: .* (\S+) of its largest value", told)
        assert change is not None, told
        assert float(change[1]) == pytest.approx(1 / number, rel=0.05)


def test_no_counter_ever_falls(seen: Seen) -> None:
    """A series may go with a version that has long been retired; what stays only rises."""
    kinds = ("counter", "histogram")
    series = [
        {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in scrape.families.values()
            if family.type in kinds
            for sample in family.samples
        }
        for scrape in seen.scrapes
    ]
    for before, after in pairwise(series):
        assert {key: value for key, value in before.items() if after.get(key, value) < value} == {}
        gone = [key for key in before if key not in after]
        assert [key for key in gone if not any(label[0] == "version" for label in key[1:])] == []


def test_reloads_and_refusals_are_counted_and_the_gap_is_told(seen: Seen) -> None:
    for number, scrape in enumerate(seen.scrapes[:-1], 1):
        assert scrape.value("tickpath_reloads_total", model="scale") == number // 2
        assert scrape.value("tickpath_loads_failed_total") == (number + 1) // 2
        assert scrape.value("tickpath_reload_gap_seconds", model="scale") > 0
    last = seen.scrapes[-1]
    infos = [sample.labels for sample in last.samples if sample.name == "tickpath_model_info"]
    assert [(info["version"], info["role"]) for info in infos] == [
        (str(RELOADS // 2), "loaded"),
        (str(RELOADS // 2 + 1), "live"),
    ]
    replays = [last.value("tickpath_graph_replays_total", model="scale", bucket=str(bucket)) for bucket in (1, 2, 4, 8)]
    assert sum(replays) == len(seen.traffic.answers)


def test_memory_does_not_grow(seen: Seen) -> None:
    settled, last = seen.rss_bytes[SETTLED], seen.rss_bytes[-1]
    assert last < 1.02 * settled, seen.rss_bytes


def test_latency_does_not_grow(seen: Seen) -> None:
    """By the server's own stamps: this process measures, writes models and parses pages on the same processors."""
    answers = seen.traffic.answers
    quarter = len(answers) // 4
    first, last = (median(each.server_ns for each in part) for part in (answers[:quarter], answers[-quarter:]))
    assert last < 2 * first
