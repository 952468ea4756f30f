"""How long requests took, as metrics: histograms that add up over servers and any time, the newest request of each
bucket beside it, and the quantiles of the last minute."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.samples import Exemplar, Sample

from tickpath.observe.histograms import BUCKET_BOUNDS_NS, quantile_ns
from tickpath.observe.tally import REQUEST, SPANS, Snapshot

QUANTILES: Final = ("0.5", "0.99", "0.999")

_BOUNDS: Final = [str(bound / 1e9) for bound in BUCKET_BOUNDS_NS.tolist()] + ["+Inf"]
NO_EXEMPLARS: Final[tuple[Exemplar | None, ...]] = (None,) * len(_BOUNDS)

Labels = tuple[str, ...]


class LatencyMetrics:
    """Of one snapshot. `by_name`, `by_version`: places of versions by the labels of their series."""

    def __init__(
        self, snapshot: Snapshot, by_name: Mapping[Labels, list[int]], by_version: Mapping[Labels, list[int]]
    ) -> None:
        self._snapshot = snapshot
        self._by_name = by_name
        self._by_version = by_version

    def families(self) -> Iterator[Metric]:
        yield self._durations()
        yield self._stages()
        yield from self._latency()

    def _durations(self) -> Metric:
        family = Metric(
            "tickpath_request_duration_seconds",
            "From a request's first byte to its reply being sent, since the start; adds up over servers and any time.",
            "histogram",
        )
        for (name, version), indices in self._by_version.items():
            self._add_span(family, {"model": name, "version": version}, indices, REQUEST, self._exemplars(indices))
        return family

    def _exemplars(self, indices: list[int]) -> list[Exemplar | None]:
        """Of each bucket the request that fell into it last, by which it can be found in the client's log and in
        /slow."""
        of_versions = self._snapshot.exemplars[indices]
        newest = of_versions[of_versions["at_ns"].argmax(axis=0), np.arange(of_versions.shape[1])]
        return [
            Exemplar({"request_id": str(number), "session": str(session)}, value_ns / 1e9, at_ns / 1e9)
            if at_ns
            else None
            for number, session, value_ns, at_ns in newest.tolist()
        ]

    def _stages(self) -> Metric:
        family = Metric("tickpath_stage_duration_seconds", "The stages of a request, one after another.", "histogram")
        for (name,), indices in self._by_name.items():
            for span, stage in enumerate(SPANS[:REQUEST]):
                self._add_span(family, {"model": name, "stage": stage}, indices, span)
        return family

    def _add_span(
        self,
        family: Metric,
        labels: dict[str, str],
        indices: list[int],
        span: int,
        exemplars: Sequence[Exemplar | None] = NO_EXEMPLARS,
    ) -> None:
        cumulative = np.cumsum(self._snapshot.buckets[indices, span].sum(axis=0)).tolist()
        sum_s = int(self._snapshot.sums_ns[indices, span].sum()) / 1e9
        # As the library's HistogramMetricFamily does it, which takes four times as long.
        name = f"{family.name}_bucket"
        family.samples += [
            Sample(name, {**labels, "le": bound}, count, None, exemplar)
            for bound, count, exemplar in zip(_BOUNDS, cumulative, exemplars, strict=True)
        ]
        family.add_sample(f"{family.name}_count", labels, cumulative[-1])
        family.add_sample(f"{family.name}_sum", labels, sum_s)

    def _latency(self) -> Iterator[Metric]:
        # A summary, not a gauge: only there may a series have the label `quantile`, says promtool.
        latency = Metric(
            "tickpath_request_latency_seconds",
            "p50, p99 and p99.9 of this one server's last 60 s, first byte to reply sent; 0 without samples.",
            "summary",
        )
        samples = GaugeMetricFamily(
            "tickpath_request_latency_samples", "Requests behind the quantiles of the last 60 s.", labels=("model",)
        )
        for (name,), indices in self._by_name.items():
            counts = self._snapshot.window[indices].sum(axis=0)
            samples.add_metric((name,), int(counts.sum()))
            for quantile in QUANTILES:
                value = quantile_ns(counts, quantile) / 1e9
                latency.add_sample(latency.name, {"model": name, "quantile": quantile}, value)
        yield latency
        yield samples
