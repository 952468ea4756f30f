"""Numbers as people read them. Times are in microseconds."""

from typing import Final

from tickpath.loadtest.latency import PERCENTILES, Interval, Summary, is_thin
from tickpath.loadtest.report.figures import Figures
from tickpath.loadtest.run import GAP_NS, SKIPPED, UNSENT
from tickpath.loadtest.words import counted

READING: Final = "latency counts from the intended send, uncorrected from the real one"
THIN: Final = "~ thin: fewer than ten samples lie beyond it"


def microseconds(span_ns: float) -> str:
    """A tenth of a microsecond is told where it matters: below ten milliseconds."""
    return f"{span_ns / 1000:,.1f}" if span_ns < 10_000_000 else f"{span_ns / 1000:,.0f}"


def spans_ns(summary: Summary) -> dict[str, float]:
    """What is told of a distribution, by the names that stand above the columns."""
    found_ns = (summary.p50_ns, summary.p90_ns, summary.p95_ns, summary.p99_ns, summary.p999_ns, summary.p9999_ns)
    return dict(zip(PERCENTILES, found_ns, strict=True)) | {"max": summary.max_ns, "mean": summary.mean_ns}


def cells(summary: Summary) -> dict[str, str]:
    """The same for people, with a mark where a percentile rests on too few samples; and how many samples there are."""
    thin = {name for name, quantile in PERCENTILES.items() if is_thin(summary.count, quantile)}
    told = {name: "~" * (name in thin) + microseconds(span_ns) for name, span_ns in spans_ns(summary).items()}
    return told | {"samples": f"{summary.count:,}"}


def interval_line(summary: Summary) -> str:
    """How sure the p99.9 is."""
    return f"the latency's p99.9, {summary.p999_interval.confidence:.0%} interval: {_bounds(summary.p999_interval)}"


def gaps_line(figures: Figures) -> str:
    """How much of the run the sender did not see."""
    gaps, limit = figures.gaps, f"{GAP_NS // 1000}"
    if not gaps.count:
        return f"the sender was never held up for more than {limit} µs"
    long = f"{microseconds(gaps.total_ns)} µs in all, {microseconds(gaps.max_ns)} at most"
    return f"the sender was held up {gaps.count:,} times for more than {limit} µs: {long}"


def _bounds(interval: Interval) -> str:
    low = "?" if interval.low_ns is None else microseconds(interval.low_ns)
    high = "no upper bound from so few samples" if interval.high_ns is None else microseconds(interval.high_ns)
    return f"{low} to {high}"


def subject(figures: Figures) -> str:
    """What was measured."""
    model = f"model {figures.run.model} of " if figures.run.model else ""
    return f"{model}{figures.run.target}"


def connections_line(figures: Figures) -> str:
    """Over what."""
    connections = counted(figures.run.connections, "connection")
    return connections + (f", opened in {microseconds(figures.connect.max_ns)} µs at most" if figures.connect else "")


def outcome_line(figures: Figures) -> str:
    """What became of the requests."""
    total, answered = len(figures.run.rows), figures.answered
    faults = "".join(f", {count:,} {name}" for name, count in figures.faults.items())
    unasked = f", {counted(figures.run.unasked, 'answer')} nobody asked for" if figures.run.unasked else ""
    rate = f"{figures.completed_hz:,.1f}/s over {figures.span_s:,.2f} s"
    return f"{answered:,} of {counted(total, 'request')} answered with a prediction, {rate}{faults}{unasked}"


def failed(figures: Figures) -> int:
    """Requests without a prediction, for whatever reason; those apart that a run which ended early did not come to."""
    missing = len(figures.run.rows) - figures.answered
    return missing if figures.run.ending == "complete" else missing - figures.run.count(UNSENT)


def skipped_line(figures: Figures) -> str:
    """Empty where none was."""
    if not (skipped := figures.run.count(SKIPPED)):
        return ""
    full = f"{counted(figures.run.connections, 'connection')} had as many in flight as may be"
    return f"skipped {skipped:,}: {full}; raise --connections"


def ending_line(figures: Figures) -> str:
    """Empty where the run went to its end."""
    run = figures.run
    return "" if run.ending == "complete" else f"The run ended early ({run.ending}): {run.reason}"
