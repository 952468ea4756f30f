"""The dashboards' form; that their queries find something is test_prometheus.py's."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.deploy.dashboards import DASHBOARDS, GRAFANA, load, queries

VARIABLES = {"datasource", "job", "instance", "model"}
ROWS = ("Latency", "Stages", "Load", "What was not answered", "Jitter", "Changes", "GPU")


@pytest.fixture(params=DASHBOARDS, ids=lambda path: path.stem)
def dashboard(request: pytest.FixtureRequest) -> dict[str, Any]:
    return load(request.param)


def test_it_is_templated(dashboard: dict[str, Any]) -> None:
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    assert set(variables) == VARIABLES
    assert variables["datasource"]["type"] == "datasource"
    sources = [variable["datasource"]["uid"] for variable in variables.values() if "datasource" in variable]
    sources += [target["datasource"]["uid"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert set(sources) == {"$datasource"}
    for query in queries(dashboard):
        assert query.is_of_gpu or "$instance" in query.expression, query.panel


def test_grafana_knows_its_form(dashboard: dict[str, Any]) -> None:
    """Of the release that compose.yml runs: an older form would be rewritten each time it is shown, a newer one guessed
    at. It has no id of its own, which is the database's."""
    assert dashboard["schemaVersion"] == 41
    assert dashboard["uid"] == "tickpath"
    assert "id" not in dashboard


def test_every_panel_says_what_it_shows_and_in_what_unit(dashboard: dict[str, Any]) -> None:
    for panel in dashboard["panels"]:
        assert panel["title"]
        if panel["type"] == "row":
            continue
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "$datasource"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_it_shows_what_an_operator_asks_for(dashboard: dict[str, Any]) -> None:
    rows = [panel["title"] for panel in dashboard["panels"] if panel["type"] == "row"]
    for name in ROWS:
        assert [row for row in rows if row.startswith(name)], name
    assert [query for query in queries(dashboard) if query.is_of_gpu]


def test_panels_do_not_overlap_and_have_ids_of_their_own(dashboard: dict[str, Any]) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(int(place["w"])) for y in range(int(place["h"]))}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_it_is_provisioned() -> None:
    (provider,) = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "tickpath.yml").read_text())["providers"]
    compose = yaml.safe_load((GRAFANA.parent / "docker" / "compose.yml").read_text())["services"]
    mounts = dict(mount.split(":")[:2][::-1] for mount in compose["grafana"]["volumes"])
    folder = GRAFANA.parent / "docker"
    assert (folder / mounts[provider["options"]["path"]]).resolve() == GRAFANA / "dashboards"
    assert (folder / mounts["/etc/grafana/provisioning"]).resolve() == GRAFANA / "provisioning"
    (source,) = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "prometheus.yml").read_text())["datasources"]
    variable = source["url"].removeprefix("$")
    assert compose["grafana"]["environment"][variable].startswith("http://prometheus:")
    rules = dict(mount.split(":")[:2] for mount in compose["prometheus"]["volumes"])
    assert Path(folder, next(iter(rules))).resolve() == GRAFANA.parent / "prometheus"
