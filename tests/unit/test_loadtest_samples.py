"""Samples: readable while they are written; spans that add up."""

from pathlib import Path

import numpy as np

from tickpath.loadtest.samples import Samples

SERVER_NS = 10**15  # the server's clock has nothing to do with the client's


def stamps(*spans_ns: int) -> tuple[int, ...]:
    return tuple((SERVER_NS + np.cumsum([0, *spans_ns])).tolist())


def test_another_process_reads_what_was_measured_so_far(tmp_path: Path) -> None:
    reader = Samples.create(tmp_path / "samples", 10)
    writer = Samples.open(tmp_path / "samples")
    assert reader.answered == 0
    writer.record(0, 1_000, 1_200, 9_000, stamps(10, 20, 30, 40, 50))
    writer.record(1, 2_000, 9_100, 12_000, stamps(1, 2, 3, 4, 5))
    assert reader.answered == 2
    assert reader.latency_ns().tolist() == [8_000, 10_000]
    assert reader.lateness_ns().tolist() == [200, 7_100]
    assert reader.round_trip_ns().tolist() == [7_800, 2_900]


def test_stages_add_up_to_the_round_trip(tmp_path: Path) -> None:
    samples = Samples.create(tmp_path / "samples", 2)
    samples.record(0, 1_000, 1_200, 9_000, stamps(10, 20, 30, 40, 50))
    samples.record(1, 2_000, 9_100, 12_000, stamps(1, 2, 3, 4, 5))
    stages = samples.stages_ns()
    assert list(stages) == ["network", "receive", "queue", "input", "compute", "output"]
    assert stages["compute"].tolist() == [40, 4]
    assert np.array_equal(sum(stages.values()), samples.round_trip_ns())
