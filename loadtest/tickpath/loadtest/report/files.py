"""Runs for programs: JSON, CSV and HDR percentile files. docs/LOADTEST.md says what each field means."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from tickpath.loadtest.goodput import Goodput, Probe
from tickpath.loadtest.latency import Summary
from tickpath.loadtest.report.figures import LATENESS, ROUND_TRIP, Figures
from tickpath.loadtest.report.text import spans_ns
from tickpath.loadtest.series import NotRun

JSON_SCHEMA: Final = "tickpath-loadtest-1"

# perf_analyzer's own first, by its names, so that what reads its files reads these.
CSV_COLUMNS: Final = (
    "Concurrency",
    "Inferences/Second",
    "Client Send",
    "Network+Server Send/Recv",
    "Server Queue",
    "Server Compute Input",
    "Server Compute Infer",
    "Server Compute Output",
    "Client Recv",
    "p50 latency",
    "p90 latency",
    "p95 latency",
    "p99 latency",
    "p99.9 latency",
    "p99.99 latency",
    "max latency",
    "count",
    "late sends",
    "skipped",
    "errors",
    "unanswered",
    "verdict",
    "schedule",
    "ending",
)
# Of a search for goodput, behind the others.
CSV_GOODPUT_COLUMNS: Final = ("probed rate", "passed", "reason", "goodput")
CSV_PERCENTILES: Final = ("p50", "p90", "p95", "p99", "p99.9", "p99.99", "max")

# Three digits of every value are kept, whatever its size: what HDR histograms are usually asked for.
HGRM_DIGITS: Final = 3


def json_bytes(all_figures: Sequence[Figures], not_run: NotRun | None = None, goodput: Goodput | None = None) -> bytes:
    """One object, indented; with the search that the runs were made for, a probe for each."""
    document: dict[str, Any] = {
        "schema": JSON_SCHEMA,
        "runs": [_plain(figures) for figures in all_figures],
        "not_run": not_run,
    }
    if goodput:
        document["goodput"] = _plain_goodput(goodput)
    return msgspec.json.format(msgspec.json.encode(document)) + b"\n"


def _plain_goodput(goodput: Goodput) -> dict[str, Any]:
    return {
        "percentile": float(goodput.slo.quantile * 100),
        "limit_ns": goodput.slo.limit_ns,
        "confidence": goodput.confidence,
        "rate_hz": goodput.rate_hz,
        "best_hz": goodput.best_hz,
        "stopped": goodput.stopped,
        "probes": [_plain_probe(probe) for probe in goodput.probes],
    }


def _plain_probe(probe: Probe) -> dict[str, Any]:
    proof = probe.proof
    return {
        "rate_hz": probe.rate_hz,
        "passed": probe.passed,
        "reason": probe.reason,
        "over": proof.over,
        "total": proof.total,
        "needed": proof.needed,
    }


def _plain(figures: Figures) -> dict[str, Any]:
    run = figures.run
    return {
        "target": run.target,
        "model": run.model,
        "schedule": run.schedule,
        "open_loop": run.open_loop,
        "connections": run.connections,
        "ending": run.ending,
        "ending_reason": run.reason,
        "valid": not figures.invalid,
        "invalid_reasons": figures.invalid,
        "requests": {"meant": len(run.rows), "sent": figures.sent, "answered": figures.answered} | figures.unmeasured,
        "errors": figures.errors,
        "unasked": run.unasked,
        "late_sends": figures.late,
        "sender_gaps": msgspec.to_builtins(figures.gaps),
        "span_s": figures.span_s,
        "completed_hz": figures.completed_hz,
        "in_flight_max": figures.in_flight_max,
        "latency": _plain_summary(figures.latency),
        "uncorrected": _plain_summary(figures.uncorrected),
        "send_lateness": _plain_summary(figures.lateness),
        "connect": _plain_summary(figures.connect),
        "stage_means_ns": figures.stage_means_ns,
    }


def _plain_summary(summary: Summary | None) -> dict[str, Any] | None:
    if summary is None:
        return None
    plain: dict[str, Any] = msgspec.to_builtins(summary)
    return plain | {"p999_thin": summary.thin}


def csv_text(all_figures: Sequence[Figures], not_run: NotRun | None = None, goodput: Goodput | None = None) -> str:
    """A header, and a line for each run, also for those that were not made. Times are in microseconds, empty where
    nothing was answered. A search that the runs were made for adds its columns."""
    rows = [_csv_row(figures) for figures in all_figures]
    columns: tuple[str, ...] = CSV_COLUMNS
    if goodput:
        columns += CSV_GOODPUT_COLUMNS
        rows = [row + _csv_probe(probe, goodput) for row, probe in zip(rows, goodput.probes, strict=True)]
    return csv_lines(columns, [*rows, *(_csv_not_run(not_run) if not_run else ())])


def csv_lines(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A header and a line for each row."""
    with io.StringIO(newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
        return file.getvalue()


def _csv_probe(probe: Probe, goodput: Goodput) -> list[object]:
    return [f"{probe.rate_hz:.1f}", "yes" if probe.passed else "no", probe.reason, f"{goodput.rate_hz:.1f}"]


def _csv_row(figures: Figures) -> list[object]:
    spans = spans_ns(figures.latency) if figures.latency else {}
    unmeasured = figures.unmeasured
    return [
        figures.in_flight_max,
        f"{figures.completed_hz:.1f}",
        *_csv_stages(figures.stage_means_ns),
        *(_csv_span(spans.get(name)) for name in CSV_PERCENTILES),
        figures.answered,
        figures.late,
        unmeasured["skipped"],
        figures.failed,
        sum(unmeasured.values()) - unmeasured["skipped"],
        "INVALID" if figures.invalid else "valid",
        figures.run.schedule,
        _ending(figures.run.ending, figures.run.reason),
    ]


def _csv_not_run(not_run: NotRun) -> Iterator[list[str]]:
    blank = [""] * (len(CSV_COLUMNS) - 3)
    for schedule in not_run.schedules:
        yield [*blank, "not run", schedule, _ending("not run", not_run.reason)]


def _ending(what: str, reason: str) -> str:
    return f"{what}: {reason}" if reason else what


def _csv_stages(means_ns: dict[str, float]) -> list[str]:
    """They add up to the mean latency. What a client spends on receiving is within the network's share."""
    if not means_ns:
        return [""] * 7
    network_ns = sum(means_ns.get(name, 0.0) for name in (ROUND_TRIP, "network", "receive"))
    server_ns = (means_ns.get(name, 0.0) for name in ("queue", "input", "compute", "output"))
    return [_csv_span(mean_ns) for mean_ns in (means_ns[LATENESS], network_ns, *server_ns, 0.0)]


def _csv_span(span_ns: float | None) -> str:
    return "" if span_ns is None else f"{span_ns / 1000:.1f}"


def hgrm_bytes(figures: Figures) -> bytes:
    """The corrected latency as HdrHistogram's percentile distribution, in microseconds; empty without any."""
    from hdrh.histogram import HdrHistogram

    latency_ns = figures.run.latency_ns()
    if not len(latency_ns):
        return b""
    histogram = HdrHistogram(1, max(int(latency_ns.max()), 2), HGRM_DIGITS)
    for span_ns, count in zip(*np.unique(latency_ns, return_counts=True), strict=True):
        histogram.record_value(int(span_ns), int(count))
    with io.BytesIO() as file:
        histogram.output_percentile_distribution(file, 1000)
        # The package scales every figure but this one.
        deviation_ns = histogram.get_stddev()
        return file.getvalue().replace(b"%12.3f" % deviation_ns, b"%12.3f" % (deviation_ns / 1000))
