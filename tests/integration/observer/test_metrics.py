"""The observer's numbers against what was written."""

import math
import os
import shutil
import signal
import subprocess
import urllib.error
from contextlib import ExitStack

import msgspec
import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.integration.observer.observing import (
    FAST,
    MODELS,
    SLOW,
    Observing,
    Scrape,
    histogram_quantile,
    observing,
    write,
)

from tickpath.observe import records as layout
from tickpath.observe.metrics import NO_MODEL
from tickpath.observe.records import CoreDescription, GlobalCell, RecordWriter, State, VersionCell, VersionDescription
from tickpath.wire import Code

COUNTERS = [
    "tickpath_sessions_opened_total",
    "tickpath_sessions_refused_total",
    "tickpath_slow_readers_dropped_total",
    "tickpath_protocol_errors_total",
    "tickpath_gc_pause_seconds_count",
    "tickpath_gc_pause_seconds_sum",
    "tickpath_recorded_total",
    "tickpath_record_dropped_total",
    "tickpath_records_lost_total",
    "tickpath_loads_failed_total",
]
GAUGES = ["tickpath_sessions", "tickpath_loop_lag_seconds", "tickpath_quiet"]
OF_MODEL = [
    "tickpath_in_flight",
    "tickpath_queue_depth",
    "tickpath_padded_rows_total",
    "tickpath_superseded_total",
    "tickpath_feed_warm_up_total",
    "tickpath_request_latency_samples",
    "tickpath_reloads_total",
    "tickpath_reload_gap_seconds",
]
LATE = {
    "admission": VersionCell.LATE_AT_ADMISSION,
    "queue": VersionCell.LATE_IN_QUEUE,
    "answer": VersionCell.LATE_ANSWERS,
}
OF_SHADOW = {
    "tickpath_shadow_compared_total": VersionCell.SHADOW_COMPARED,
    "tickpath_shadow_differed_total": VersionCell.SHADOW_DIFFERED,
    "tickpath_shadow_dropped_total": VersionCell.SHADOW_DROPPED,
}
STAGES = ["receive", "queue", "input", "compute", "output", "send"]


def lognormal_ns(median_ns: int, count: int) -> list[int]:
    return [round(value) for value in np.random.default_rng(7).lognormal(math.log(median_ns), 0.5, count)]


def check_histograms(scrape: Scrape) -> None:
    """Cumulative, ascending, ended by +Inf, which is the count."""
    histograms = [family for family in scrape.families.values() if family.type == "histogram"]
    assert len(histograms) == 2
    for family in histograms:
        series: dict[str, list[tuple[float, float]]] = {}
        counts: dict[str, float] = {}
        for sample in family.samples:
            key = str(sorted((name, value) for name, value in sample.labels.items() if name != "le"))
            if sample.name.endswith("_bucket"):
                series.setdefault(key, []).append((float(sample.labels["le"]), sample.value))
            if sample.name.endswith("_count"):
                counts[key] = sample.value
        assert series
        for key, buckets in series.items():
            assert buckets == sorted(buckets)
            assert [count for _, count in buckets] == sorted(count for _, count in buckets)
            assert buckets[-1] == (math.inf, counts[key])


