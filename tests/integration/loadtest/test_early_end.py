"""Ranges, searches and comparisons that can't be made to their end keep what was measured, and say what was not."""

import csv
import io
import json
import os
import pty
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.loadtests import LOADTEST, run, start, wait_for_answers, wait_for_sender
from tests.processes import free_port
from tests.reference_server import Behaviour, ReferenceServer, reference_server

from tickpath.loadtest.command import INVALID, UNFINISHED

WARMUP = 5
MS = 1_000_000
# So long that a busy machine's delays are small beside it, and a run is valid there too.
DELAY_NS = 60 * MS
RANGE = ("--rate", "100:300:100", "--duration", "0.4", "--warmup", str(WARMUP))
FIRST, SECOND, THIRD = (f"constant {rate_hz}/s" for rate_hz in (100, 200, 300))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ReferenceServer]:
    with reference_server(tmp_path, Behaviour(), [DELAY_NS]) as running:
        yield running


def endings(text: str) -> dict[str, tuple[str, str]]:
    """Of each line of a CSV report, by its schedule: what verdict and what ending."""
    lines = csv.DictReader(io.StringIO(text))
    return {line["schedule"]: (line["verdict"], line["ending"]) for line in lines}


def test_after_a_server_that_dies_in_a_range_nothing_is_run(tmp_path: Path) -> None:
    """It dies at the 50th request of a run; the first has 40 and its warm-up."""
    with reference_server(tmp_path, Behaviour(dies_at=WARMUP + 50), [MS]) as dying:
        done = run("--at", dying.address, *RANGE, "--csv", "-")
    assert done.returncode == UNFINISHED
    told = endings(done.stdout)
    assert list(told) == [FIRST, SECOND, THIRD]
    assert told[FIRST][1] == "complete"
    assert told[SECOND][0] == "INVALID"
    assert told[SECOND][1].startswith("server lost: ")
    assert told[THIRD][0] == "not run"
    assert told[THIRD][1].startswith("not run: the server was lost: ")
    assert f"NOT RUN: {THIRD}" in done.stderr


