"""What tickpath counts under the names Triton has for it, so that dashboards and alerts made for those go on.

Off by default: `observer_triton_names`.

Rules
- Labels are Triton's: `model` and `version`; of the failures also `reason`. The versions are those that /metrics shows.
- The numbers are those behind tickpath's own names. Counts are exact; durations are sums over answered requests in
  whole microseconds, and lack those of `tickpath_records_lost_total`.
- A request that was refused before its model was known has no model, so it is in none of them.
- Triton's counters don't end in `_total`, which the library demands of a counter: they are declared untyped.
"""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from tickpath.observe.records import (
    CODE_COUNT,
    GLOBAL_CELLS,
    OK,
    VERSION_CELLS,
    VERSIONS_MAX,
    VersionCell,
    VersionDescription,
)
from tickpath.observe.tally import SPANS, Snapshot
from tickpath.wire import Code

REASONS: Final = {
    Code.OVERLOADED: "REJECTED",
    Code.DEADLINE: "REJECTED",
    Code.SUPERSEDED: "REJECTED",
    Code.CANCELLED: "CANCELED",
    Code.ENGINE_FAILED: "BACKEND",
}
"""Triton's reasons: not run since its turn did not come in time, given up by its client, failed in the runtime."""
OTHER: Final = "OTHER"

DURATIONS: Final = {
    "request": "request",
    "queue": "queue",
    "compute_input": "input",
    "compute_infer": "compute",
    "compute_output": "output",
}
"""Triton's durations, and the span of a request that each is."""


class TritonCollector(Collector):
    """One snapshot under Triton's names. `shown`: the places and versions that have series."""

    def __init__(self, snapshot: Snapshot, shown: tuple[tuple[int, VersionDescription], ...]) -> None:
        self._snapshot = snapshot
        self._shown = shown
        self._cells = snapshot.totals[GLOBAL_CELLS:].reshape(VERSIONS_MAX, VERSION_CELLS)

    def collect(self) -> Iterator[Metric]:
        yield self._counts("nv_inference_request_success", "Requests answered.", VersionCell.CODES + OK)
        yield self._failures()
        yield self._inferences()
        yield self._executions()
        for name, span in DURATIONS.items():
            yield self._durations(f"nv_inference_{name}_duration_us", SPANS.index(span))
        yield self._counts(
            "nv_inference_pending_request_count", "Requests that wait for their executor.", VersionCell.QUEUE_DEPTH
        )

    def _counts(self, name: str, text: str, cell: int) -> Metric:
        metric = Metric(name, text, "gauge" if cell == VersionCell.QUEUE_DEPTH else "unknown")
        for place, version in self._shown:
            metric.add_sample(name, _labels(version), int(self._cells[place, cell]))
        return metric

    def _failures(self) -> Metric:
        metric = Metric("nv_inference_request_failure", "Requests refused, by Triton's reasons.", "unknown")
        for place, version in self._shown:
            counts = dict.fromkeys((*REASONS.values(), OTHER), 0)
            for code in range(OK + 1, CODE_COUNT):
                counts[REASONS.get(Code(code), OTHER)] += int(self._cells[place, VersionCell.CODES + code])
            for reason, count in counts.items():
                metric.add_sample(metric.name, {**_labels(version), "reason": reason}, count)
        return metric

    def _inferences(self) -> Metric:
        """Rows of answered requests: what ran, less what only filled buckets. Two totals may be a request apart, so
        never below none."""
        metric = Metric("nv_inference_count", "Rows answered.", "unknown")
        for place, version in self._shown:
            ran = sum(
                int(self._cells[place, VersionCell.REPLAYS + index]) * bucket
                for index, bucket in enumerate(version.buckets)
            )
            rows = ran - int(self._cells[place, VersionCell.PADDED_ROWS])
            metric.add_sample(metric.name, _labels(version), max(rows, 0))
        return metric

    def _executions(self) -> Metric:
        metric = Metric("nv_inference_exec_count", "Graphs run.", "unknown")
        for place, version in self._shown:
            replays = self._cells[place, VersionCell.REPLAYS : VersionCell.REPLAYS + len(version.buckets)]
            metric.add_sample(metric.name, _labels(version), int(replays.sum()))
        return metric

    def _durations(self, name: str, span: int) -> Metric:
        metric = Metric(name, f"The {SPANS[span]} spans of answered requests, together.", "unknown")
        for place, version in self._shown:
            metric.add_sample(name, _labels(version), int(self._snapshot.sums_ns[place, span]) // 1000)
        return metric


def _labels(version: VersionDescription) -> dict[str, str]:
    return {"model": version.name, "version": version.version}
