"""The core's side of the shared memory: what each call counts, and that it can be closed."""

import os
from collections.abc import Iterator

import pytest

from tickpath.observe import records as layout
from tickpath.observe.reader import RecordReader, Totals
from tickpath.observe.records import (
    CoreDescription,
    GlobalCell,
    RecordWriter,
    VersionCell,
    VersionDescription,
    version_base,
)
from tickpath.wire import Code

STAMPS = (1, 2, 3, 4, 5, 6)


@pytest.fixture
def writer() -> Iterator[RecordWriter]:
    writer = RecordWriter()
    yield writer
    writer.close()


def counted(writer: RecordWriter) -> dict[int, int]:
    """The cells that are not 0."""
    totals: Totals = RecordReader(writer.fd).totals()
    return {int(cell): int(totals[cell]) for cell in totals.nonzero()[0]}


def test_a_new_core_is_starting_and_has_counted_nothing(writer: RecordWriter) -> None:
    assert layout.State(counted(writer).get(GlobalCell.STATE, 0)) is layout.State.STARTING
    assert counted(writer) == {}
    assert RecordReader(writer.fd).description() == CoreDescription(os.getpid(), ())


def test_cells_do_not_overlap() -> None:
    assert max(GlobalCell) + layout.CODE_COUNT == layout.GLOBAL_CELLS == version_base(0)
    assert VersionCell.CODES + layout.CODE_COUNT == VersionCell.REPLAYS
    assert VersionCell.REPLAYS + layout.BUCKETS_MAX == layout.VERSION_CELLS == version_base(1) - version_base(0)
    assert layout.TOTALS_OFFSET + 8 * version_base(layout.VERSIONS_MAX) == layout.HEAD_OFFSET


def test_every_cell_of_every_model_is_its_own(writer: RecordWriter) -> None:
    expected = {}
    for cell in GlobalCell:
        writer.set_cell(cell, 1000 + cell)
        expected[int(cell)] = 1000 + cell
    for model in (0, 1, layout.VERSIONS_MAX - 1):
        for of_model in VersionCell:
            writer.set_version(model, of_model, 100 * model + of_model + 1)
            expected[version_base(model) + of_model] = 100 * model + of_model + 1
    assert counted(writer) == expected


def test_counts_add_up_and_gauges_fall(writer: RecordWriter) -> None:
    for _ in range(3):
        writer.add(GlobalCell.PROTOCOL_ERRORS)
    writer.add(GlobalCell.GC_PAUSE_NS, 50)
    writer.add_version(1, VersionCell.IN_FLIGHT)
    writer.add_version(1, VersionCell.IN_FLIGHT)
    writer.add_version(1, VersionCell.IN_FLIGHT, -1)
    assert counted(writer) == {
        GlobalCell.PROTOCOL_ERRORS: 3,
        GlobalCell.GC_PAUSE_NS: 50,
        version_base(1) + VersionCell.IN_FLIGHT: 1,
    }


@pytest.mark.parametrize("code", Code)
def test_a_refusal_counts_under_its_code(writer: RecordWriter, code: Code) -> None:
    writer.refused(None, code)
    writer.refused(2, code)
    writer.refused(2, code)
    assert counted(writer) == {GlobalCell.CODES + code: 1, version_base(2) + VersionCell.CODES + code: 2}


def test_an_answer_counts_its_replay_and_its_padding(writer: RecordWriter) -> None:
    base = version_base(1)
    writer.answered(1, 3, 8, 8, 1, STAMPS, 7, 0)
    assert counted(writer) == {base + VersionCell.CODES + layout.OK: 1, base + VersionCell.REPLAYS + 3: 1}
    writer.answered(1, 3, 8, 5, 2, STAMPS, 7, 0)
    writer.answered(1, 0, 1, 1, 3, STAMPS, 7, 0)
    assert counted(writer) == {
        base + VersionCell.CODES + layout.OK: 3,
        base + VersionCell.REPLAYS: 1,
        base + VersionCell.REPLAYS + 3: 2,
        base + VersionCell.PADDED_ROWS: 3,
    }


def test_the_largest_ids_and_times_fit(writer: RecordWriter) -> None:
    most = 2**64 - 1
    writer.answered(0, 0, 1, 1, most, STAMPS, 7, most)
    (record,) = RecordReader(writer.fd).take()
    assert (record["id"], record["event_time_ns"]) == (most, most)


def test_as_many_models_as_there_are_places(writer: RecordWriter) -> None:
    models = [
        VersionDescription(f"{n:064}", "v" * 64, "onnxruntime", "float32", "0" * 64, "inline", tuple(range(1, 13)))
        for n in range(layout.VERSIONS_MAX + 1)
    ]
    writer.describe(CoreDescription(1, tuple(models[: layout.VERSIONS_MAX])))
    assert RecordReader(writer.fd).description().versions == tuple(models[: layout.VERSIONS_MAX])
    with pytest.raises(ValueError, match="1025 versions"):
        writer.describe(CoreDescription(1, tuple(models)))


def test_closing_leaves_what_a_reader_has() -> None:
    writer = RecordWriter()
    reader = RecordReader(writer.fd)
    writer.add(GlobalCell.SESSIONS_OPENED)
    writer.answered(0, 0, 1, 1, 5, STAMPS, 7, 0)
    writer.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(writer.fd)
    assert reader.totals()[GlobalCell.SESSIONS_OPENED] == 1
    assert reader.take()["id"].tolist() == [5]
