"""When a run is INVALID: when its percentiles may be others than what a user of the schedule would have met.

Three things spoil a percentile, and each is judged by what it does to that percentile, not by its own size:

- The sender was late. Latency counts from the intended send time, so its lateness is within. What part of the
  percentile that is shows beside the uncorrected one, which counts from the real send time.
- The sender was held up. While it doesn't run it reads nothing, and what came meanwhile looks as if the server had been
  slow; a closed loop shows no lateness at all. What it may have taken is counted as its own.
- Requests were not measured: skipped at the cap on those in flight, unsent as the sender fell behind, pending at the
  end, lost with their connection. As a rule they are those that would have waited longest. So they are taken to have
  waited for ever, and the percentile of all must be near that of the answered.

An error that the server answered is a result, told by its code, and spoils nothing.
"""

from fractions import Fraction
from typing import Final

import numpy as np

from tickpath.loadtest.latency import P50, P99, PERCENTILES, is_thin, nearest_rank, rank_of
from tickpath.loadtest.run import INTERRUPTED, LOST, NANOSECONDS, OK, PENDING, SKIPPED, UNSENT, Run
from tickpath.loadtest.words import counted

# A percentile that is a tenth off still ranks servers; where more is the sender's, it measures the sender.
SPOILT_SHARE: Final = 0.1
# What a spinning sender in Python is late by for its own steps: no percentile is told finer than that.
LATENESS_NS_MIN: Final = 5_000
# The server's clock and ours may run at different speeds, by a tenth of this where they are kept at all.
CLOCKS_SHARE: Final = 0.001

UNMEASURED: Final = {
    SKIPPED: "skipped",
    UNSENT: "unsent",
    PENDING: "pending",
    LOST: "lost",
    INTERRUPTED: "interrupted",
}


def invalid(run: Run, as_bounds: bool = False) -> tuple[str, ...]:
    """Why the run's percentiles can't be trusted, a line each that says what to do; empty where they can. `as_bounds`:
    as upper bounds, to which the sender's own part may have added."""
    if not len(run.answered):
        return (f"no request was answered: {_endings(run)}",)
    lost = (run.loss,) if run.loss else ()
    return (
        *lost,
        *_unasked(run),
        *_stamped(run),
        *(() if as_bounds else _late(run) or _held_up(run)),
        *_stood_still(run),
        *_unmeasured(run),
    )


def _unasked(run: Run) -> tuple[str, ...]:
    """Where answers have no ids, all that follow are taken for those of other requests."""
    told = counted(run.unasked, "answer")
    return (f"{told} came to nothing that was in flight: mend the target",) if run.unasked else ()


def _stamped(run: Run) -> tuple[str, ...]:
    """What is told of the stages is the target's own word."""
    whole_ns = run.uncorrected_ns()
    least_ns, most_ns = -CLOCKS_SHARE * whole_ns, (1 + CLOCKS_SHARE) * whole_ns
    wrong = np.zeros(len(whole_ns), np.bool_)
    for name, span_ns in run.stages_ns().items():
        wrong |= (span_ns < (least_ns if name == "network" else 0)) | (span_ns > most_ns)
    if not wrong.any():
        return ()
    told = counted(int(wrong.sum()), "answer")
    return (f"{told} came with stamps that go back or take longer than the answer: mend the target",)


def _late(run: Run) -> tuple[str, ...]:
    told = _own(run.latency_ns(), run.uncorrected_ns())
    return (f"the sender was late: {told} are its own; lower the rate, or give it a core of its own",) if told else ()


def _held_up(run: Run) -> tuple[str, ...]:
    """Lateness counts too: what is left is what was surely not the sender's."""
    told = _own(run.latency_ns(), run.uncorrected_ns() - run.held_ns())
    return (f"the sender was held up: {told} may be its own; give it a core of its own",) if told else ()


def _own(whole_ns: NANOSECONDS, others_ns: NANOSECONDS) -> str:
    """The first percentile of which too much is the sender's own, where `others_ns` is not; empty where none is."""
    whole_ns, others_ns = np.sort(whole_ns), np.sort(others_ns)
    for name, quantile in _judged(len(whole_ns)).items():
        found_ns = nearest_rank(whole_ns, quantile)
        own_ns = found_ns - nearest_rank(others_ns, quantile)
        if own_ns > max(LATENESS_NS_MIN, SPOILT_SHARE * found_ns):
            return f"{own_ns / 1e3:,.1f} of the {name} of {found_ns / 1e3:,.1f} µs"
    return ""


def _stood_still(run: Run) -> tuple[str, ...]:
    """A closed loop asks nothing while it waits: few requests are then missing, however long the server stood still."""
    pending = 0 if run.open_loop else run.count(PENDING)
    return (f"{counted(pending, 'request')} never answered: the server may have stood still",) if pending else ()


def _unmeasured(run: Run) -> tuple[str, ...]:
    # A run that was interrupted ends with requests that it did not come to, and with some in flight.
    codes = [code for code in UNMEASURED if code not in (UNSENT, INTERRUPTED) or run.ending == "complete"]
    missing = sum(map(run.count, codes))
    latency_ns = np.sort(run.latency_ns())
    for name, quantile in _judged(len(latency_ns)).items():
        rank = rank_of(len(latency_ns) + missing, quantile)
        most_ns = (1 + SPOILT_SHARE) * nearest_rank(latency_ns, quantile)
        if rank > len(latency_ns) or latency_ns[rank - 1] > most_ns:
            more = "; more --connections hold more in flight" if run.count(SKIPPED) else ""
            return (
                f"{missing:,} requests were not measured ({_endings(run, codes)}): the {name} may be far higher{more}",
            )
    return ()


def _judged(count: int) -> dict[str, Fraction]:
    """All that are told. A thin one is marked as such and claims nothing; p50 and p99 are claimed by every run."""
    return {name: q for name, q in PERCENTILES.items() if q in (P50, P99) or not is_thin(count, q)}


def _endings(run: Run, codes: list[int] | None = None) -> str:
    names = UNMEASURED if codes is None else {code: UNMEASURED[code] for code in codes}
    told = [f"{count:,} {name}" for code, name in names.items() if (count := run.count(code))]
    if codes is None and (failed := int(np.count_nonzero(run.rows["code"] > OK))):
        told.append(f"{failed:,} ended with an error")
    return ", ".join(told) or "none was sent"