def test_before_any_request_everything_is_there_and_0(observer: Observing) -> None:
    scrape = observer.scrape()
    for name in COUNTERS + GAUGES:
        assert scrape.value(name) == 0
    for model in MODELS.versions:
        for name in OF_MODEL:
            assert scrape.value(name, model=model.name) == 0
        for late in LATE:
            assert scrape.value("tickpath_deadline_misses_total", model=model.name, stage=late) == 0
        for name in OF_SHADOW:
            assert scrape.value(name, model=model.name, version=model.version) == 0
        for quantile in ("0.5", "0.99", "0.999"):
            assert scrape.value("tickpath_request_latency_seconds", model=model.name, quantile=quantile) == 0
        for stage in STAGES:
            assert scrape.value("tickpath_stage_duration_seconds_count", model=model.name, stage=stage) == 0
        assert scrape.value("tickpath_request_duration_seconds_sum", model=model.name, version=model.version) == 0
        for bucket in model.buckets:
            assert scrape.value("tickpath_graph_replays_total", model=model.name, bucket=str(bucket)) == 0
        for name in ("OK", *Code.__members__):
            assert scrape.value("tickpath_requests_total", model=model.name, version=model.version, code=name) == 0
        assert scrape.value("tickpath_model_ready", model=model.name) == 0
    for code in Code:
        assert scrape.value("tickpath_requests_total", model=NO_MODEL, version=NO_MODEL, code=code.name) == 0
    assert scrape.value("tickpath_model_info", model="slow", version="2", engine="onnxruntime", sha256="cd" * 32) == 1
    check_histograms(scrape)
    assert not any(math.isnan(sample.value) for sample in scrape.samples)


def test_every_cell_is_said_under_its_own_name(writer: RecordWriter, observer: Observing) -> None:
    for cell in GlobalCell:
        if cell not in (GlobalCell.STATE, GlobalCell.CODES):
            writer.set_cell(cell, 10 + cell)
    writer.set_cell(GlobalCell.STATE, State.READY)
    for model in range(2):
        for model_cell in (
            VersionCell.IN_FLIGHT,
            VersionCell.QUEUE_DEPTH,
            VersionCell.PADDED_ROWS,
            *LATE.values(),
            VersionCell.WARM_UP,
            VersionCell.RELOADS,
            VersionCell.RELOAD_GAP_NS,
            *OF_SHADOW.values(),
        ):
            writer.set_version(model, model_cell, 100 * (model + 1) + model_cell)
    for code in Code:
        for _ in range(code):
            writer.refused(None, code)
            writer.refused(1, code)
    writer.answered(0, 2, 4, 3, 1, (1, 2, 3, 4, 5, 6), 7, 0)
    scrape = observer.scrape()
    assert scrape.value("tickpath_sessions") == 10 + GlobalCell.SESSIONS
    assert scrape.value("tickpath_sessions_opened_total") == 10 + GlobalCell.SESSIONS_OPENED
    assert scrape.value("tickpath_sessions_refused_total") == 10 + GlobalCell.SESSIONS_REFUSED
    assert scrape.value("tickpath_slow_readers_dropped_total") == 10 + GlobalCell.SLOW_READERS_DROPPED
    assert scrape.value("tickpath_protocol_errors_total") == 10 + GlobalCell.PROTOCOL_ERRORS
    assert scrape.value("tickpath_loop_lag_seconds") == (10 + GlobalCell.LOOP_LAG_NS) / 1e9
    assert scrape.value("tickpath_gc_pause_seconds_count") == 10 + GlobalCell.GC_PAUSES
    assert scrape.value("tickpath_gc_pause_seconds_sum") == (10 + GlobalCell.GC_PAUSE_NS) / 1e9
    assert scrape.value("tickpath_loads_failed_total") == 10 + GlobalCell.LOADS_FAILED
    assert scrape.value("tickpath_quiet") == 10 + GlobalCell.QUIET
    for base, name in ((100, "fast"), (200, "slow")):
        assert scrape.value("tickpath_in_flight", model=name) == base + VersionCell.IN_FLIGHT
        assert scrape.value("tickpath_queue_depth", model=name) == base + VersionCell.QUEUE_DEPTH
        for stage, late in LATE.items():
            assert scrape.value("tickpath_deadline_misses_total", model=name, stage=stage) == base + late
        assert scrape.value("tickpath_feed_warm_up_total", model=name) == base + VersionCell.WARM_UP
        assert scrape.value("tickpath_reloads_total", model=name) == base + VersionCell.RELOADS
        assert scrape.value("tickpath_reload_gap_seconds", model=name) == (base + VersionCell.RELOAD_GAP_NS) / 1e9
        for counter, of_shadow in OF_SHADOW.items():
            assert scrape.value(counter, model=name) == base + of_shadow
        assert scrape.value("tickpath_model_ready", model=name) == 1
    assert scrape.value("tickpath_padded_rows_total", model="fast") == 100 + VersionCell.PADDED_ROWS + 1
    for code in Code:
        assert scrape.value("tickpath_requests_total", model=NO_MODEL, code=code.name) == code
        assert scrape.value("tickpath_requests_total", model="slow", version="2", code=code.name) == code
    assert scrape.value("tickpath_superseded_total", model="slow") == Code.SUPERSEDED
    assert scrape.value("tickpath_requests_total", model="fast", version="1", code="OK") == 1
    assert scrape.value("tickpath_graph_replays_total", model="fast", bucket="4") == 1
    for kind in ("voluntary", "nonvoluntary"):
        assert scrape.value("tickpath_context_switches_total", kind=kind) >= 0
    assert scrape.value("process_resident_memory_bytes") > 0
    assert scrape.value("process_cpu_seconds_total") > 0
    assert scrape.value("tickpath_observer_process_resident_memory_bytes") > 0


