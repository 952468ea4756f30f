"""What the progress line says of rows that are still being written."""

import os
import subprocess
import sys

import numpy as np
import pytest
from tests.runs import START_NS, make_run

from tickpath.loadtest.progress import WINDOW, glance
from tickpath.loadtest.run import PENDING, SKIPPED
from tickpath.wire import Code

S = 1_000_000_000


def test_the_newest_rows_are_told() -> None:
    """What was slow long ago has left the window."""
    run = make_run(count=3 * WINDOW, rate_hz=1000, freeze_s=(0.5, 3.0))
    seen = glance(run.rows, START_NS + 12 * S)
    newest_ns = run.latency_ns()[-WINDOW:]
    assert np.array_equal(seen.latency_ns, np.sort(newest_ns))
    assert seen.latency_ns.max() < run.latency_ns().max()
    assert seen.answered_hz == pytest.approx(1000, rel=0.01)
    p50, p99 = np.quantile(newest_ns, [0.5, 0.99], method="inverted_cdf") / 1000
    assert seen.describe(20) == f"12.0/20.0 s  {seen.answered_hz:,.0f}/s  p50 {p50:.1f} p99 {p99:.1f} µs"


def test_only_what_is_answered_counts() -> None:
    codes = {PENDING: 200, SKIPPED: 100, Code.DEADLINE: 100}
    seen = glance(make_run(count=1000, codes=codes).rows, START_NS + S)
    assert len(seen.latency_ns) == 600
    assert seen.latency_ns.min() > 0


def test_before_the_first_answer_only_time_passes() -> None:
    seen = glance(make_run(count=5, codes={PENDING: 5}).rows, START_NS + 2 * S)
    assert seen.describe(1.5) == "1.5/1.5 s"  # the last answers are waited for
    assert glance(make_run(count=5).rows, START_NS - S).elapsed_s == 0


def test_the_waiting_process_leaves_the_senders_core() -> None:
    cores = os.sched_getaffinity(0)
    taken = min(cores)
    script = (
        "import os\nfrom tickpath.loadtest.progress import leave_core\n"
        "leave_core(None); before = os.sched_getaffinity(0)\n"
        f"leave_core({taken}); print(before, os.sched_getaffinity(0))"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60).stdout
    assert said == f"{cores} {cores - {taken} or cores}\n"
