"""What is written is what the library's own writer writes, byte for byte."""

import os
from collections.abc import Iterator
from typing import Final

import pytest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from tickpath.observe.exposition import encoder
from tickpath.observe.metrics import SnapshotCollector
from tickpath.observe.reader import RecordReader
from tickpath.observe.records import CoreDescription, RecordWriter, VersionDescription
from tickpath.observe.tally import Tally
from tickpath.observe.triton_names import TritonCollector
from tickpath.wire import Code

OPEN: Final = "application/openmetrics-text"
ACCEPTS: Final = (
    "",
    "*/*",
    "text/plain;version=0.0.4",
    "text/plain;version=1.0.0;escaping=allow-utf-8",
    OPEN,
    *(f"{OPEN};version=1.0.0;escaping={how}" for how in ("allow-utf-8", "underscores", "dots", "values")),
    f"{OPEN};version=1.0.0,text/plain;version=0.0.4;q=0.5",
)
VALUES: Final = (0, 7, 999_999, 1_000_000, 10**15 + 1, 2**64, -5, True, 0.0, 0.1, 1e-9, 123456.75, 12345678.5, 1e300)
TEXTS: Final = ("", "a", 'a "quoted" one', "back\\slash", "two\nlines", "\u00b5s \u4e2d")


class Everything(Collector):
    """Each kind of family that there is here, with every value and text."""

    def collect(self) -> Iterator[Metric]:
        labels = ("model", "code", "a")
        counter = CounterMetricFamily("requests_total", 'Some "text", with \\ and\na line.', labels=labels)
        gauge = GaugeMetricFamily("depth", "A gauge.", labels=("z", "b"))
        for value in (*VALUES, float("inf"), float("-inf"), float("nan")):
            for text in TEXTS:
                counter.add_metric((text, repr(value), text), value)
                gauge.add_metric((text, repr(value)), value)
        yield counter
        yield gauge
        yield GaugeMetricFamily("alone", "No labels.", value=3)
        yield InfoMetricFamily("server", "An info.", value={"name": TEXTS[2], "version": "1"})
        yield SummaryMetricFamily("pause_seconds", "A summary.", count_value=2, sum_value=0.25)
        histogram = HistogramMetricFamily("duration_seconds", "A histogram.", labels=("model",))
        exemplar = Exemplar({"session": "3", "request_id": "7"}, 0.5, 1764583200.125)
        histogram.add_metric(("a",), [("1.0", 1, exemplar), ("+Inf", 2, None)], 1.5)  # type: ignore[list-item]  # as ours
        yield histogram
        untyped = Metric("nv_count", "Nobody's type.", "unknown")
        untyped.add_sample("nv_count", {"model": "a"}, 1)
        yield untyped


def same(families: Collector, accept: str) -> bytes:
    """What is written of them, once it is what the library writes."""
    (ours, our_type), (theirs, their_type) = encoder(accept), choose_encoder(accept)
    assert our_type == their_type
    assert ours(families).decode().splitlines() == theirs(families).decode().splitlines()
    assert ours(families) == theirs(families)
    return ours(families)


@pytest.mark.parametrize("accept", ACCEPTS)
def test_every_kind_of_family_is_written_as_the_library_does(accept: str) -> None:
    text = same(Everything(), accept)
    assert (b"# {" in text) == text.endswith(b"# EOF\n") == (OPEN in accept)


@pytest.mark.parametrize("accept", ACCEPTS)
def test_what_an_observer_says_is_written_as_the_library_does(accept: str) -> None:
    writer, fd = RecordWriter(), os.memfd_create("tally")
    version = VersionDescription('a "model"', "1", "onnxruntime", "float32", "ab" * 32, "inline", (1, 2))
    writer.describe(CoreDescription(os.getpid(), (version,)))
    tally = Tally(RecordReader(writer.fd), fd)
    for number in range(1, 50):
        writer.answered(0, 0, 1, 1, number, (1, 2, 3, 4, 5, 6), 10 ** number.bit_length() * 7, 0, session=2)
        writer.refused(0, Code.DEADLINE)
        tally.read(10**12)
        snapshot = tally.snapshot()
        same(SnapshotCollector(snapshot), accept)
        same(TritonCollector(snapshot, ((0, version),)), accept)
    writer.close()
    os.close(fd)


def test_an_accept_header_that_the_library_stumbles_over_is_answered_in_its_plainest_format() -> None:
    assert encoder(f"{OPEN};version=nonsense")[1] == choose_encoder("")[1]
