"""The numbers of one run, worked out once: every report prints these and no others."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from tickpath.loadtest.latency import Summary, summarise
from tickpath.loadtest.run import NANOSECONDS, OK, Run
from tickpath.loadtest.validity import UNMEASURED, invalid
from tickpath.wire import Code

LATENESS: Final = "send lateness"
ROUND_TRIP: Final = "round trip"  # the one stage beside lateness where a target gives no stamps

# A sender that spins on the clock is a few microseconds late. 100 µs is what a wake-up by the kernel costs, so a
# request that left later was held up.
LATE_NS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Gaps:
    """How often and how long the sender was held up, more than run.GAP_NS each time."""

    count: int
    total_ns: int
    max_ns: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run comes to.

    `invalid`: why its percentiles are not to be trusted, a line each; empty where they are. `unmeasured`: requests with
    neither a prediction nor an error, by how they ended. Distributions are None where there is nothing of the kind. The
    means of the stages add up to the mean latency.
    """

    run: Run
    invalid: tuple[str, ...]
    latency: Summary | None
    uncorrected: Summary | None
    lateness: Summary | None
    connect: Summary | None
    stage_means_ns: dict[str, float]
    errors: dict[str, int]
    unmeasured: dict[str, int]
    late: int
    gaps: Gaps
    span_s: float
    in_flight_max: int

    @property
    def answered(self) -> int:
        """Requests with a prediction."""
        return self.latency.count if self.latency else 0

    @property
    def sent(self) -> int:
        """Requests that left."""
        return self.lateness.count if self.lateness else 0

    @property
    def failed(self) -> int:
        """Requests that were answered with an error."""
        return sum(self.errors.values())

    @property
    def completed_hz(self) -> float:
        """Predictions a second of the measured span."""
        return self.answered / self.span_s if self.span_s else 0.0

    @property
    def distributions(self) -> dict[str, Summary]:
        """Those that there are, the latency first."""
        named = {"latency": self.latency, "uncorrected": self.uncorrected, LATENESS: self.lateness}
        return {name: summary for name, summary in named.items() if summary}

    @property
    def faults(self) -> dict[str, int]:
        """Requests without a prediction, by why; only what happened."""
        return {name: count for name, count in (self.errors | self.unmeasured).items() if count}


def figures(run: Run) -> Figures:
    """Work them out."""
    lateness_ns = run.lateness_ns()
    return Figures(
        run=run,
        invalid=invalid(run),
        latency=_summary(run.latency_ns()),
        uncorrected=_summary(run.uncorrected_ns()),
        lateness=_summary(lateness_ns),
        connect=_summary(run.connect_ns),
        stage_means_ns=_stage_means_ns(run),
        errors=_errors(run),
        unmeasured={name: run.count(code) for code, name in UNMEASURED.items()},
        late=int(np.count_nonzero(lateness_ns > LATE_NS)),
        gaps=_gaps(run),
        span_s=run.span_ns / 1e9,
        in_flight_max=_in_flight_max(run),
    )


def _summary(spans_ns: NANOSECONDS) -> Summary | None:
    return summarise(spans_ns) if len(spans_ns) else None


def _stage_means_ns(run: Run) -> dict[str, float]:
    """Of the answered, the lateness among them, so that what is added up is the latency."""
    rows = run.answered
    if not len(rows):
        return {}
    stages_ns = run.stages_ns() or {ROUND_TRIP: run.uncorrected_ns()}
    stages_ns = {LATENESS: rows["sent_ns"] - rows["intended_ns"]} | stages_ns
    return {name: float(spans_ns.mean()) for name, spans_ns in stages_ns.items()}


def _errors(run: Run) -> dict[str, int]:
    codes, counts = np.unique(run.rows["code"][run.rows["code"] > OK], return_counts=True)
    return {_code_name(int(code)): int(count) for code, count in zip(codes, counts, strict=True)}


def _code_name(code: int) -> str:
    """A target that is not tickpath may have codes of its own."""
    return Code(code).name if code in list(Code) else f"code {code}"


def _gaps(run: Run) -> Gaps:
    spans_ns = run.gaps["end_ns"] - run.gaps["start_ns"]
    return Gaps(len(spans_ns), int(spans_ns.sum()), int(spans_ns.max(initial=0)))


def _in_flight_max(run: Run) -> int:
    """The most requests that were on their way at one time; who leaves as another arrives doesn't meet it."""
    sent = run.rows[run.rows["sent_ns"] > 0]
    done_ns = sent["done_ns"][sent["done_ns"] > 0]
    if not len(sent):
        return 0
    times_ns = np.concatenate((done_ns, sent["sent_ns"]))
    steps = np.repeat([-1, 1], (len(done_ns), len(sent)))
    return int(np.cumsum(steps[np.argsort(times_ns, kind="stable")]).max())
