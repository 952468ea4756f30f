"""`tickpath loadtest` as people run it: what it prints, what it exits with, and that Ctrl-C keeps what was measured."""

import csv
import io
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.loadtests import LOADTEST, run, start, wait_for_answers
from tests.reference_server import Behaviour, ReferenceServer, reference_server

from tickpath.cli import main
from tickpath.loadtest.command import INVALID
from tickpath.loadtest.run import ROW

MS = 1_000_000
DELAY_NS = 2 * MS


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceServer]:
    with reference_server(tmp_path_factory.mktemp("reference"), Behaviour(), [DELAY_NS]) as running:
        yield running


def test_a_run_for_people_and_for_programs(server: ReferenceServer, tmp_path: Path) -> None:
    done = run(
        *("--at", server.address, "--rate", "400", "--duration", "0.5", "--connections", "2"),
        *("--json", str(tmp_path / "run.json"), "--samples", str(tmp_path / "run.npy")),
    )
    # A machine too busy for the sender makes the run INVALID; what it says then must be the same numbers.
    assert done.returncode in (0, INVALID), done.stderr
    assert ("INVALID" in done.stdout) == (done.returncode == INVALID)
    assert "latency" in done.stdout
    assert json.loads((tmp_path / "run.json").read_bytes())
    rows = np.load(tmp_path / "run.npy")
    assert (rows.dtype, len(rows)) == (ROW, 200)
    assert (rows["done_ns"] - rows["sent_ns"] >= DELAY_NS).all()


def test_whoever_reads_the_table_may_go(server: ReferenceServer, tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    asked = ("--at", server.address, "--rate", "400", "--duration", "0.1", "--json", str(tmp_path / "run.json"))
    with open(theirs, "wb") as gone:
        done = subprocess.run([*LOADTEST, *asked], stdout=gone, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "tickpath: stdout can't be written: Broken pipe\n")
    assert json.loads((tmp_path / "run.json").read_bytes())["runs"][0]["requests"]["meant"] == 40


def test_a_range_of_closed_loops_as_csv(server: ReferenceServer) -> None:
    done = run("--at", server.address, "--concurrency-range", "1:3:2", "--duration", "0.3", "--csv", "-")
    assert done.returncode in (0, INVALID)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["Concurrency"] for row in rows] == ["1", "3"]
    assert all(float(row["p50 latency"]) >= DELAY_NS / 1e3 for row in rows)


def test_no_rate_keeps_what_no_request_can(server: ReferenceServer) -> None:
    """No request is faster than its delay. All of stdout is JSON; what is for people is on stderr."""
    shared = ("--at", server.address, "--rate", "120", "--duration", "0.5", "--warmup", "20")
    impossible = run(*shared, "--slo", "p90=1ms", "--json", "-")
    assert impossible.returncode == INVALID
    assert "goodput 0/s" in impossible.stderr
    found = json.loads(impossible.stdout)
    assert found["goodput"]["rate_hz"] == 0
    assert len(found["goodput"]["probes"]) == len(found["runs"]) > 0


def test_a_comparison_that_was_ended_early_says_what_it_takes(server: ReferenceServer) -> None:
    with start("compare", server.address, server.address, "--rate", "500", "--duration", "30") as process:
        wait_for_answers(process, 200 + 10)
        process.send_signal(signal.SIGINT)
        said, complained = process.communicate(timeout=60)
    assert (process.returncode, said) == (1, "")
    assert complained.startswith("tickpath: interrupted: stopped early by Ctrl-C")
    assert complained.endswith("; 0 blocks of AAAA whole, a comparison takes 10\n")


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ended_early_it_tells_what_was_measured(
    server: ReferenceServer, ending: signal.Signals, tmp_path: Path
) -> None:
    shared = ("--at", server.address, "--rate", "500", "--warmup", "10", "--duration", "60")
    with start(*shared, "--samples", str(tmp_path / "s.npy")) as process:
        wait_for_answers(process, 10 + 50)
        process.send_signal(ending)
        said, complained = process.communicate(timeout=60)
    assert process.returncode in (0, INVALID), complained
    assert "interrupted" in said
    rows = np.load(tmp_path / "s.npy")
    assert 49 < np.count_nonzero(rows["done_ns"]) < 30_000


def test_ended_before_it_began_it_has_nothing_to_tell() -> None:
    """The target takes the connection and never answers: its sender is in the warm-up until it is ended."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        command = [*LOADTEST, "--at", address, "--target", "echo", "--rate", "100"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            accepted, _ = listener.accept()
            with accepted:
                assert accepted.recv(4)
                process.send_signal(signal.SIGINT)
                said, complained = process.communicate(timeout=60)
    assert (process.returncode, said, complained.strip()) == (130, "", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--rate", "100", "--model", "other"), "no model 'other'"),
        (("--rate", "100", "--target", "nowhere:Class"), "'nowhere:Class' can't be imported"),
        (("--replay", "nowhere"), "nowhere can't be read"),
    ],
)
def test_errors_are_one_line(server: ReferenceServer, arguments: tuple[str, ...], said: str) -> None:
    done = run("--at", server.address, *arguments)
    assert (done.returncode, done.stdout) == (1, ""), done
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "--rate R, --concurrency N or --replay FILE; none of them came"),
        ("--rate 10 --concurrency 2", "--rate and --concurrency came"),
        ("--rate 0", "--rate takes a number above zero"),
        ("--rate -1", "--rate takes a number above zero"),
        ("--rate abc", "--rate takes a number"),
        ("--rate 1e-9", "too few for any figure (10 at least): a higher --rate or a longer --duration"),
        ("--concurrency 1 --duration inf", "inf is not in the range"),
        ("--concurrency 1 --duration nan", "'nan' is not finite"),
        ("--rate 100 --drain nan", "'nan' is not finite"),
        ("referee --duration nan", "'nan' is not finite"),
        ("--rate 100 --burst 10", "such as 10:90"),
        ("--rate 100 --target x", "a target is tickpath, echo or module:Class"),
        ("--rate 100 --at 7070", "did you mean 127.0.0.1:7070?"),
        ("--rate 100 --at unix:/run/s --tls-ca ca.pem", "--tls-ca is for tls://HOST:PORT, unix:/run/s came"),
        ("--rate 100 --request-bytes 80", "leave it out"),
        ("--rate 100 --json nowhere/r.json", "there is no folder nowhere"),
        ("--concurrency 2 --connections 3", "fewer --connections"),
        ("--slo p99=250", "like p99=250us"),
        ("--slo p99.9=1ms --duration 1", "give a longer --duration"),
        ("--slo p99=1ms --rate 1e9", "20,000,000 requests at most"),
        ("compare a b:1 --rate 100", "expected host:port"),
        ("compare a:1 b:1 --rate 100:300:100", "not a range"),
        ("compare a:1 b:1 --rate 100 --blocks 5", "x>=6"),
        ("referee --slo p99=1", "like p99=250us"),
        ("--rate 100 compare a:1 b:1", "the flags of compare stand behind it"),
        ("--rate 100 --json - --csv -", "--json and --csv both go to -"),
        ("--rate 100 --json r --csv r", "--json and --csv both go to r"),
        ("--rate 100 --html -", "--html can't go to stdout"),
        (
            "compare a:1 b:1 --rate 100 --json /proc/nothing",
            "/proc/nothing can't be written: No such file or directory",
        ),
    ],
)
def test_usage_errors_are_one_line_and_exit_with_2(
    arguments: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["tickpath", "loadtest", *arguments.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("tickpath: ")
    assert said in err
