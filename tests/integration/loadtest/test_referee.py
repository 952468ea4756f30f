"""MLPerf's LoadGen on a server of known behaviour: it finds what is known, and ends whatever the server does."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.reference_server import Behaviour, ReferenceServer, reference_server

from tickpath.client import ConnectError
from tickpath.loadtest.command import INVALID
from tickpath.loadtest.errors import LoadTestError
from tickpath.loadtest.goodput import parse_slo
from tickpath.loadtest.referee import QUERIES_MAX, SCENARIOS, Case, Ruling, rule
from tickpath.loadtest.target import Options
from tickpath.loadtest.tickpath_target import TickpathTarget

loadgen = pytest.importorskip("tickpath.loadtest.loadgen", reason="mlcommons-loadgen is not installed")

DELAY_NS = 20_000_000
SECONDS = 1.0
RATE_HZ = 100.0
SLO = parse_slo("p99=1s")
ANSWER_S = 0.5
REFEREE = (sys.executable, "-m", "tickpath.cli", "loadtest", "referee")
BROKEN_TARGET = """
from tickpath.loadtest.tickpath_target import TickpathTarget

class Broken(TickpathTarget):
    def dialogue(self):
        dialogue = super().dialogue()
        sound = dialogue.received

        def received(byte_count):
            if dialogue.ready:
                raise RuntimeError("this target is broken")
            return sound(byte_count)

        dialogue.received = received
        return dialogue
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceServer]:
    with reference_server(tmp_path_factory.mktemp("reference"), Behaviour(delays_ns=(1_000_000,))) as running:
        yield running


def ruling_on(folder: Path, behaviour: Behaviour, scenario: str) -> Ruling:
    """LoadGen's word on a reference server that behaves so."""
    with reference_server(folder, behaviour) as server:
        subject = loadgen.SocketSubject(TickpathTarget(Options(server.address)), server.address, ANSWER_S)
        ruling: Ruling = loadgen.judge(subject, scenario, SLO, RATE_HZ, SECONDS)
        return ruling


@pytest.mark.parametrize("scenario", ["SingleStream", "Server"])
def test_a_fixed_delay_is_what_loadgen_finds(tmp_path: Path, scenario: str) -> None:
    start_ns = time.monotonic_ns()
    found = ruling_on(tmp_path, Behaviour(delays_ns=(DELAY_NS,)), scenario)
    elapsed_ns = time.monotonic_ns() - start_ns
    assert DELAY_NS <= found.p50_ns <= found.p99_ns <= found.p999_ns
    assert found.failed == 0
    if scenario == "Server":
        expected = SECONDS * RATE_HZ
        assert 0.5 * expected < found.count < 1.5 * expected  # a Poisson count of 100 is, but once in a million
    else:  # One after the other, and half of them took as long as p50 or longer.
        assert found.count // 2 * found.p50_ns <= elapsed_ns
        assert 0 < found.count <= elapsed_ns / DELAY_NS


def test_refusals_are_counted(tmp_path: Path) -> None:
    found = ruling_on(tmp_path, Behaviour(refused=10), "Server")
    assert found.failed == found.count // 10
    assert found.problems[0] == f"{found.failed} of {found.count} requests had no prediction"


@pytest.mark.parametrize("scenario", ["SingleStream", "Server"])
def test_a_second_answer_comes_to_nothing(tmp_path: Path, scenario: str) -> None:
    found = ruling_on(tmp_path, Behaviour(delays_ns=(1_000_000,), twice=10), scenario)
    assert found.count > 20
    assert found.failed == 0
    problem = found.problems[0]
    assert problem.endswith(" came to nothing that was in flight")
    assert found.count // 10 - 1 <= int(problem.split()[0]) <= found.count // 10


@pytest.mark.parametrize("scenario", ["SingleStream", "Server"])
def test_an_answer_that_never_comes_is_given_up(tmp_path: Path, scenario: str) -> None:
    found = ruling_on(tmp_path, Behaviour(delays_ns=(1_000_000,), never=10), scenario)
    assert found.failed >= found.count // 10 > 0
    assert f"{found.failed} of {found.count} requests had no prediction" in found.problems


@pytest.mark.parametrize("scenario", ["SingleStream", "Server"])
def test_a_server_that_dies_ends_the_test(tmp_path: Path, scenario: str) -> None:
    found = ruling_on(tmp_path, Behaviour(delays_ns=(1_000_000,), dies_at=20), scenario)
    assert found.failed >= found.count - 20 > 0
    assert "the server closed the connection" in found.problems


def test_null_answers_all(tmp_path: Path) -> None:
    found = loadgen.judge(loadgen.NullSubject(), "Server", SLO, RATE_HZ, SECONDS)
    assert found.subject == "null"
    assert found.failed == 0
    assert found.count > 0


def test_no_server_is_one_line() -> None:
    with pytest.raises(ConnectError):
        loadgen.SocketSubject(TickpathTarget(Options("127.0.0.1:1")), "127.0.0.1:1")


def test_the_command_rules_on_both_scenarios_beside_null(server: ReferenceServer) -> None:
    command = [*REFEREE, "--at", server.address, "--rate", "100", "--duration", "0.2", "--slo", "p50=1s"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode in (0, INVALID), done.stderr
    assert ("INVALID" in done.stdout) == (done.returncode == INVALID)
    rows = [line.split() for line in done.stdout.splitlines() if " of " in line and "ALID" in line]
    assert [row[:3] for row in rows if row[0] != "INVALID:"] == [
        [scenario, "of", subject] for scenario in SCENARIOS for subject in ("null", "reference")
    ]


def test_ctrl_c_ends_it_with_one_line(server: ReferenceServer) -> None:
    """Also within LoadGen, which an exception would take along."""
    command = [*REFEREE, "--at", server.address, "--duration", "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for_loadgen(process)
            process.send_signal(signal.SIGINT)
            said, complained = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, said) == (1, "")
    assert complained == "tickpath: interrupted before LoadGen had ruled on anything\n"


def wait_for_loadgen(command: "subprocess.Popen[str]") -> None:
    """Until it has opened its log."""
    children = Path(f"/proc/{command.pid}/task/{command.pid}/children")
    while True:
        assert command.poll() is None
        with suppress(FileNotFoundError):  # what was listed may be closed by now
            files = [file for child in children.read_text().split() for file in Path(f"/proc/{child}/fd").iterdir()]
            if any("mlperf_log_detail" in str(file.readlink()) for file in files):
                return


def case_of(server: ReferenceServer, target: str = "tickpath", rate_hz: float = RATE_HZ) -> Case:
    return Case("Server", False, target, Options(server.address), "p99=1s", rate_hz, SECONDS)


def test_a_target_that_breaks_ends_loadgen(
    server: ReferenceServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_target.py").write_text(BROKEN_TARGET)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(LoadTestError, match="LoadGen ended with code 1: RuntimeError: this target is broken"):
        rule(case_of(server, "broken_target:Broken"))


def test_what_loadgen_has_no_memory_for_is_refused(server: ReferenceServer) -> None:
    with pytest.raises(LoadTestError, match="a lower --rate or a shorter --duration"):
        case_of(server, rate_hz=QUERIES_MAX + 1)
