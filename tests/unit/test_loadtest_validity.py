"""What a run says, and when it is INVALID, where arithmetic knows the answer: a queue in simulated time."""

from dataclasses import replace

import numpy as np
import pytest
from tests.runs import make_run
from tests.simulated import on_time, one_at_a_time, run_of

from tickpath.loadtest.latency import summarise
from tickpath.loadtest.run import INTERRUPTED, LOST, PENDING, SKIPPED, UNSENT, Run
from tickpath.loadtest.schedule import Constant, Poisson
from tickpath.loadtest.validity import invalid
from tickpath.wire import Code

FREEZE_NS = (4_000_000_000, 6_000_000_000)
SERVICE_NS = 100_000
OFFSETS_NS = Constant(500, 10).offsets_ns()
FIXED_NS = np.full(len(OFFSETS_NS), SERVICE_NS)


def test_a_freeze_of_two_seconds_in_ten() -> None:
    """1,000 of 5,000 requests come during the freeze. The first of them waits 2 s, and each after it 2 ms less, as it
    comes later, and 100 µs more for the one before it. p99 is rank 4,950 of 5,000: 50 are slower. Three quarters meet
    nothing of it."""
    run = on_time(OFFSETS_NS, FIXED_NS, FREEZE_NS)
    summary = summarise(run.latency_ns())
    apart_ns = 2_000_000 - SERVICE_NS
    assert summary.max_ns == 2_000_000_000 + SERVICE_NS
    assert summary.p99_ns == 2_000_000_000 + SERVICE_NS - 50 * apart_ns
    assert summary.p50_ns == SERVICE_NS
    assert np.quantile(run.latency_ns(), 0.75, method="inverted_cdf") == SERVICE_NS
    assert summary.p90_ns == 2_000_000_000 + SERVICE_NS - 500 * apart_ns
    assert invalid(run) == ()


def test_who_waits_for_answers_does_not_see_the_freeze() -> None:
    """The corrected figures are the same; the uncorrected ones show one slow request, and that the sender was late
    shows as INVALID."""
    run = one_at_a_time(OFFSETS_NS, FIXED_NS, FREEZE_NS)
    assert np.array_equal(run.latency_ns(), on_time(OFFSETS_NS, FIXED_NS, FREEZE_NS).latency_ns())
    uncorrected = summarise(run.uncorrected_ns())
    assert (uncorrected.p50_ns, uncorrected.p99_ns, uncorrected.p999_ns) == (SERVICE_NS,) * 3
    assert uncorrected.max_ns == 2_000_000_000 + SERVICE_NS
    assert invalid(run) == (
        "the sender was late: 1,050,000.0 of the p90 of 1,050,100.0 µs are its own; "
        "lower the rate, or give it a core of its own",
    )


def test_poisson_arrivals_at_an_exponential_server_wait_as_queueing_theory_has_it() -> None:
    """M/M/1: the time to the answer is exponential with the mean 1 / (served - arriving)."""
    rng = np.random.default_rng(1)
    offsets_ns = Poisson(6000, 60, seed=1).offsets_ns()
    service_ns = np.rint(rng.exponential(1e9 / 10_000, len(offsets_ns))).astype(np.int64)
    summary = summarise(on_time(offsets_ns, service_ns).latency_ns())
    mean_ns = 1e9 / (10_000 - 6000)
    assert summary.mean_ns == pytest.approx(mean_ns, rel=0.05)
    assert summary.p50_ns == pytest.approx(mean_ns * np.log(2), rel=0.05)
    assert summary.p99_ns == pytest.approx(mean_ns * np.log(100), rel=0.1)
    assert summary.p999_ns == pytest.approx(mean_ns * np.log(1000), rel=0.15)


def test_poisson_arrivals_at_a_fixed_server() -> None:
    """M/D/1: the mean wait is half of that at an exponential one."""
    offsets_ns = Poisson(6000, 60, seed=2).offsets_ns()
    run = on_time(offsets_ns, np.full(len(offsets_ns), 100_000))
    assert run.latency_ns().mean() == pytest.approx(100_000 * (1 + 0.6 / (2 * (1 - 0.6))), rel=0.05)


def test_two_kinds_of_requests() -> None:
    """One in 50 takes 1 ms instead of 100 µs, and the gaps are long enough for either."""
    service_ns = np.where(np.arange(len(OFFSETS_NS)) % 50 == 49, 1_000_000, SERVICE_NS)
    summary = summarise(on_time(OFFSETS_NS, service_ns).latency_ns())
    assert (summary.p50_ns, summary.p95_ns, summary.p99_ns) == (SERVICE_NS, SERVICE_NS, 1_000_000)


def late_by(late_ns: int, share: float, service_ns: int = SERVICE_NS) -> Run:
    """A share of the requests leave late, spread over the run."""
    count = len(OFFSETS_NS)
    late = np.random.default_rng(3).permutation(count) < share * count
    sent_ns = OFFSETS_NS + np.where(late, late_ns, 0)
    return run_of(OFFSETS_NS, sent_ns, sent_ns + service_ns)


