"""Two versions beside the live one on a real server: one that answers a share of the clients, one that answers none."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np
import onnx
import pytest
from tests.integration.observer.observing import Scrape, get
from tests.operators import Operator, add_whole_version
from tests.processes import WAIT_S_MAX
from tests.repositories import add_version, scale, slow_scale
from tests.serving import RunningServer, serve
from tests.traffic import Floats, Traffic

from tickpath.client import Client
from tickpath.server.catalogue import KEYS, key_of

CLIENTS: Final = [f"desk-{number}" for number in range(40)]
SHARE: Final = 0.3
# 8 ms a row: a shadow of it can't keep up.
SLOW_STEPS: Final = 40_000
X: Final = np.ones((1, 3), np.float32)


@dataclass(frozen=True)
class Site:
    """A server of `btc`: version 1 is live, beside it are 2, `same` (which answers as 1 does) and `slow` (too)."""

    server: RunningServer
    models: Path
    operator: Operator

    def scrape(self) -> Scrape:
        assert self.server.ready.observer is not None
        return Scrape(get(f"{self.server.ready.observer}/metrics")[1])

    def shadowed(self, version: str) -> dict[str, float]:
        """What a shadow has done so far."""
        scrape = self.scrape()
        return {
            what: scrape.value(f"tickpath_shadow_{what}_total", model="btc", version=version)
            for what in ("compared", "differed", "dropped")
        }

    def answers_of(self, version: str) -> float:
        return self.scrape().value("tickpath_requests_total", model="btc", version=version, code="OK")

    def shadow_of(self, version: str, answers: int) -> dict[str, float]:
        """What it has done once it has had this many answers."""
        end_s = time.monotonic() + WAIT_S_MAX
        while sum((seen := self.shadowed(version))[what] for what in ("compared", "dropped")) < answers:
            assert time.monotonic() < end_s, seen
        return seen


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("beside")
    models, admin = folder / "models", folder / "admin"
    add_version(models, "btc", "1", scale(1))
    (models / "btc" / "model.toml").write_text('live = "1"\n')
    with (
        serve(folder, [], repository=str(models), admin=str(admin), observer_port=0) as server,
        Operator(admin) as operator,
    ):
        beside = {"2": scale(2), "same": scale(1), "slow": slow_scale(1, SLOW_STEPS)}
        for version, content in beside.items():
            add_whole_version(models, "btc", version, content)
            operator.done("load", model="btc", version=version)
        yield Site(server, models, operator)


def answered_by(server: RunningServer) -> dict[str, str]:
    """Who answers each of the clients, on a connection of its own."""
    found = {}
    for name in CLIENTS:
        with Client(server.address, name=name) as client:
            found[name] = client.infer("btc", [X]).version
    return found


def test_a_canary_answers_the_same_share_of_the_clients_whenever_they_come(site: Site) -> None:
    site.operator.done("canary", model="btc", version="2", share=SHARE)
    assert (site.operator.model("btc")["canary"], site.operator.model("btc")["canary_share"]) == ("2", SHARE)
    expected = {name: "2" if key_of(name) < SHARE * KEYS else "1" for name in CLIENTS}
    assert set(expected.values()) == {"1", "2"}
    assert answered_by(site.server) == expected
    assert answered_by(site.server) == expected
    site.operator.done("canary", model="btc", version="2", share=2 * SHARE)
    more = answered_by(site.server)
    assert {name for name, version in expected.items() if version == "2"} < {n for n, v in more.items() if v == "2"}
    site.operator.done("canary", model="btc")
    assert set(answered_by(site.server).values()) == {"1"}


def windows_of(factor: float) -> onnx.ModelProto:
    """Scales a window of three rows of two numbers, of which a feed can keep all but the newest."""
    proto = scale(factor)
    for tensor in (proto.graph.input[0], proto.graph.output[0]):
        tensor.type.tensor_type.shape.dim.add().dim_value = 2
    return proto


def test_a_feed_goes_by_its_own_key(site: Site) -> None:
    """Whoever holds it."""
    add_whole_version(site.models, "ticks", "1", windows_of(1))
    (site.models / "ticks" / "model.toml").write_text('live = "1"\n[feed]\nwarm_up = "pad"\n')
    site.operator.done("reload", model="ticks")
    add_whole_version(site.models, "ticks", "2", windows_of(2))
    site.operator.done("load", model="ticks", version="2")
    site.operator.done("canary", model="ticks", version="2", share=SHARE)
    found = {}
    with Client(site.server.address, name="one desk") as client:
        for key in CLIENTS:
            with client.open_feed("ticks", key) as feed:
                found[key] = feed.tick(np.ones((1, 2), np.float32)).version
    assert found == {key: "2" if key_of(key) < SHARE * KEYS else "1" for key in CLIENTS}


def test_it_is_said_how_many_clients_a_canary_answers(site: Site) -> None:
    """Clients that all have one name are one to it, and would be no share of them."""
    with ExitStack() as stack:
        for name in (*CLIENTS[:10], "same", "same"):
            client = stack.enter_context(Client(site.server.address, name=name))
            client.infer("btc", [X])
        stack.enter_context(site.server.connect())  # who has not said its name
        taken = sum(key_of(name) < SHARE * KEYS for name in (*CLIENTS[:10], "same", "same"))
        told = "model btc: version 2 answers 30 % of the clients, by their names: "
        expected = f"{told}{taken} of 12 that are connected"
        until_told(site, expected)
    site.operator.done("canary", model="btc")


def until_told(site: Site, expected: str) -> None:
    """Sessions of earlier tests may still be ending."""
    end_s = time.monotonic() + WAIT_S_MAX
    while (told := site.operator.done("canary", model="btc", version="2", share=SHARE)) != expected:
        assert time.monotonic() < end_s, told


def test_a_canary_moves_the_sessions_that_are_open(site: Site) -> None:
    with Client(site.server.address, name="open") as client:
        assert client.infer("btc", [X]).version == "1"
        site.operator.done("canary", model="btc", version="2", share=1)
        assert client.infer("btc", [X]).version == "2"
        site.operator.done("canary", model="btc")
        assert client.infer("btc", [X]).version == "1"


@pytest.mark.parametrize(("version", "differs"), [("2", True), ("same", False)])
def test_a_shadow_is_compared_and_answers_nobody(site: Site, version: str, differs: bool) -> None:
    before, answered_before = site.shadowed(version), site.answers_of(version)
    site.operator.done("shadow", model="btc", version=version)
    answers = 300
    with Client(site.server.address) as client:
        assert {client.infer("btc", [X * number]).version for number in range(1, 1 + answers)} == {"1"}
    seen = {
        what: count - before[what]
        for what, count in site.shadow_of(version, int(sum(before.values())) + answers).items()
    }
    assert seen["compared"] + seen["dropped"] == answers
    assert seen["compared"] > 0
    assert seen["differed"] == (seen["compared"] if differs else 0)
    assert site.answers_of(version) == answered_before
    site.operator.done("shadow", model="btc")
    with Client(site.server.address) as client:
        client.infer("btc", [X])
    assert site.shadow_of(version, 0) == {what: before[what] + count for what, count in seen.items()}


def test_what_can_stand_beside_is_said(site: Site) -> None:
    for role in ("canary", "shadow"):
        assert f"can't be a {role}: it is the live one" in site.operator.refused(role, model="btc", version="1")
        assert "version '9' of model 'btc' is not loaded" in site.operator.refused(role, model="btc", version="9")


def answering(version: str, inputs: Floats) -> Floats:
    return inputs * np.float32({"1": 1, "slow": 1, "2": 2}[version])


def test_a_slow_shadow_drops_what_it_cannot_do_and_slows_nobody(site: Site) -> None:
    """Windows with and without it take turns; by the server's own stamps."""
    windows: dict[bool, list[float]] = {True: [], False: []}
    with Traffic(site.server, "btc", answering, rate=1000) as traffic:
        for turn in range(6):
            shadowed = turn % 2 == 1
            site.operator.done("shadow", model="btc", version="slow" if shadowed else None)
            first = len(traffic.answers)
            traffic.wait_for(500)
            windows[shadowed].append(median(answer.server_ns for answer in traffic.answers[first:]))
    site.operator.done("shadow", model="btc")
    assert traffic.wrong == []
    assert traffic.versions() == ["1"]
    seen = site.shadowed("slow")
    assert seen["dropped"] > seen["compared"] > 0
    assert seen["differed"] == 0
    assert median(windows[True]) < 3 * median(windows[False]), windows