def test_both_formats_are_valid_and_say_the_same(writer: RecordWriter, observer: Observing) -> None:
    write(writer, 0, lognormal_ns(50_000, 1_000))
    text_type, text = observer.get("/metrics", "text/plain")
    open_type, open_text = observer.get("/metrics", "application/openmetrics-text; version=1.0.0")
    assert text_type.startswith("text/plain; version=0.0.4")
    assert open_type.startswith("application/openmetrics-text")
    parsed = text_string_to_metric_families(open_text)  # type: ignore[no-untyped-call]  # the library has no types here
    families = {family.name: family for family in parsed}
    assert families["tickpath_request_duration_seconds"].type == "histogram"
    assert families["tickpath_requests"].type == "counter"
    scrape = Scrape(text)
    for name in ("tickpath_request_duration_seconds", "tickpath_stage_duration_seconds", "tickpath_requests"):
        openly = [sample._replace(exemplar=None) for sample in families[name].samples]
        assert sorted(map(str, scrape.families[name].samples)) == sorted(map(str, openly))
    check_histograms(scrape)
    assert observer.get("/metrics", "application/openmetrics-text; version=nonsense")[0].startswith("text/plain")


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_has_nothing_to_say(writer: RecordWriter, observer: Observing) -> None:
    write(writer, 0, lognormal_ns(50_000, 1_000))
    page = observer.get("/metrics")[1]
    result = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_histograms_and_quantiles_are_those_of_the_samples(writer: RecordWriter, observer: Observing) -> None:
    samples = lognormal_ns(50_000, 8_000)
    write(writer, 1, samples)
    scrape = observer.scrape()
    labels = {"model": "slow"}
    assert scrape.value("tickpath_request_latency_samples", **labels) == len(samples)
    for quantile in ("0.5", "0.99", "0.999"):
        expected = float(np.quantile(samples, float(quantile), method="inverted_cdf")) / 1e9
        value = scrape.value("tickpath_request_latency_seconds", quantile=quantile, **labels)
        assert value == pytest.approx(expected, rel=0.01)
    assert scrape.value("tickpath_request_duration_seconds_sum", **labels) == pytest.approx(sum(samples) / 1e9)
    for bound, count in scrape.buckets("tickpath_request_duration_seconds", **labels):
        assert count == sum(sample <= bound * 1e9 for sample in samples)
    rest = sum(samples) - 15 * len(samples)
    for stage, total_ns in zip(STAGES, [1, 2, 3, rest / len(samples), 4, 5], strict=True):
        expected = total_ns * len(samples) / 1e9
        assert scrape.value("tickpath_stage_duration_seconds_sum", stage=stage, **labels) == pytest.approx(expected)
    assert scrape.value("tickpath_request_latency_samples", model="fast") == 0


