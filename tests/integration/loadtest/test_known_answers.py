"""The sender against a server whose every delay is known. What takes longer than its delay took longer for the sender
and the machine; what would take less is a lie."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.reference_server import Behaviour, every, reference_server

from tickpath.loadtest.errors import LoadTestError
from tickpath.loadtest.report.figures import figures
from tickpath.loadtest.run import LOST, OK, PENDING, SKIPPED, UNSENT, Run
from tickpath.loadtest.runner import ClosedLoop, Load, measure
from tickpath.loadtest.schedule import Bursts, Constant, Poisson, Schedule
from tickpath.loadtest.target import Options
from tickpath.wire import Code

MS = 1_000_000
SCHEDULE = Constant(1000, 0.5)
COUNT = 500
RNG = np.random.default_rng(5)
DELAYS_NS = {
    "fixed": np.full(COUNT, 5 * MS),
    "exponential": RNG.exponential(4 * MS, COUNT).astype(np.int64),
    "bimodal": np.where(np.arange(COUNT) % 10 == 9, 30 * MS, MS),
    "out of order": np.where(np.arange(COUNT) % 2 == 0, 9 * MS, 2 * MS),
}


def load(address: str, loop: Schedule | ClosedLoop = SCHEDULE, **changed: Any) -> Load:
    """One without warm-up, so that row i is request i."""
    return replace(Load(Options(address), loop, warmup=0, drain_s=2.0), **changed)


def codes(run: Run) -> dict[int, int]:
    return dict(zip(*(values.tolist() for values in np.unique(run.rows["code"], return_counts=True)), strict=True))


@pytest.mark.parametrize("kind", DELAYS_NS)
def test_no_request_is_said_to_be_faster_than_it_was(kind: str, tmp_path: Path) -> None:
    delays_ns = DELAYS_NS[kind]
    with reference_server(tmp_path, Behaviour(), delays_ns) as server:
        run = measure(load(server.address, connections=3))
        arrivals_ns = server.arrivals_ns()
    assert (run.ending, run.reason, run.unasked, codes(run)) == ("complete", "", 0, {OK: COUNT})
    assert (run.uncorrected_ns() >= delays_ns).all()
    assert (run.latency_ns() >= run.uncorrected_ns()).all()
    assert (run.lateness_ns() >= 0).all()
    assert run.rows["connection"].tolist() == [index % 3 for index in range(COUNT)]
    assert np.array_equal(run.rows["intended_ns"] - run.rows["intended_ns"][0], SCHEDULE.offsets_ns())
    # Sent, came, answered: three clock readings of two processes in this order, for each single request.
    assert (run.rows["sent_ns"] <= run.rows["stamps_ns"][:, 0]).all()
    assert np.array_equal(np.sort(run.rows["stamps_ns"][:, 0]), np.sort(arrivals_ns))
    assert np.array_equal(sum(run.stages_ns().values()), run.uncorrected_ns())
    assert np.array_equal(run.stages_ns()["compute"], delays_ns)
    assert (run.connect_ns > 0).all()


def test_out_of_order_means_out_of_order(tmp_path: Path) -> None:
    with reference_server(tmp_path, Behaviour(), DELAYS_NS["out of order"]) as server:
        run = measure(load(server.address))
    assert (np.diff(run.rows["done_ns"]) < 0).any()


def test_never_answered_is_pending(tmp_path: Path) -> None:
    with reference_server(tmp_path, Behaviour(never=50)) as server:
        run = measure(load(server.address, drain_s=0.2))
    assert codes(run) == {OK: 490, PENDING: 10}
    assert np.flatnonzero(run.rows["code"] == PENDING).tolist() == [i for i in range(COUNT) if every(50, i)]
    assert run.ending == "complete"


def test_a_second_answer_counts_for_nothing_and_is_told(tmp_path: Path) -> None:
    with reference_server(tmp_path, Behaviour(twice=50, delays_ns=(MS,))) as server:
        run = measure(load(server.address))
    assert codes(run) == {OK: COUNT}
    assert run.unasked == 10


def test_refusals_are_counted_by_their_code(tmp_path: Path) -> None:
    with reference_server(tmp_path, Behaviour(refused=5)) as server:
        run = measure(load(server.address))
    assert codes(run) == {OK: 400, Code.BAD_VALUE: 100}
    assert len(run.latency_ns()) == 400


def test_a_full_connection_skips_and_says_so(tmp_path: Path) -> None:
    with reference_server(tmp_path, Behaviour(never=1)) as server:
        run = measure(load(server.address, connections=2, in_flight_max=4, drain_s=0.1))
    assert codes(run) == {PENDING: 8, SKIPPED: COUNT - 8}
    assert (run.rows["code"][:8] == PENDING).all()
    assert (run.rows["sent_ns"][8:] == 0).all()
    assert (run.rows["intended_ns"] > 0).all()


def test_a_server_that_dies_leaves_what_was_measured(tmp_path: Path) -> None:
    """Four are in flight: those three that came before the one of which it dies may have had no answer yet."""
    with reference_server(tmp_path, Behaviour(dies_at=300)) as server:
        run = measure(load(server.address, ClosedLoop(4, 60), connections=2))
    assert run.ending == "server lost"
    assert "the server closed the connection" in run.reason or "the connection broke" in run.reason
    found = codes(run)
    assert found[OK] + found[LOST] == len(run.rows)
    assert 297 <= found[OK] <= 300


def test_what_a_server_that_died_was_not_asked_is_unsent(tmp_path: Path) -> None:
    schedule = Constant(1000, 60)
    with reference_server(tmp_path, Behaviour(dies_at=10)) as server:
        run = measure(load(server.address, schedule, connections=2))
    assert run.ending == "server lost"
    found = codes(run)
    assert found[LOST] > 0
    assert found.get(OK, 0) <= 10
    assert sum(found.values()) == found.get(OK, 0) + found[LOST] + found[UNSENT] == 60_000
    assert np.array_equal(run.rows["intended_ns"] - run.rows["intended_ns"][0], schedule.offsets_ns())


def test_arrivals_are_the_schedule_without_a_burst_at_the_start(tmp_path: Path) -> None:
    """A server that takes its time to greet must not push the schedule together: until no moment did more arrive than
    were meant. What came late was late by what the sender says, and by its way; on any machine some are on time."""
    with reference_server(tmp_path, Behaviour(greeting_s=0.3)) as server:
        run = measure(load(server.address, Constant(2000, 1)))
        arrivals_ns = server.arrivals_ns()
    assert (run.connect_ns > 0.3e9).all()
    assert (arrivals_ns >= run.rows["sent_ns"]).all()
    assert (arrivals_ns <= run.rows["done_ns"]).all()
    assert run.lateness_ns().min() < 0.5 * MS
    edges_ns = run.rows["intended_ns"][0] + np.arange(0, 1_000 * MS + 1, 10 * MS)
    meant, came = (np.histogram(times_ns, edges_ns)[0] for times_ns in (run.rows["intended_ns"], arrivals_ns))
    assert (meant == 20).all()
    assert (np.cumsum(came) <= np.cumsum(meant)).all()


@pytest.mark.parametrize(
    "schedule", [Poisson(1000, 0.5, seed=4), Bursts(4000, 0.01, 0.05, 0.5)], ids=["poisson", "bursts"]
)
def test_any_schedule_is_kept(schedule: Schedule, tmp_path: Path) -> None:
    with reference_server(tmp_path, Behaviour()) as server:
        run = measure(load(server.address, schedule))
    assert codes(run) == {OK: len(schedule.offsets_ns())}
    assert np.array_equal(
        run.rows["intended_ns"] - run.rows["intended_ns"][0], schedule.offsets_ns() - schedule.offsets_ns()[0]
    )
    assert run.schedule == schedule.describe()
    assert run.open_loop


def test_a_closed_loop_keeps_as_many_in_flight_as_it_was_told(tmp_path: Path) -> None:
    with reference_server(tmp_path, Behaviour(delays_ns=(3 * MS, 9 * MS, MS))) as server:
        run = measure(load(server.address, ClosedLoop(6, 0.5), connections=2))
    assert codes(run) == {OK: len(run.rows)}
    assert not run.open_loop
    for connection in (0, 1):
        rows = run.rows[run.rows["connection"] == connection]
        # At the moment of each send: those sent by then, less those done by then.
        in_flight = np.arange(1, len(rows) + 1) - np.searchsorted(np.sort(rows["done_ns"]), rows["sent_ns"], "right")
        assert in_flight.max() == 3
    assert np.array_equal(run.rows["intended_ns"], run.rows["sent_ns"])
    assert len(run.rows) <= 6 * 500 / (13 / 3) + 6


def test_a_closed_loop_asks_them_all_however_short_it_is(tmp_path: Path) -> None:
    """All are sent before the clock is read again, also where no time is left for a second round."""
    with reference_server(tmp_path, Behaviour()) as server:
        run = measure(load(server.address, ClosedLoop(64, 1e-4)))
    assert len(run.rows) in (0, 64)  # none, where the machine took the time away first


def test_time_in_which_a_closed_loop_waits_in_vain_counts(tmp_path: Path) -> None:
    """The fifth request is never answered, and nothing is asked after it: four predictions in all of the time."""
    with reference_server(tmp_path, Behaviour(never=5)) as server:
        run = measure(load(server.address, ClosedLoop(1, 0.5), drain_s=0.1))
    assert codes(run) == {OK: 4, PENDING: 1}
    assert run.span_ns >= 500 * MS
    assert figures(run).completed_hz == 4 / (run.span_ns / 1e9) <= 8


def test_the_span_is_that_of_asking_and_of_the_last_answer(tmp_path: Path) -> None:
    """The wait for one that never comes, which is longer than all of the schedule, is no part of it."""
    with reference_server(tmp_path, Behaviour(never=COUNT, delays_ns=(50 * MS,))) as server:
        run = measure(load(server.address, drain_s=60.0 / 100))
    assert codes(run) == {OK: COUNT - 1, PENDING: 1}
    assert run.span_ns == run.rows["done_ns"].max() - run.rows["intended_ns"][0]


def test_warm_up_is_not_measured(tmp_path: Path) -> None:
    with reference_server(tmp_path, Behaviour()) as server:
        run = measure(load(server.address, warmup=50, connections=2))
        arrivals_ns = server.arrivals_ns()
    assert len(run.rows) == COUNT
    assert len(arrivals_ns) == COUNT + 50
    assert arrivals_ns[49] < run.rows["intended_ns"][0]


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[int] = []
    with reference_server(tmp_path, Behaviour()) as server:
        measure(load(server.address, Constant(500, 1), told=lambda rows: told.append(len(rows))))
    assert told == sorted(told)
    assert 0 < told[-1] <= 500


def test_what_can_not_be_measured_is_one_line(tmp_path: Path) -> None:
    with reference_server(tmp_path, Behaviour(refused=1)) as server:
        with pytest.raises(LoadTestError, match=r"refused every request of the warm-up: BAD_VALUE: not this one"):
            measure(load(server.address, warmup=3))
        with pytest.raises(LoadTestError, match=r"no model 'other' at .*; it serves: 'reference'"):
            measure(Load(Options(server.address, "other"), SCHEDULE))
        with pytest.raises(LoadTestError, match="can't run on core 4000; it may use 0"):
            measure(load(server.address, cpu=4000))
        server.arrivals_ns()
        with pytest.raises(LoadTestError, match=r"can't connect to .*: Connection refused; is the server running"):
            measure(load(server.address))


def test_one_that_dies_while_it_is_warmed_up(tmp_path: Path) -> None:
    with (
        reference_server(tmp_path, Behaviour(dies_at=3)) as server,
        pytest.raises(LoadTestError, match=r"was lost in the warm-up: the server closed"),
    ):
        measure(load(server.address, warmup=10))
