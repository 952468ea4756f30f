"""Triton's own load generator, unmodified, by both of the door's protocols. It comes with the tritonclient that the
other tests use, and is linked with two libraries that `make test-door` installs."""

import csv
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from tests.doors import ask, oip
from tests.integration.observer.observing import Scrape
from tests.integration.test_starting import page
from tests.serving import RunningServer, serve, write_zoo

ROOT: Final = Path(__file__).parents[2]
PERF_ANALYZER: Final = Path(sys.executable).with_name("perf_analyzer")
INPUT_BYTES: Final = {"mlp": 64 * 4, "lstm_a": 50 * 100 * 4}
# It measures until three windows in a row agree; all do by this margin.
WINDOW_MS, AGREEMENT_PERCENT, IN_FLIGHT = 200, 1_000_000, 2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("perf_analyzer")
    with serve(folder, write_zoo(folder, *INPUT_BYTES), oip_port=0, oip_grpc_port=0, observer_port=0) as server:
        yield server


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("model", INPUT_BYTES)
def test_its_requests_are_answered_and_counted(
    server: RunningServer, model: str, protocol: str, tmp_path: Path
) -> None:
    before = statistics(server, model)["success"]["count"]
    done = measure(server, model, protocol, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    client_count, server_count = counts(done.stdout)
    assert client_count > 0
    assert "Failed" not in done.stdout
    # Its windows are cut out of what it sent. Each look at /stats comes a little before or after its own cut.
    assert server_count > 0
    answered = statistics(server, model)
    assert answered["success"]["count"] - before >= max(client_count, server_count)
    assert answered["fail"]["count"] == 0
    # Nobody else asks, so the door has counted what the core has.
    scrape = Scrape(page(f"{server.ready.observer}/metrics"))
    assert scrape.value("tickpath_requests_total", code="OK", model=model) == answered["success"]["count"]
    with (tmp_path / "report.csv").open(newline="") as report:
        (row,) = csv.DictReader(report)
    assert row["Concurrency"] == str(IN_FLIGHT)
    assert float(row["Server Compute Infer"]) > 0


def measure(server: RunningServer, model: str, protocol: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """One run of perf_analyzer, IN_FLIGHT requests at a time. Its random inputs are random bits, so some are NaN, which
    the server refuses: it gets numbers of ours."""
    inputs = folder / "inputs"
    inputs.mkdir()
    (inputs / "x").write_bytes(np.random.default_rng(1).random(INPUT_BYTES[model] // 4, np.float32).tobytes())
    address = oip(server) if protocol == "http" else server.ready.oip_grpc
    command = [str(PERF_ANALYZER), "-m", model, "-i", protocol, "-u", str(address), "--input-data", str(inputs)]
    command += ["--concurrency-range", str(IN_FLIGHT), "--measurement-interval", str(WINDOW_MS)]
    command += ["--stability-percentage", str(AGREEMENT_PERCENT), "-f", str(folder / "report.csv")]
    (libraries,) = (ROOT / "build/clients/lib").glob("python*/site-packages/nvidia/cuda_runtime/lib")
    environment = os.environ | {"LD_LIBRARY_PATH": str(libraries)}
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=environment)


def counts(report: str) -> tuple[int, int]:
    """Requests that it saw answered, and that the server told it of."""
    by_client = re.search(r"Request count: (\d+)", report)
    by_server = re.search(r"Successful request count: (\d+)", report)
    assert by_client is not None, report
    assert by_server is not None, report
    return int(by_client[1]), int(by_server[1])


def statistics(server: RunningServer, model: str) -> dict[str, dict[str, int]]:
    """The door's own, of one model."""
    status, answer = ask(server, f"v2/models/{model}/stats")
    assert status == 200, answer
    found: dict[str, dict[str, int]] = answer["model_stats"][0]["inference_stats"]
    return found
