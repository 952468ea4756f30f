"""Runs that are ended early, or whose sender is: what was measured is kept, and says whose fault it was."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.processes import children
from tests.reference_server import Behaviour, ReferenceServer, reference_server

from tickpath.loadtest.rows import Rows
from tickpath.loadtest.run import INTERRUPTED, LOST, OK, PENDING, Run
from tickpath.loadtest.runner import ClosedLoop, Load, measure
from tickpath.loadtest.schedule import Constant, Schedule
from tickpath.loadtest.target import Options
from tickpath.loadtest.validity import invalid
from tickpath.loadtest.words import counted

MS = 1_000_000
HOLD_S = 0.4


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceServer]:
    """20 ms for each answer."""
    with reference_server(tmp_path_factory.mktemp("reference"), Behaviour(delays_ns=(20 * MS,))) as running:
        yield running


def once(act: Callable[[], None], after: int) -> Callable[[Rows], None]:
    """Progress that acts when so many requests were sent."""
    done = threading.Event()

    def told(reached: Rows) -> None:
        if len(reached) > after and not done.is_set():
            done.set()
            act()

    return told


def interrupt() -> None:
    """As Ctrl-C does."""
    raise KeyboardInterrupt


def sender_pid() -> int:
    """Of the sender that runs now."""
    (found,) = (
        pid for pid in children(os.getpid()) if b"tickpath.loadtest.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    return found


def run_until(server: ReferenceServer, loop: Schedule | ClosedLoop, act: Callable[[], None], after: int = 30) -> Run:
    """`act` once more than `after` requests were sent."""
    load = Load(Options(server.address), loop, warmup=0, in_flight_max=32)
    return measure(replace(load, told=once(act, after)))


@pytest.mark.parametrize("loop", [ClosedLoop(4, 60), Constant(150, 60)], ids=["closed", "open"])
def test_what_was_in_flight_at_ctrl_c_is_nobodys_fault(tmp_path: Path, loop: Schedule | ClosedLoop) -> None:
    """Every tenth answer comes twice, and that to request 4 never: one is in flight whenever it ends."""
    behaviour = Behaviour(delays_ns=(20 * MS,), twice=10, never_at=4)
    with reference_server(tmp_path, behaviour) as server:
        run = run_until(server, loop, interrupt)
    assert (run.ending, run.interrupted) == ("interrupted", True)
    assert 0 < run.count(INTERRUPTED) == np.count_nonzero((run.rows["sent_ns"] > 0) & (run.rows["done_ns"] == 0))
    assert run.rows["code"][4] == INTERRUPTED
    assert (run.count(PENDING), run.count(LOST)) == (0, 0)
    assert run.count(OK) > 20
    assert run.unasked > 0
    assert run.reason.startswith(
        f"stopped early by Ctrl-C; {counted(run.count(INTERRUPTED), 'request')} in flight, the longest"
    )
    judged = " ".join(invalid(run))
    assert "not measured" not in judged
    assert "never answered" not in judged
    assert run.rows["done_ns"].max() - run.rows["intended_ns"].min() <= run.span_ns < 50e9


def test_a_server_that_kept_all_waiting_shows_when_it_is_interrupted(tmp_path: Path) -> None:
    with reference_server(tmp_path, Behaviour(never=1)) as silent:
        run = run_until(silent, ClosedLoop(4, 60), interrupt, after=3)
    assert run.count(INTERRUPTED) == len(run.rows) == 4
    assert "4 requests in flight, the longest for" in run.reason
    assert invalid(run) == ("no request was answered: 4 interrupted",)


def test_a_sender_that_is_killed_leaves_what_it_had_measured(server: ReferenceServer) -> None:
    run = run_until(server, ClosedLoop(4, 60), lambda: os.kill(sender_pid(), signal.SIGKILL))
    assert (run.ending, run.interrupted) == ("sender lost", False)
    assert run.reason == "it ended with -9 and said nothing"
    assert run.count(OK) > 20
    assert (run.answered["done_ns"] > run.answered["sent_ns"]).all()
    assert 0 < run.span_ns < 50e9
    assert "the sender was lost: it ended with -9 and said nothing" in invalid(run)


@pytest.mark.parametrize("loop", [ClosedLoop(1, 1), Constant(50, 1)], ids=["closed", "open"])
def test_a_sender_that_is_held_up_does_not_blame_the_server(
    server: ReferenceServer, loop: Schedule | ClosedLoop
) -> None:
    """Stopped for 0.4 s of 1: whatever was answered meanwhile was read after it, and p99 of so few is the slowest."""

    def hold() -> None:
        pid = sender_pid()
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(HOLD_S, os.kill, (pid, signal.SIGCONT)).start()

    run = run_until(server, loop, hold, after=0)
    spans_ns = run.gaps["end_ns"] - run.gaps["start_ns"]
    assert spans_ns.max() > 0.9 * HOLD_S * 1e9
    assert (run.held_ns() <= run.uncorrected_ns()).all()
    assert run.held_ns().max() > 0
    assert any("the sender was held up" in reason or "the sender was late" in reason for reason in invalid(run))
    if isinstance(loop, ClosedLoop):
        assert run.held_ns().max() > 0.9 * HOLD_S * 1e9
        assert run.lateness_ns().max() == 0
