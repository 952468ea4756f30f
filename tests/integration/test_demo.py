"""The demo from start to end: it measures, it tells, it leaves nothing behind, and Ctrl-C ends it well."""

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

DEMO = (sys.executable, "-m", "tickpath.cli", "demo")
FLOOR_SOURCE = Path(__file__).parents[2] / "bench" / "floor.c"


@pytest.fixture(scope="module")
def floor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which(os.environ.get("CC", "gcc"))
    if compiler is None:
        pytest.skip("no C compiler: set CC")
    binary = tmp_path_factory.mktemp("floor") / "floor"
    subprocess.run([compiler, "-O2", "-std=gnu11", "-o", str(binary), str(FLOOR_SOURCE)], check=True)
    return binary


def row(text: str, name: str) -> list[float]:
    """The numbers of a table's line."""
    line = next(line for line in text.splitlines() if line.strip().startswith(name))
    return [float(number.replace(",", "")) for number in re.findall(r"[\d,]+\.?\d*", line.replace(name, "", 1))]


def wait_until_answered(metrics: str, count: int) -> None:
    """Until the server says that it has answered `count` requests: the 200 of the warm-up, and some that are
    measured."""
    answered = 0.0
    while answered < count:
        with urllib.request.urlopen(metrics, timeout=10) as response:
            lines = str(response.read(), "utf-8").splitlines()
        totals = [line for line in lines if line.startswith("tickpath_requests_total{")]
        answered = sum(float(line.rsplit(" ", 1)[1]) for line in totals)


def test_a_short_demo(floor: Path) -> None:
    done = subprocess.run(
        [*DEMO, "--seconds", "1", "--rate", "400", "--floor", str(floor)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    p50, p90, p99, p999, most, samples = row(done.stdout, "latency")
    assert 0 < p50 <= p90 <= p99 <= p999 <= most
    # Where the machine is too busy for all to be sent, it says how many were answered.
    assert 0 < samples <= 400
    assert (f"Only {samples:.0f} were answered" in done.stdout) == (samples < 400)
    assert "thin" in done.stdout
    assert row(done.stdout, "C floor")[-1] == 800
    (added,), round_trip = row(done.stdout, "all stages added"), row(done.stdout, "round trip")
    assert added == pytest.approx(row(done.stdout.split("Stages")[1], "round trip")[-1], abs=0.11)
    assert round_trip[-1] == samples
    assert "x the C floor" in done.stdout
    assert re.search(r"^One prediction: y = \[\[.+\]\]$", done.stdout, re.MULTILINE)
    for quantile in ("0.5", "0.99", "0.999"):
        assert re.search(rf'tickpath_request_latency_seconds{{.*quantile="{quantile}"', done.stdout)
    assert "The server has stopped cleanly." in done.stdout


def test_without_the_floor_it_says_how_to_get_it() -> None:
    done = subprocess.run(
        [*DEMO, "--model", "null", "--seconds", "0.2"], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "make build/floor" in done.stdout


def test_a_floor_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [*DEMO, "--seconds", "0.2", "--floor", str(tmp_path / "none")],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "make build/floor" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_ended_early_it_tells_what_was_measured(ending: signal.Signals) -> None:
    with subprocess.Popen(
        [*DEMO, "--seconds", "60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        said = ""
        for line in demo.stdout:
            said += line
            if line.startswith("Streaming"):
                break
        wait_until_answered(re.findall(r"http://\S+", said)[0], 300)
        demo.send_signal(ending)
        said += demo.stdout.read()
        assert (demo.wait(60), demo.stderr.read()) == (0, "")
    assert "Stopped early" in said
    assert 0 < row(said, "latency")[-1] < 60_000
    assert "The server has stopped cleanly." in said
