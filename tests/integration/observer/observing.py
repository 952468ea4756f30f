"""A core without a server, beside a real observer: what it writes is what the observer must say."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tickpath.observe.records import CoreDescription, RecordWriter, VersionDescription
from tickpath.observe.settings import ObserverSettings

FAST = VersionDescription("fast", "1", "onnxruntime", "float32", "ab" * 32, "inline", (1, 2, 4))
SLOW = VersionDescription("slow", "2", "onnxruntime", "float32", "cd" * 32, "thread", (1,))
MODELS = CoreDescription(os.getpid(), (FAST, SLOW))


def write(writer: RecordWriter, model: int, latencies_ns: list[int]) -> None:
    """Requests whose stages are 1, 2, 3, the rest, 4 and 5 ns."""
    for latency_ns in latencies_ns:
        first = 10**12
        sent = first + latency_ns
        writer.answered(model, 0, 1, 1, 7, (first, first + 1, first + 3, first + 6, sent - 9, sent - 5), sent, 0)


def get(url: str, accept: str = "*/*") -> tuple[str, str]:
    """(content type, body) of a 200; raises HTTPError at anything else."""
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.headers["Content-Type"], response.read().decode()


def command(fd: int, cpus: str = "", **settings: Any) -> list[str]:
    """An observer of the records behind `fd`, with settings of ObserverSettings."""
    told = msgspec.json.encode(ObserverSettings(fd, **({"server_name": "here"} | settings))).decode()
    return [sys.executable, "-m", "tickpath.observe", told, *(("--cpus", cpus) if cpus else ())]


@dataclass(frozen=True)
class Observing:
    """A running observer."""

    process: subprocess.Popen[str]
    url: str

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def get(self, path: str, accept: str = "*/*") -> tuple[str, str]:
        """(content type, body) of a 200; raises HTTPError at anything else."""
        return get(self.url + path, accept)

    def scrape(self) -> "Scrape":
        return Scrape(self.get("/metrics")[1])

    def end(self) -> None:
        self.process.terminate()
        self.process.communicate()


class Scrape:
    """One page of /metrics, parsed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples: list[Sample] = [sample for family in self.families.values() for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """The one sample of that name with these labels among its own."""
        found = [
            sample.value for sample in self.samples if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert len(found) == 1, f"{len(found)} samples are {name}{labels}"
        return found[0]

    def buckets(self, name: str, **labels: str) -> list[tuple[float, float]]:
        """(upper bound, cumulative count) of one histogram, in the order they were printed."""
        return [
            (float(sample.labels["le"]), sample.value)
            for sample in self.samples
            if sample.name == f"{name}_bucket" and labels.items() <= sample.labels.items()
        ]


@contextmanager
def observing(
    writer: RecordWriter, tally_fd: int | None = None, cpus: str = "", **settings: Any
) -> Iterator[Observing]:
    """The real observer of these records, until the end of the block. `tally_fd`: where its counts outlive it."""
    process = subprocess.Popen(
        command(writer.fd, cpus, tally_fd=tally_fd, **settings),
        pass_fds=(writer.fd,) if tally_fd is None else (writer.fd, tally_fd),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield Observing(process, json.loads(line)["observer"])
    finally:
        process.kill()
        process.communicate()


def histogram_quantile(quantile: float, buckets: Sequence[tuple[float, float]]) -> float:
    """What Prometheus makes of cumulative buckets: linear inside the bucket that holds the rank."""
    rank = quantile * buckets[-1][1]
    below_bound, below_count = 0.0, 0.0
    for bound, count in buckets:
        if count >= rank:
            return below_bound + (bound - below_bound) * (rank - below_count) / (count - below_count)
        below_bound, below_count = bound, count
    raise AssertionError("the last bucket is not +Inf")
