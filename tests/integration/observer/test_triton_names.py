"""Triton's names in /metrics: there when asked for, and the numbers behind tickpath's own."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.integration.observer.observing import FAST, MODELS, SLOW, Scrape, observing
from tests.serving import serve, write_zoo

from tickpath.client import BadValueError, Client
from tickpath.console.scrape import fetch
from tickpath.observe.records import RecordWriter, VersionCell
from tickpath.wire import Code

DURATIONS_NS = {
    "request": 15_000,
    "queue": 2_000,
    "compute_input": 3_000,
    "compute_infer": 4_000,
    "compute_output": 5_000,
}


def labels(version: object) -> dict[str, str]:
    return {"model": getattr(version, "name", ""), "version": getattr(version, "version", "")}


def test_counts_and_durations_are_tickpaths_own() -> None:
    writer = RecordWriter()
    writer.describe(MODELS)
    for rows, bucket_index, bucket in ((1, 0, 1), (3, 2, 4), (4, 2, 4)):
        # Stages of 1, 2, 3, 4, 5 and 0 µs.
        writer.answered(0, bucket_index, bucket, rows, 7, (0, 1_000, 3_000, 6_000, 10_000, 15_000), 15_000, 0)
    # Two requests that shared a run in a bucket of 4: the first stands for it, and for the row that only fills it.
    writer.answered(0, 2, 3, 2, 8, (0, 1_000, 3_000, 6_000, 10_000, 15_000), 15_000, 0)
    writer.answered(0, 2, 1, 1, 9, (0, 1_000, 3_000, 6_000, 10_000, 15_000), 15_000, 0, replays=0)
    for code in (Code.OVERLOADED, Code.DEADLINE, Code.SUPERSEDED, Code.CANCELLED, Code.ENGINE_FAILED, Code.BAD_SHAPE):
        writer.refused(0, code)
    writer.refused(None, Code.UNKNOWN_MODEL)
    writer.set_version(1, VersionCell.QUEUE_DEPTH, 4)
    with observing(writer, triton_names=True) as observer:
        scrape = observer.scrape()
        assert scrape.value("nv_inference_request_success", **labels(FAST)) == 5
        assert scrape.value("nv_inference_count", **labels(FAST)) == 1 + 3 + 4 + 2 + 1
        assert scrape.value("nv_inference_exec_count", **labels(FAST)) == 4
        failures = {"REJECTED": 3, "CANCELED": 1, "BACKEND": 1, "OTHER": 1}
        for reason, count in failures.items():
            assert scrape.value("nv_inference_request_failure", **labels(FAST), reason=reason) == count
        for name, ns in DURATIONS_NS.items():
            assert scrape.value(f"nv_inference_{name}_duration_us", **labels(FAST)) == 5 * ns // 1000
        assert scrape.value("nv_inference_pending_request_count", **labels(SLOW)) == 4
        assert scrape.value("nv_inference_count", **labels(SLOW)) == 0
        assert scrape.value("tickpath_requests_total", **labels(FAST), code="OK") == 5
        open_metrics = observer.get("/metrics", "application/openmetrics-text; version=1.0.0")[1]
        families = text_string_to_metric_families(open_metrics)  # type: ignore[no-untyped-call]
        assert {family.name for family in families} >= {"nv_inference_count", "tickpath_requests"}
    writer.close()


def test_they_are_not_there_unless_asked_for() -> None:
    writer = RecordWriter()
    writer.describe(MODELS)
    with observing(writer) as observer:
        assert "nv_" not in observer.get("/metrics")[1]
    writer.close()


def test_a_server_that_is_told_to_has_them() -> None:
    with tempfile.TemporaryDirectory() as folder:
        models = write_zoo(Path(folder), "mlp")
        with serve(Path(folder), models, observer_port=0, observer_triton_names=True) as server:
            with Client(server.uds) as client:
                for rows in (1, 3):
                    client.infer("mlp", {"x": np.zeros((rows, 64), np.float32)})
                with pytest.raises(BadValueError):
                    client.infer("mlp", {"x": np.full((1, 64), np.nan, np.float32)})
            assert server.ready.observer is not None
            scrape = Scrape("\n".join(fetch(server.ready.observer)))
    assert scrape.value("nv_inference_count", model="mlp", version="1") == 4
    assert scrape.value("nv_inference_exec_count", model="mlp", version="1") == 2
    assert scrape.value("nv_inference_request_failure", model="mlp", version="1", reason="OTHER") == 1
