"""Prometheus' configuration and rules, by promtool; and that no alert is without its tests and its page of the
runbook."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.deploy.rules import PROMETHEUS, RUNBOOK, alerts, recorded

TESTS = sorted((PROMETHEUS / "tests").glob("*_test.yml"))
ASKED = re.compile(r'alertname="(\w+)"')


def promtool(*arguments: str | Path) -> str:
    """What it says where it is content."""
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False, cwd=PROMETHEUS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def checks() -> list[tuple[str, list[Any]]]:
    """(alert, samples) of every question in the tests of rules."""
    tests = [test for file in TESTS for test in yaml.safe_load(file.read_text())["tests"]]
    asked = [question for test in tests for question in test["promql_expr_test"]]
    return [(ASKED.findall(question["expr"])[0], question["exp_samples"]) for question in asked]


def test_the_configuration_and_the_rules_are_well_formed() -> None:
    assert "SUCCESS: 2 rule files found" in promtool("check", "config", "prometheus.yml")
    for name in ("alerts.yml", "recording.yml"):
        promtool("check", "rules", "--lint=all", "--lint-fatal", PROMETHEUS / "rules" / name)


@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.stem)
def test_alerts_fire_when_they_should_and_are_silent_when_not(file: Path) -> None:
    promtool("test", "rules", file)


def test_every_alert_is_tested_both_ways() -> None:
    names = {alert["alert"] for alert in alerts()}
    assert {name for name, samples in checks() if samples} == names
    assert {name for name, samples in checks() if not samples} == names


def test_a_rule_that_never_fires_fails_its_test(tmp_path: Path) -> None:
    """Each alert, made deaf: the tests must miss it. All at once, and all must be named."""
    text = (PROMETHEUS / "rules" / "alerts.yml").read_text()
    groups = yaml.safe_load(text)["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        rule["expr"] = "vector(1) > 2"
    (tmp_path / "rules").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "rules" / "alerts.yml").write_text(yaml.safe_dump({"groups": groups}))
    (tmp_path / "rules" / "recording.yml").write_text((PROMETHEUS / "rules" / "recording.yml").read_text())
    missed: set[str] = set()
    for file in TESTS:
        (tmp_path / "tests" / file.name).write_text(file.read_text())
        command = ["promtool", "test", "rules", str(tmp_path / "tests" / file.name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode != 0
        missed |= set(re.findall(r'alertname=\\"(\w+)\\"', done.stdout + done.stderr))
    assert missed == {alert["alert"] for alert in alerts()}


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_every_alert_says_what_it_is_and_has_its_section(alert: dict[str, Any]) -> None:
    name = alert["alert"]
    assert re.fullmatch(r"Tickpath[A-Z]\w+", name)
    assert alert["labels"]["severity"] in ("page", "ticket")
    assert alert["annotations"]["runbook_url"] == f"docs/OPERATING.md#{name.lower()}"
    section = re.search(rf"^### {name}\n(.*?)(?=^##)", RUNBOOK.read_text() + "\n##", re.MULTILINE | re.DOTALL)
    assert section, f"{RUNBOOK.name} has no section '### {name}'"
    for part in ("Means", "Look at", "Do"):
        assert f"**{part}**" in section[1], f"{name}: no '{part}'"


def test_the_runbook_has_no_section_for_an_alert_that_is_gone() -> None:
    sections = set(re.findall(r"^### (Tickpath\w+)$", RUNBOOK.read_text(), re.MULTILINE))
    assert sections == {alert["alert"] for alert in alerts()}


def test_every_window_of_the_budget_is_recorded() -> None:
    """Alerts ask for what there is: a window without its rule would make an alert that never fires."""
    names = {rule["record"] for rule in recorded()}
    asked = {name for alert in alerts() for name in re.findall(r"[\w:]*:tickpath_\w+:\w+", alert["expr"])}
    assert asked
    assert asked <= names
