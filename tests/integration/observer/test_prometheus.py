"""A real Prometheus that scrapes two real observers: what it keeps, and what it makes of both together."""

import json
import math
import os
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.integration.observer.observing import MODELS, Observing, histogram_quantile, observing, write
from tests.processes import free_port
from tests.waiting import wait_until

from tickpath.observe.records import RecordWriter

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")

SCRAPE_S = 2  # a scrape that takes longer fails, and a busy machine is slow
BUCKETS = "tickpath_request_duration_seconds_bucket{model='fast'}"
WINDOW = "rate(tickpath_request_duration_seconds_bucket[1h])"


class Prometheus:
    """A running one."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self._url}/api/v1/{path}?{query}", timeout=30) as response:
            return json.load(response)["data"]

    def value(self, query: str) -> dict[str, float]:
        """What an expression is now, by the label `name`, else by `instance`."""
        return {
            series["metric"].get("name", series["metric"].get("instance", "")): float(series["value"][1])
            for series in self.ask("query", query=query)["result"]
        }


@contextmanager
def prometheus(folder: Path, *targets: str) -> Iterator[Prometheus]:
    """One that scrapes these addresses, and has done so."""
    port = free_port()
    jobs = [{"job_name": "tickpath", "static_configs": [{"targets": targets}]}]
    pace = {"scrape_interval": f"{SCRAPE_S}s", "scrape_timeout": f"{SCRAPE_S}s"}
    (folder / "prometheus.yml").write_text(json.dumps({"global": pace, "scrape_configs": jobs}))
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--enable-feature=exemplar-storage"]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            running = Prometheus(f"http://127.0.0.1:{port}")

            def all_up() -> bool:
                try:
                    return sum(running.value("up").values()) == len(targets)
                except OSError:
                    assert process.poll() is None, (folder / "log").read_text()
                    return False

            wait_until(all_up, "all targets are up")
            yield running
        finally:
            process.kill()


@contextmanager
def two(writers: list[RecordWriter]) -> Iterator[list[Observing]]:
    with observing(writers[0], server_name="first") as first, observing(writers[1], server_name="second") as second:
        yield [first, second]


def test_two_servers_are_told_apart_and_add_up(tmp_path: Path) -> None:
    """One has 1,000 requests of 50 µs, the other 1,000 of 5 ms: together, half of each."""
    writers = [RecordWriter(), RecordWriter()]
    for writer in writers:
        writer.describe(MODELS)
    latencies_ns = (50_000, 5_000_000)
    with two(writers) as observers:
        targets = [each.url.removeprefix("http://") for each in observers]
        with prometheus(tmp_path, *targets) as running:
            # rate() needs a sample from before.
            ok = "tickpath_requests_total{code='OK',model='fast'}"
            wait_until(lambda: len(running.value(ok)) == 2, "a sample of each")
            for writer, latency_ns in zip(writers, latencies_ns, strict=True):
                write(writer, 0, [latency_ns] * 1_000)
            count = "sum(tickpath_request_duration_seconds_count{model='fast'})"
            wait_until(lambda: running.value(count) == {"": 2_000}, "all are counted")
            names = "* on (instance) group_left (name) tickpath_server_info"
            each = running.value(f"histogram_quantile(0.5, sum by (instance, le) ({WINDOW})) {names}")
            both = {
                quantile: running.value(f"histogram_quantile({quantile}, sum by (le) ({BUCKETS}))")[""]
                for quantile in (0.25, 0.75)
            }
            exemplars = running.ask(
                "query_exemplars",
                query="tickpath_request_duration_seconds_bucket",
                start=str(time.time() - 10**7),
                end=str(time.time() + 10**7),
            )
        buckets = [each.scrape().buckets("tickpath_request_duration_seconds", model="fast") for each in observers]
    assert each.keys() == {"first", "second"}
    for name, latency_ns in zip(("first", "second"), latencies_ns, strict=True):
        assert each[name] == pytest.approx(latency_ns / 1e9, rel=2 / 3)
    added = [(bound, ours + theirs) for (bound, ours), (_, theirs) in zip(*buckets, strict=True)]
    for quantile, seen in both.items():
        assert not math.isnan(seen)
        assert seen == pytest.approx(histogram_quantile(quantile, added), rel=1e-6)
    kept = [exemplar for series in exemplars for exemplar in series["exemplars"]]
    assert {exemplar["labels"]["request_id"] for exemplar in kept} == {"7"}
    assert {float(exemplar["value"]) for exemplar in kept} == {50e-6, 5e-3}
    for writer in writers:
        writer.close()


def test_a_killed_observer_is_no_counter_reset_to_prometheus(tmp_path: Path) -> None:
    writer = RecordWriter()
    writer.describe(MODELS)
    tally_fd = os.memfd_create("tally")
    count = "tickpath_request_duration_seconds_count{model='fast'}"
    with ExitStack() as stack:
        first = stack.enter_context(observing(writer, tally_fd=tally_fd))
        running = stack.enter_context(prometheus(tmp_path, first.url.removeprefix("http://")))
        write(writer, 0, [50_000] * 1_000)
        wait_until(lambda: list(running.value(count).values()) == [1_000], "the first are counted")
        first.process.kill()
        first.process.communicate()
        write(writer, 0, [50_000] * 1_000)
        stack.enter_context(observing(writer, port=first.port, tally_fd=tally_fd))
        wait_until(lambda: list(running.value(count).values()) == [2_000], "the others, too")
        resets = list(running.value(f"resets({count}[1h])").values())
    os.close(tally_fd)
    writer.close()
    assert resets == [0]