def test_a_run_that_can_not_begin_leaves_those_before_it(server: ReferenceServer, tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    with start("--at", server.address, *RANGE, "--json", str(report)) as command:
        wait_for_answers(command, WARMUP + 40)
        server.process.kill()
        said, complained = command.communicate(timeout=60)
    assert (command.returncode, complained) == (UNFINISHED, "")
    document = json.loads(report.read_bytes())
    assert [found["requests"]["answered"] for found in document["runs"]] == [40]
    assert document["not_run"]["schedules"] == [SECOND, THIRD]
    assert "Connection refused" in document["not_run"]["reason"]
    assert f"NOT RUN: {SECOND}, {THIRD}" in said


def test_ctrl_c_while_a_later_run_begins_leaves_those_before_it(tmp_path: Path) -> None:
    with (
        reference_server(tmp_path, Behaviour(greets=1)) as silent,
        start("--at", silent.address, *RANGE, "--csv", "-") as command,
    ):
        first = wait_for_answers(command, WARMUP + 40)
        wait_for_sender(command, first)
        command.send_signal(signal.SIGINT)
        said, _ = command.communicate(timeout=60)
    assert command.returncode == UNFINISHED
    told = endings(said)
    assert told[FIRST][1] == "complete"
    assert told[SECOND] == told[THIRD] == ("not run", "not run: stopped by Ctrl-C")


def test_ctrl_c_within_a_range_says_what_was_not_run(server: ReferenceServer) -> None:
    shared = ("--rate", "100:300:100", "--duration", "30", "--warmup", str(WARMUP))
    with start("--at", server.address, *shared, "--csv", "-") as command:
        wait_for_answers(command, WARMUP + 20)
        command.send_signal(signal.SIGINT)
        said, shown = command.communicate(timeout=60)
    assert command.returncode == UNFINISHED
    told = endings(said)
    assert told[FIRST][1].startswith("interrupted: stopped early by Ctrl-C")
    assert told[SECOND] == told[THIRD] == ("not run", f"not run: {told[FIRST][1]}")
    assert f"NOT RUN: {SECOND}, {THIRD}" in shown


def test_nothing_to_report_is_one_line() -> None:
    done = run("--at", f"127.0.0.1:{free_port()}", *RANGE)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "Connection refused" in done.stderr


SEARCH = ("--slo", "p50=1s", "--rate", "100", "--duration", "0.5", "--warmup", str(WARMUP))


def test_an_interrupted_search_tells_the_best_rate_so_far(tmp_path: Path) -> None:
    # Of 32 requests each, seven connections hold the 200 that 2 s of 100/s are.
    with (
        reference_server(tmp_path, Behaviour(greets=7), [DELAY_NS]) as silent,
        start("--at", silent.address, *SEARCH, "--json", "-") as command,
    ):
        first = wait_for_sender(command)
        wait_for_sender(command, first)
        command.send_signal(signal.SIGINT)
        said, shown = command.communicate(timeout=60)
    assert command.returncode == UNFINISHED
    document = json.loads(said)
    assert [found["ending"] for found in document["runs"]] == ["complete"]
    assert document["runs"][0]["connections"] == 7
    assert document["not_run"]["schedules"] == ["the rest of the search for p50 <= 1,000,000 µs"]
    verdict = shown.splitlines()[-1]
    assert "goodput 0/s" not in shown
    if document["runs"][0]["valid"]:  # else the machine was too busy for the sender, and the rate didn't pass
        assert verdict.startswith("goodput at least 100/s, UNCONFIRMED")
    assert verdict.endswith("the search ended early: stopped by Ctrl-C")


def test_a_search_that_skips_says_to_raise_connections(server: ReferenceServer) -> None:
    done = run("--at", server.address, *SEARCH, "--connections", "1", "--in-flight", "2")
    assert done.returncode == INVALID
    assert "as all that 1 connection may have was in flight: raise --connections" in done.stdout.splitlines()[-1]


def test_a_comparison_asks_both_before_it_begins(server: ReferenceServer) -> None:
    absent = f"127.0.0.1:{free_port()}"
    shared = ("--rate", "100", "--warmup", str(WARMUP))
    for b, said in ((absent, "Connection refused"), (server.address, "no model 'other'")):
        done = run("compare", server.address, b, *shared, *(("--model-b", "other") if b == server.address else ()))
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert said in done.stderr
    assert len(server.arrivals_ns()) == 2 * 2  # A's trial, twice: a warm-up of one, and one


def test_a_comparison_that_ends_early_keeps_its_runs(server: ReferenceServer) -> None:
    shared = ("--rate", "100", "--duration", "0.2", "--warmup", str(WARMUP))
    with start("compare", server.address, server.address, *shared) as command:
        first = wait_for_answers(command, WARMUP + 20)
        wait_for_sender(command, first)
        command.send_signal(signal.SIGINT)
        said, complained = command.communicate(timeout=60)
    assert (command.returncode, complained) == (UNFINISHED, "")
    assert "0 blocks of AAAA whole, a comparison takes 10" in " ".join(said.split())
    assert "no comparison" in said


def test_a_terminal_shows_how_far_it_is(server: ReferenceServer) -> None:
    """Which run of how many, the time, the rate and the percentiles of what is answered so far."""
    ours, theirs = pty.openpty()
    arguments = ("--at", server.address, "--rate", "100:200:100", "--duration", "1", "--warmup", str(WARMUP))
    pid = os.posix_spawn(
        LOADTEST[0],
        [*LOADTEST, *arguments],
        os.environ | {"TERM": "xterm", "COLUMNS": "120"},
        file_actions=[(os.POSIX_SPAWN_DUP2, theirs, 2), (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    os.close(theirs)
    shown = _read_to_end(ours)
    os.waitpid(pid, 0)
    assert "run 1 of 2: constant 100/s" in shown
    assert "run 2 of 2: constant 200/s" in shown
    assert "connecting and warming up" in shown
    assert "/1.0 s" in shown
    told = re.findall(r"/s  p50 ([\d,]+) p99 [\d,]+ µs", shown)
    assert told
    assert all(int(p50.replace(",", "")) >= DELAY_NS / 1000 for p50 in told)


def _read_to_end(terminal: int) -> str:
    """Until nobody holds its other side."""
    shown = b""
    while True:
        try:
            shown += os.read(terminal, 65536)
        except OSError:
            os.close(terminal)
            return shown.decode()
