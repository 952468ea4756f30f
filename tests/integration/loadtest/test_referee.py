"""MLPerf's LoadGen on a server of known behaviour: it finds what is known, and ends whatever the server does."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.reference_server import Behaviour, reference_server

from tickpath.client import ConnectError
from tickpath.loadtest.goodput import parse_slo
from tickpath.loadtest.target import Options
from tickpath.loadtest.tickpath_target import TickpathTarget

if TYPE_CHECKING:
    from tickpath.loadtest.loadgen import Ruling

loadgen = pytest.importorskip("tickpath.loadtest.loadgen", reason="mlcommons-loadgen is not installed")

DELAY_NS = 20_000_000
SECONDS = 1.0
RATE_HZ = 100.0
SLO = parse_slo("p99=1s")


def ruling_on(folder: Path, behaviour: Behaviour, scenario: str) -> "Ruling":
    """LoadGen's word on a reference server that behaves so."""
    with reference_server(folder, behaviour) as server:
        subject = loadgen.SocketSubject(TickpathTarget(Options(server.address)), server.address)
        ruling: Ruling = loadgen.judge(subject, scenario, SLO, RATE_HZ, SECONDS)
        return ruling


@pytest.mark.parametrize("scenario", ["SingleStream", "Server"])
def test_a_fixed_delay_is_what_loadgen_finds(tmp_path: Path, scenario: str) -> None:
    found = ruling_on(tmp_path, Behaviour(delays_ns=(DELAY_NS,)), scenario)
    assert DELAY_NS <= found.p50_ns < 2 * DELAY_NS  # as much again for a machine that is busy with other things
    assert found.p50_ns <= found.p99_ns <= found.p999_ns
    assert found.failed == 0
    expected = SECONDS * RATE_HZ if scenario == "Server" else SECONDS * 1e9 / DELAY_NS
    assert 0.5 * expected < found.count < 1.5 * expected  # a Poisson count of 100 is within 50 % but once in a million


def test_refusals_are_counted(tmp_path: Path) -> None:
    found = ruling_on(tmp_path, Behaviour(refused=10), "Server")
    assert found.failed == found.count // 10
    assert not found.valid


@pytest.mark.parametrize("scenario", ["SingleStream", "Server"])
def test_a_server_that_dies_ends_the_test(tmp_path: Path, scenario: str) -> None:
    found = ruling_on(tmp_path, Behaviour(delays_ns=(1_000_000,), dies_at=20), scenario)
    assert found.failed >= found.count - 20 > 0
    assert not found.valid


def test_null_answers_all(tmp_path: Path) -> None:
    found = loadgen.judge(loadgen.NullSubject(), "Server", SLO, RATE_HZ, SECONDS)
    assert found.subject == "null"
    assert found.failed == 0
    assert found.count > 0


def test_no_server_is_one_line() -> None:
    with pytest.raises(ConnectError):
        loadgen.SocketSubject(TickpathTarget(Options("127.0.0.1:1")), "127.0.0.1:1")
