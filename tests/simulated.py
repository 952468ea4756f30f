"""Runs against servers whose arithmetic is known, in simulated time: one request at a time, in order of arrival."""

import numpy as np
import numpy.typing as npt

from tickpath.loadtest.run import GAP, OK, ROW, Ending, Run

NANOSECONDS = npt.NDArray[np.int64]
START_NS = 5_000_000_000  # of the sender's clock


def answered_at(arrivals_ns: NANOSECONDS, service_ns: NANOSECONDS, freeze_ns: tuple[int, int] = (0, 0)) -> NANOSECONDS:
    """When each of int64[count] arrivals is answered by a server that takes int64[count] for them, and does nothing
    from `freeze_ns[0]` to `freeze_ns[1]`."""
    done_ns = np.empty_like(arrivals_ns)
    free_ns = 0
    begin_ns, end_ns = freeze_ns
    for index, (arrival_ns, span_ns) in enumerate(zip(arrivals_ns.tolist(), service_ns.tolist(), strict=True)):
        start_ns = max(arrival_ns, free_ns)
        if begin_ns <= start_ns < end_ns:
            start_ns = end_ns
        free_ns = start_ns + span_ns
        if start_ns < begin_ns < free_ns:
            free_ns += end_ns - begin_ns
        done_ns[index] = free_ns
    return done_ns


def one_at_a_time(arrivals_ns: NANOSECONDS, service_ns: NANOSECONDS, freeze_ns: tuple[int, int]) -> Run:
    """What a sender measures that waits for each answer before it sends again."""
    done_ns = answered_at(arrivals_ns, service_ns, freeze_ns)
    sent_ns = np.maximum(arrivals_ns, np.concatenate(([0], done_ns[:-1])))
    return run_of(arrivals_ns, sent_ns, done_ns)


def on_time(arrivals_ns: NANOSECONDS, service_ns: NANOSECONDS, freeze_ns: tuple[int, int] = (0, 0)) -> Run:
    """What a sender measures that keeps to the schedule, whatever the server does."""
    return run_of(arrivals_ns, arrivals_ns, answered_at(arrivals_ns, service_ns, freeze_ns))


def run_of(
    intended_ns: NANOSECONDS,
    sent_ns: NANOSECONDS,
    done_ns: NANOSECONDS,
    codes: npt.NDArray[np.int32] | None = None,
    ending: Ending = "complete",
    reason: str = "",
) -> Run:
    """From times that count from the start of the run."""
    rows = np.zeros(len(intended_ns), ROW)
    rows["intended_ns"], rows["sent_ns"], rows["done_ns"] = (
        START_NS + intended_ns,
        START_NS + sent_ns,
        START_NS + done_ns,
    )
    rows["code"] = OK if codes is None else codes
    span_ns = int(max(rows["done_ns"].max(initial=0), rows["intended_ns"].max(initial=0))) - START_NS
    no_gaps = np.zeros(0, GAP)
    return Run("simulated", "none", "simulated", True, 1, rows, np.zeros(1, np.int64), ending, reason, span_ns, no_gaps)
