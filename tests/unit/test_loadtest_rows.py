"""The rows of a run: written by one process, read by another, whole whenever it stops."""

from pathlib import Path

import numpy as np

from tickpath.loadtest.rows import RowWriter, collect, create_rows, open_rows, reached
from tickpath.loadtest.run import INTERRUPTED, LOST, OK, PENDING, SKIPPED, UNSENT
from tickpath.wire import Code

STAMPS = (10, 11, 12, 13, 14, 15)


def test_the_parent_reads_what_the_sender_has_written_so_far(tmp_path: Path) -> None:
    mine = create_rows(tmp_path / "rows", 8)
    writer = RowWriter(open_rows(tmp_path / "rows"))
    assert reached(mine) == 0
    writer.sent(0, 1_000, 1_010, 3)
    assert (reached(mine), mine["code"][0]) == (1, PENDING)
    writer.done(0, 2_000, OK, STAMPS)
    writer.skipped(1, 1_100, 0)
    writer.sent(2, 1_200, 1_210, 1)
    writer.done(2, 2_200, Code.OVERLOADED, ())
    writer.sent(3, 1_300, 1_310, 1)
    writer.lost(3)
    writer.sent(4, 1_400, 1_410, 1)
    assert reached(mine) == 5
    assert mine["intended_ns"].tolist() == [1_000, 1_100, 1_200, 1_300, 1_400, 0, 0, 0]
    assert mine["sent_ns"].tolist() == [1_010, 0, 1_210, 1_310, 1_410, 0, 0, 0]
    assert mine["done_ns"].tolist() == [2_000, 0, 2_200, 0, 0, 0, 0, 0]
    assert mine["code"].tolist()[:5] == [OK, SKIPPED, Code.OVERLOADED, LOST, PENDING]
    assert mine["connection"].tolist()[:5] == [3, 0, 1, 1, 1]
    assert mine["stamps_ns"][0].tolist() == list(STAMPS)
    assert not mine["stamps_ns"][1:].any()


def test_rows_not_reached_are_unsent_or_left_out(tmp_path: Path) -> None:
    rows = create_rows(tmp_path / "rows", 6)
    writer = RowWriter(rows)
    for index in range(4):
        writer.sent(index, 100 * index, 100 * index + 1, 0)
        writer.done(index, 100 * index + 50, OK, ())
    kept = collect(rows, warmup=2, keep_unsent=True)
    assert kept["code"].tolist() == [OK, OK, UNSENT, UNSENT]
    assert kept["intended_ns"].tolist() == [200, 300, 0, 0]
    assert collect(rows, warmup=2, keep_unsent=False)["intended_ns"].tolist() == [200, 300]


def test_a_run_that_ended_in_its_warm_up_has_no_rows(tmp_path: Path) -> None:
    rows = create_rows(tmp_path / "rows", 6)
    RowWriter(rows).sent(0, 1, 1, 0)
    assert collect(rows, warmup=2, keep_unsent=True)["code"].tolist() == [UNSENT] * 4
    assert len(collect(rows, warmup=2, keep_unsent=False)) == 0


def test_what_is_collected_does_not_change_any_more(tmp_path: Path) -> None:
    rows = create_rows(tmp_path / "rows", 1)
    kept = collect(rows, warmup=0, keep_unsent=True)
    RowWriter(rows).sent(0, 1, 1, 0)
    assert np.array_equal(kept["code"], [UNSENT])


def test_a_row_that_its_writer_was_killed_over_is_left_out(tmp_path: Path) -> None:
    """All of it but the code, which comes last, or all zeros but the times before."""
    rows = create_rows(tmp_path / "rows", 5)
    writer = RowWriter(rows)
    for index in range(3):
        writer.sent(index, 100 * index, 100 * index + 1, 0)
        writer.done(index, 100 * index + 50, OK, STAMPS)
    rows["intended_ns"][2], rows["sent_ns"][2], rows["done_ns"][2], rows["code"][2] = 200, 201, 0, OK
    kept = collect(rows, warmup=0, keep_unsent=True)
    assert kept["code"].tolist() == [OK, OK, UNSENT, UNSENT]
    assert kept["done_ns"].tolist() == [50, 150, 0, 0]


def test_what_was_in_flight_is_pending_or_interrupted(tmp_path: Path) -> None:
    rows = create_rows(tmp_path / "rows", 3)
    writer = RowWriter(rows)
    for index in range(2):
        writer.sent(index, 100 * index, 100 * index + 1, 0)
    writer.done(0, 50, OK, STAMPS)
    assert collect(rows, warmup=0, keep_unsent=True)["code"].tolist() == [OK, PENDING, UNSENT]
    assert collect(rows, warmup=0, keep_unsent=True, interrupted=True)["code"].tolist() == [OK, INTERRUPTED, UNSENT]