@pytest.mark.parametrize("median_ns", [5_000, 50_000, 5_000_000])
def test_a_tenfold_regression_moves_every_percentile(writer: RecordWriter, observer: Observing, median_ns: int) -> None:
    samples = lognormal_ns(median_ns, 3_000)
    write(writer, 0, samples)
    write(writer, 1, [10 * sample for sample in samples])
    scrape = observer.scrape()
    for quantile in ("0.5", "0.99", "0.999"):
        before, after = (
            scrape.value("tickpath_request_latency_seconds", model=model.name, quantile=quantile)
            for model in MODELS.versions
        )
        assert after / before == pytest.approx(10, rel=0.02)
    before_buckets, after_buckets = (
        scrape.buckets("tickpath_request_duration_seconds", model=model.name) for model in MODELS.versions
    )
    for percent in range(1, 100):
        ratio = histogram_quantile(percent / 100, after_buckets) / histogram_quantile(percent / 100, before_buckets)
        assert ratio == pytest.approx(10, rel=0.1)


def test_a_new_model_appears_and_the_old_one_keeps_its_counts(writer: RecordWriter, observer: Observing) -> None:
    write(writer, 0, [50_000] * 10)
    assert observer.scrape().value("tickpath_request_duration_seconds_count", model="fast") == 10
    third = VersionDescription("third", "1", "onnxruntime", "float16", "ef" * 32, "inline", (8,))
    writer.describe(CoreDescription(os.getpid(), (FAST, SLOW, third)))
    write(writer, 2, [1_000] * 3)
    scrape = observer.scrape()
    assert scrape.value("tickpath_request_duration_seconds_count", model="third") == 3
    assert scrape.value("tickpath_request_duration_seconds_count", model="fast") == 10
    assert scrape.value("tickpath_model_info", model="third", precision="float16") == 1


def test_two_versions_of_a_model_are_one_series_where_the_version_is_no_label(
    writer: RecordWriter, observer: Observing
) -> None:
    newer = VersionDescription("fast", "2", "onnxruntime", "float32", "ef" * 32, "inline", (1, 2, 4))
    writer.describe(CoreDescription(os.getpid(), (msgspec.structs.replace(FAST, role="loaded"), newer)))
    for place, gap_ns in enumerate((7_000_000, 3_000_000)):
        writer.set_version(place, VersionCell.RELOAD_GAP_NS, gap_ns)
        writer.add_version(place, VersionCell.RELOADS)
    write(writer, 0, [50_000] * 3)
    write(writer, 1, [50_000] * 2)
    scrape = observer.scrape()
    assert scrape.value("tickpath_request_duration_seconds_count", model="fast", version="1") == 3
    assert scrape.value("tickpath_request_duration_seconds_count", model="fast", version="2") == 2
    assert scrape.value("tickpath_stage_duration_seconds_count", model="fast", stage="send") == 5
    assert scrape.value("tickpath_request_latency_samples", model="fast") == 5
    assert scrape.value("tickpath_graph_replays_total", model="fast", bucket="1") == 5
    assert scrape.value("tickpath_reloads_total", model="fast") == 2
    assert scrape.value("tickpath_reload_gap_seconds", model="fast") == 0.003  # that of the live one


def test_a_core_that_has_no_model_yet_is_described_too() -> None:
    writer = RecordWriter()
    with observing(writer) as observer:
        assert observer.scrape().value("tickpath_sessions") == 0
        with pytest.raises(urllib.error.HTTPError, match="503"):
            observer.get("/readyz")
    writer.close()


