"""A real Prometheus, with the configuration and the rules of deploy/prometheus."""

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from tests.deploy.rules import PROMETHEUS
from tests.processes import free_port
from tests.waiting import wait_until

# A scrape must be over before the next, and the observer steps aside for all others on a busy machine.
SCRAPE = "1s"
EVALUATE = "200ms"


class Prometheus:
    """One that runs, asked over its HTTP interface."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str, **parameters: str) -> Any:
        """The `data` of an answer."""
        question = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(question, timeout=30) as response:
            answer = json.load(response)
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an instant query, those that are no number aside."""
        result = self.ask("query", query=expression)["result"]
        return [sample for sample in result if sample["value"][1] != "NaN"]

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


@contextmanager
def scraping(target: str, folder: Path) -> Iterator[Prometheus]:
    """The configuration as it is, but for where the server is and how often it is asked."""
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": SCRAPE, "scrape_timeout": SCRAPE, "evaluation_interval": EVALUATE}
    config["rule_files"] = [str(PROMETHEUS / pattern) for pattern in config["rule_files"]]
    (scrape,) = config["scrape_configs"]
    scrape["static_configs"] = [{"targets": [target]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    command = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    log = folder / "prometheus.log"
    with (
        log.open("w") as errors,
        subprocess.Popen([*command, f"--web.listen-address={address}"], stderr=errors, cwd=folder) as process,
    ):
        try:
            wait_until(lambda: answers(f"http://{address}/-/ready"), log.read_text)
            yield Prometheus(f"http://{address}")
        finally:
            process.kill()
