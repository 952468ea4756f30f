"""The rules as they are in deploy/prometheus."""

from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
PROMETHEUS: Final = ROOT / "deploy" / "prometheus"
RUNBOOK: Final = ROOT / "docs" / "OPERATING.md"


def alerts() -> list[dict[str, Any]]:
    """All alerts, in order."""
    groups = yaml.safe_load((PROMETHEUS / "rules" / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def recorded() -> list[dict[str, Any]]:
    """All recording rules, in order."""
    groups = yaml.safe_load((PROMETHEUS / "rules" / "recording.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]