def test_what_is_written_faster_than_read_is_seen_or_counted_as_lost(writer: RecordWriter, observer: Observing) -> None:
    written = 200_000
    write(writer, 0, [50_000] * written)
    scrape = observer.scrape()
    seen = scrape.value("tickpath_request_duration_seconds_count", model="fast")
    assert seen + scrape.value("tickpath_records_lost_total") == written
    assert scrape.value("tickpath_requests_total", model="fast", code="OK") == written
    assert scrape.value("tickpath_graph_replays_total", model="fast", bucket="1") == written


def test_a_record_of_a_model_that_was_never_described_counts_as_lost(writer: RecordWriter, observer: Observing) -> None:
    write(writer, len(MODELS.versions), [50_000] * 2)
    write(writer, 0, [50_000])
    scrape = observer.scrape()
    assert scrape.value("tickpath_records_lost_total") == 2
    assert scrape.value("tickpath_request_duration_seconds_count", model="fast") == 1


def test_a_stopped_observer_costs_records_and_no_count(writer: RecordWriter, observer: Observing) -> None:
    observer.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, observer.process.pid, os.WSTOPPED)
    write(writer, 0, [50_000] * 3 * layout.RING_RECORDS)
    observer.process.send_signal(signal.SIGCONT)
    scrape = observer.scrape()
    assert scrape.value("tickpath_request_duration_seconds_count", model="fast") == layout.RING_RECORDS - 1
    assert scrape.value("tickpath_records_lost_total") == 2 * layout.RING_RECORDS + 1
    assert scrape.value("tickpath_requests_total", model="fast", code="OK") == 3 * layout.RING_RECORDS


def test_a_killed_observer_is_followed_by_one_that_goes_on(writer: RecordWriter) -> None:
    """Killed at any moment, five times over, while the core writes on: no histogram goes down, and none misses one."""
    tally_fd, written, counted = os.memfd_create("tally"), 0, 0.0
    with ExitStack() as stack:
        first = stack.enter_context(observing(writer, tally_fd=tally_fd))
        watching = first
        for _ in range(5):
            for _ in range(20):
                write(writer, 0, [50_000] * 10)
                written += 10
            seen = watching.scrape().value("tickpath_request_duration_seconds_count", model="fast")
            assert seen >= counted
            counted = seen
            write(writer, 0, [50_000] * 100)
            written += 100
            watching.process.kill()
            watching.process.communicate()
            write(writer, 0, [50_000] * 20)
            written += 20
            watching = stack.enter_context(observing(writer, port=first.port, tally_fd=tally_fd))
            assert watching.url == first.url
        scrape = watching.scrape()
    os.close(tally_fd)
    assert scrape.value("tickpath_requests_total", model="fast", code="OK") == written
    assert scrape.value("tickpath_request_duration_seconds_count", model="fast") == written
    assert scrape.value("tickpath_request_duration_seconds_sum", model="fast") == pytest.approx(written * 50e-6)
    assert scrape.value("tickpath_records_lost_total") == 0


def test_counts_that_cannot_be_gone_on_from_are_one_line_and_begun_anew(writer: RecordWriter) -> None:
    tally_fd = os.memfd_create("tally")
    os.ftruncate(tally_fd, 100)
    write(writer, 0, [50_000])
    with observing(writer, tally_fd=tally_fd) as observer:
        assert observer.scrape().value("tickpath_request_duration_seconds_count", model="fast") == 1
        observer.process.terminate()
        _, errors = observer.process.communicate()
    os.close(tally_fd)
    assert "the observer's histograms begin anew: " in errors
    assert errors.count("\n") == 1


def test_two_cores_are_two_addresses_whose_counters_never_mix(writer: RecordWriter, observer: Observing) -> None:
    other = RecordWriter()
    other.describe(MODELS)
    with observing(other) as other_observer:
        for turn in range(1, 11):
            write(writer, 0, [50_000])
            write(other, 0, [50_000] * 100)
            for scraped, expected in ((observer, turn), (other_observer, 100 * turn)):
                assert scraped.scrape().value("tickpath_requests_total", model="fast", code="OK") == expected
    other.close()