@pytest.mark.parametrize(
    ("run", "percentile"),
    [
        (late_by(11_000, share=0.4), None),  # the median is not among them, p99 is: 11 of 111 µs
        (late_by(12_000, share=0.4), "p90"),
        (late_by(1_000_000, share=0.06), "p95"),
        (late_by(12_000, share=0.6), "p50"),
        (late_by(1_000_000, share=0.009), None),  # beyond p99; p99.9 of 5,000 is thin
        (late_by(1_000_000, share=0.011), "p99"),
        (late_by(5_000, share=1, service_ns=10_000), None),  # what a sender takes for itself
        (late_by(5_001, share=1, service_ns=10_000), "p50"),
        (late_by(1_000_000, share=1, service_ns=50_000_000), None),  # 1 of 51 ms
    ],
)
def test_lateness_counts_where_it_moves_a_percentile(run: Run, percentile: str | None) -> None:
    reasons = invalid(run)
    assert [f"of the {percentile} of" in reason for reason in reasons] == [True] * (percentile is not None)


def test_a_closed_loop_that_was_left_waiting_is_invalid() -> None:
    """One request never answered is few, and may be most of the time."""
    offsets_ns = Constant(1000, 5).offsets_ns()
    run = run_of(offsets_ns, offsets_ns, offsets_ns + SERVICE_NS)
    run.rows["code"][-1], run.rows["done_ns"][-1] = PENDING, 0
    assert invalid(run) == ()
    assert "never answered" in invalid(replace(run, open_loop=False))[0]


def test_lateness_counts_in_a_p999_that_is_not_thin() -> None:
    offsets_ns = Constant(1000, 10).offsets_ns()
    sent_ns = offsets_ns + np.where(np.arange(10_000) % 500 == 7, 1_000_000, 0)
    assert "of the p99.9 of" in invalid(run_of(offsets_ns, sent_ns, sent_ns + SERVICE_NS))[0]


def ended(code: int, count: int, ending: str = "complete") -> Run:
    """Latencies of 1, 2, ... 1,000 µs, and `count` more requests that ended with `code`."""
    offsets_ns = Constant(1000, 1 + count / 1000).offsets_ns()
    codes = np.zeros(len(offsets_ns), np.int32)
    codes[1000:] = code
    done_ns = offsets_ns + 1000 * (1 + np.arange(len(offsets_ns)))
    return run_of(offsets_ns, offsets_ns, done_ns, codes, "interrupted" if ending == "interrupted" else "complete")


@pytest.mark.parametrize(
    ("code", "word"), [(SKIPPED, "skipped"), (PENDING, "pending"), (LOST, "lost"), (UNSENT, "unsent")]
)
def test_what_was_not_measured_counts_as_slow(code: int, word: str) -> None:
    """p99 of 1,000 is 990 µs. With ten more that never ended it would be rank 1,000 of 1,010: 1,000 µs. With eleven
    it is one of those."""
    assert invalid(ended(code, 10)) == ()
    (reason,) = invalid(ended(code, 11))
    assert reason.startswith(f"11 requests were not measured (11 {word}): the p99 may be far higher")
    assert ("--connections" in reason) == (code == SKIPPED)


def test_what_an_interrupted_run_did_not_come_to_is_not_missing() -> None:
    assert invalid(ended(UNSENT, 500, "interrupted")) == ()
    assert invalid(ended(INTERRUPTED, 500, "interrupted")) == ()
    assert invalid(ended(PENDING, 11, "interrupted")) != ()


def test_errors_are_results() -> None:
    assert invalid(ended(Code.OVERLOADED, 500)) == ()


def test_nothing_was_answered() -> None:
    run = run_of(OFFSETS_NS, OFFSETS_NS, OFFSETS_NS, np.full(len(OFFSETS_NS), Code.OVERLOADED, np.int32))
    assert invalid(run) == ("no request was answered: 5,000 ended with an error",)
    empty = np.array([], np.int64)
    assert invalid(run_of(empty, empty, empty)) == ("no request was answered: none was sent",)


def test_a_lost_server() -> None:
    done_ns = OFFSETS_NS + SERVICE_NS
    run = run_of(OFFSETS_NS, OFFSETS_NS, done_ns, ending="server lost", reason="connection reset after 3 s")
    assert invalid(run) == ("the server was lost: connection reset after 3 s",)
    killed = replace(run, ending="sender lost", reason="it ended with -9 and said nothing")
    assert invalid(killed) == ("the sender was lost: it ended with -9 and said nothing",)


def test_answers_to_nothing_that_was_asked() -> None:
    run = replace(on_time(OFFSETS_NS, FIXED_NS), unasked=3)
    assert invalid(run) == ("3 answers came to nothing that was in flight: mend the target",)


@pytest.mark.parametrize("mark", [0, 2, 5])
@pytest.mark.parametrize("told_ns", [-(1 << 63), 0, (1 << 63) - 1])
def test_stamps_that_can_not_be(mark: int, told_ns: int) -> None:
    """The stages are the target's own word: they go forward, and take no longer than the answer did."""
    run = make_run()
    assert invalid(run) == ()
    run.rows["stamps_ns"][:7, mark] = told_ns
    assert invalid(run) == ("7 answers came with stamps that go back or take longer than the answer: mend the target",)


def test_a_server_whose_clock_is_a_little_faster_is_believed() -> None:
    run = make_run()
    first_ns = run.rows["stamps_ns"][:, :1]
    run.rows["stamps_ns"] = first_ns + (run.rows["stamps_ns"] - first_ns) * 1.0001
    assert invalid(run) == ()
