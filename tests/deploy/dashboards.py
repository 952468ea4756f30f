"""The panels of the dashboards in deploy/grafana, and what they ask Prometheus for."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.deploy.rules import ROOT

GRAFANA: Final = ROOT / "deploy" / "grafana"
DASHBOARDS: Final = sorted((GRAFANA / "dashboards").glob("*.json"))
# What Grafana puts in for its variables with everything chosen; the interval is thirty scrapes of the test's.
CHOSEN: Final = {"$job": "tickpath", "$instance": ".*", "$model": ".*", "$__rate_interval": "30s"}
OF_EACH_GPU: Final = "tickpath_gpu_"


@dataclass(frozen=True)
class Query:
    """One expression, of a panel in a row."""

    row: str
    panel: str
    expression: str

    @property
    def chosen(self) -> str:
        """The expression that Prometheus gets."""
        text = self.expression
        for name, value in CHOSEN.items():
            text = text.replace(name, value)
        assert "$" not in text, f"{self.panel}: a variable that this test does not know: {text}"
        return text

    @property
    def is_of_gpu(self) -> bool:
        """The rule for what a machine without a GPU can't show: a series for each GPU, in their row."""
        names = re.findall(r"\btickpath_\w+", self.expression)
        return self.row == "GPU" and all(name.startswith(OF_EACH_GPU) for name in names)


def load(path: Path) -> dict[str, Any]:
    """A dashboard."""
    dashboard: dict[str, Any] = json.loads(path.read_text())
    return dashboard


def series_of_variables(dashboard: dict[str, Any]) -> list[Query]:
    """What the values of its variables are taken from: the first word of each `label_values`."""
    asked = [variable["query"]["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
    series = [re.fullmatch(r"label_values\((.+), \w+\)", text) for text in asked]
    assert all(series), asked
    return [Query("variables", text, found[1]) for text, found in zip(asked, series, strict=True) if found]


def annotations(dashboard: dict[str, Any]) -> list[Query]:
    """What is marked in all panels, which is there only once it happened."""
    return [Query("annotations", each["name"], each["expr"]) for each in dashboard["annotations"]["list"]]


def queries(dashboard: dict[str, Any]) -> list[Query]:
    """All that its panels ask for."""
    row, found = "", []
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
        found += [Query(row, panel["title"], target["expr"]) for target in panel.get("targets", [])]
    return found
