"""Numbers as people read them. Times are in microseconds."""

from typing import Final

from tickpath.loadtest.latency import Summary
from tickpath.loadtest.report.figures import Figures

PERCENTILES: Final = ("p50", "p90", "p99", "p99.9", "p99.99", "max", "mean")


def microseconds(span_ns: float) -> str:
    """A tenth of a microsecond is told where it matters: below ten milliseconds."""
    return f"{span_ns / 1000:,.1f}" if span_ns < 10_000_000 else f"{span_ns / 1000:,.0f}"
