"""What was seen of the core's process from outside, as metrics: all that may make a request late and is none of its
own doing."""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tickpath.observe.process import KINDS
from tickpath.observe.records import EventKind
from tickpath.observe.watched import Seen

_FAULTS: Final = {"minor": EventKind.MINOR_FAULTS, "major": EventKind.MAJOR_FAULTS}

_COUNTED: Final = (
    (
        "tickpath_loop_preempted_total",
        "Times that the event loop's thread was pushed off its CPU.",
        EventKind.LOOP_PREEMPTED,
        1,
    ),
    (
        "tickpath_loop_runnable_wait_seconds_total",
        "Time that the event loop's thread could have run, and waited for a CPU.",
        EventKind.RUN_QUEUE,
        1e9,
    ),
    (
        "tickpath_cpu_stolen_seconds_total",
        "Time that the hypervisor took from the CPU on which the event loop's thread was.",
        EventKind.STOLEN,
        1e9,
    ),
    (
        "tickpath_cgroup_throttled_seconds_total",
        "Time that the core's control group, and those above it, were held up by their CPU quota.",
        EventKind.THROTTLED,
        1e9,
    ),
)


class SeenCollector(Collector):
    """What was seen until one moment."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def collect(self) -> Iterator[Metric]:
        seen = self._seen
        switches = CounterMetricFamily(
            "tickpath_context_switches_total", "Context switches of all the core's threads.", labels=("kind",)
        )
        for kind, count in zip(KINDS, seen.switches, strict=True):
            switches.add_metric((kind,), count)
        yield switches
        faults = CounterMetricFamily(
            "tickpath_page_faults_total", "Page faults of the core; a major one reads from a disk.", labels=("kind",)
        )
        for kind, event in _FAULTS.items():
            faults.add_metric((kind,), seen.totals[event])
        yield faults
        for name, text, event, unit in _COUNTED:
            yield CounterMetricFamily(name, text, value=seen.totals[event] / unit)
        yield CounterMetricFamily(
            "tickpath_cgroup_throttled_periods_total",
            "Periods in which the CPU quota of the core's control group, or of one above it, was used up.",
            value=seen.throttled_periods,
        )
        yield GaugeMetricFamily(
            "tickpath_cpu_frequency_hertz",
            "How fast the CPU of the event loop's thread runs; 0 where the machine does not tell.",
            value=seen.cpu_hz,
        )
