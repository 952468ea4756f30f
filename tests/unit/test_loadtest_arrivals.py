"""Arrival times from files: real ones, every kind and unit, and one line for whatever is wrong."""

import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from tests.inputs import inputs_root

from tickpath.loadtest.arrivals import NS_PER, Unit, read_arrivals
from tickpath.loadtest.errors import LoadTestError
from tickpath.loadtest.schedule import Replay

START_NS = 1_703_545_200_105_900_877  # a time of day: nanoseconds, with digits that a float loses


def market_data() -> Path:
    root = inputs_root()
    if root is None:
        pytest.skip("needs the folder of real inputs (TICKPATH_INPUTS)")
    return root / "market_data" / "nautilus"


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_plain_text_is_nanoseconds(tmp_path: Path) -> None:
    path = written(tmp_path / "arrivals.txt", "0\n250\n\n250\n 1000000 \n")
    assert read_arrivals(path).tolist() == [0, 250, 250, 1_000_000]


def test_a_column_alone_need_not_be_named(tmp_path: Path) -> None:
    path = written(tmp_path / "arrivals.csv", f"time\n{START_NS}\n{START_NS + 1}\n")
    assert read_arrivals(path).tolist() == [START_NS, START_NS + 1]


@pytest.mark.parametrize("unit", NS_PER)
def test_the_unit_of_a_time_of_day_shows_and_no_digit_is_lost(tmp_path: Path, unit: Unit) -> None:
    times = [Decimal(START_NS + step) / NS_PER[unit] for step in (0, 0, 1, 999)]
    path = written(tmp_path / "arrivals.csv", "price,time\n" + "".join(f"1,{time}\n" for time in times))
    expected = [START_NS, START_NS, START_NS + 1, START_NS + 999]
    assert read_arrivals(path, "time").tolist() == expected
    assert read_arrivals(path, "time", unit).tolist() == expected


@pytest.mark.parametrize("unit", NS_PER)
def test_a_named_unit_is_taken_for_times_from_any_start(tmp_path: Path, unit: Unit) -> None:
    path = written(tmp_path / "arrivals.csv", "time\n5\n7.5\n")
    assert read_arrivals(path, "time", unit).tolist() == [5 * NS_PER[unit], round(7.5 * NS_PER[unit])]


@pytest.mark.parametrize(
    ("name", "text", "unit", "message"),
    [
        ("empty.txt", "", None, "empty.txt has no arrival times: name a file with at least one"),
        ("empty.csv", "", None, "empty.csv: name a column; it has none"),
        ("header.csv", "time\n", None, "header.csv has no arrival times"),
        ("back.txt", "5\n\n9\n7\n9\n2\n", None, "line 4: 2 ns before the time above it, the first of 2 such: sort"),
        ("back.csv", "time\n5\n4\n", "us", "line 3: 1,000 ns before"),
        ("word.txt", "1\n2\n2024-01-01\n", None, "line 3: a number was expected, '2024-01-01' came"),
        ("nan.csv", "time\nnan\n", "ns", "line 2: a number was expected, 'nan' came"),
        ("huge.txt", "1\n1e999999999\n", None, "line 2: a number was expected, '1e999999999' came"),
        ("bare.csv", "1585699200\n1585699201\n", None, "line 1: the column's name was expected, a number came"),
        ("field.csv", f"time\n{'1' * 200_000}\n", "ns", "line 2: it can't be read as CSV: field larger"),
        ("short.csv", "other,time\n1,2\n3\n", "ns", "line 3: a number was expected, '' came"),
        ("bytes.txt", "\x01\x8b\x08", None, r"line 1: a number was expected, '\\x01\\x8b\\x08' came"),
        ("unknown.csv", "time\n0\n7\n", None, "0 to 7 may be in any unit: name it, one of ns, us, ms, s"),
        (
            "ms.txt",
            "1667346579146\n1667346579150\n",
            None,
            "ns was expected, 1667346579146 looks like ms .* the unit ms",
        ),
        ("us.csv", "time\n1585699200355684\n", "ms", "ms was expected, .* looks like us since 1970: name the unit us"),
        ("far.csv", "time\n0\n99999999999\n", "s", "beyond 292 years in nanoseconds: name another unit"),
        ("other.csv", "a,b\n1,2\n", None, "there is no column 'time'; it has a, b"),
        ("column.txt", "1\n", None, "is plain text, it has no column 'time'"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, name: str, text: str, unit: Unit | None, message: str) -> None:
    column = "time" if name in ("other.csv", "column.txt", "short.csv") else None
    with pytest.raises(LoadTestError, match=message) as raised:
        read_arrivals(written(tmp_path / name, text), column, unit)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LoadTestError, match=r"no\.csv can't be read: No such file"):
        read_arrivals(tmp_path / "no.csv")
    with pytest.raises(LoadTestError, match="can't be read: Is a directory"):
        read_arrivals(tmp_path)


class TestParquet:
    @staticmethod
    def path(folder: Path, **columns: object) -> Path:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.table(columns), folder / "arrivals.parquet")
        return folder / "arrivals.parquet"

    @pytest.mark.parametrize("unit", ["ns", "us", "ms"])
    def test_a_timestamp_has_its_unit(self, tmp_path: Path, unit: Unit) -> None:
        times = np.array([START_NS, START_NS]) // NS_PER[unit]
        path = self.path(tmp_path, time=times.astype(f"datetime64[{unit}]"), price=[1.0, 2.0])
        assert read_arrivals(path, "time").tolist() == (times * NS_PER[unit]).tolist()
        with pytest.raises(LoadTestError, match=f"says that its times are {unit}, s was named: leave the unit out"):
            read_arrivals(path, "time", "s")

    def test_numbers_and_text(self, tmp_path: Path) -> None:
        assert read_arrivals(self.path(tmp_path, a=[START_NS, START_NS + 1])).tolist() == [START_NS, START_NS + 1]
        assert read_arrivals(self.path(tmp_path, a=[0.25, 0.5]), unit="us").tolist() == [250, 500]
        assert read_arrivals(self.path(tmp_path, a=["7", "8"]), unit="ns").tolist() == [7, 8]

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ([3, 2], "row 2: 1 ns before"),
            ([1, None], "1 of 2 times are missing: leave them out"),
            (["x"], "row 1: a number was expected, 'x' came"),
            (np.array([2**64 - 1], np.uint64), "can't be read as Parquet"),
        ],
    )
    def test_what_is_wrong_is_one_line(self, tmp_path: Path, values: object, message: str) -> None:
        with pytest.raises(LoadTestError, match=message):
            read_arrivals(self.path(tmp_path, time=values), unit="ns")

    def test_other_bytes(self, tmp_path: Path) -> None:
        pytest.importorskip("pyarrow")
        with pytest.raises(LoadTestError, match="can't be read as Parquet"):
            read_arrivals(written(tmp_path / "a.parquet", "a,b\n"))

    def test_a_real_file(self) -> None:
        pytest.importorskip("pyarrow")
        times_ns = read_arrivals(market_data() / "binance__btcusdt-trades.parquet", "timestamp")
        assert (len(times_ns), times_ns[0], times_ns[-1]) == (2001, 1610064000278000000, 1610064046355000000)


class TestDbn:
    SNAPSHOT = 8725  # records of one time, before the first live one

    @pytest.fixture
    def path(self) -> Path:
        pytest.importorskip("databento_dbn")
        return market_data() / "databento__esh4-glbx-mdp3-20231225.mbo.dbn.zst"

    def test_a_day_of_orders(self, path: Path) -> None:
        times_ns = read_arrivals(path)
        gaps_ns = np.diff(times_ns)
        assert (len(times_ns), times_ns[0], times_ns[-1]) == (68_792, 1703462400000000000, 1703548799446821072)
        assert (gaps_ns[: self.SNAPSHOT - 1] == 0).all()
        assert np.count_nonzero(gaps_ns == 0) == 21_848
        assert gaps_ns[self.SNAPSHOT - 1] > 21 * 3600 * 10**9  # the night before the first live record

    def test_replayed_without_the_snapshot(self, path: Path) -> None:
        times_ns = read_arrivals(path)
        offsets_ns = Replay(times_ns, path.name, speed=10, skip=self.SNAPSHOT).offsets_ns()
        assert len(offsets_ns) == 60_067
        assert np.abs(np.diff(offsets_ns) * 10 - np.diff(times_ns[self.SNAPSHOT :])).max() <= 10  # whole nanoseconds

    def test_times_of_the_venue_may_go_back(self, path: Path) -> None:
        assert len(read_arrivals(path, "ts_event")) == 68_792
        with pytest.raises(LoadTestError, match="times are ts_recv and ts_event, 'price' came"):
            read_arrivals(path, "price")

    @pytest.mark.parametrize(
        ("byte_count", "message"),
        [(0, "no record with ts_recv"), (100, "no record"), (500_000, "ends within a record, it has been cut off")],
    )
    def test_cut_off(self, path: Path, tmp_path: Path, byte_count: int, message: str) -> None:
        cut = tmp_path / "cut.dbn.zst"
        cut.write_bytes(path.read_bytes()[:byte_count])
        with pytest.raises(LoadTestError, match=message):
            read_arrivals(cut)

    def test_other_bytes(self, tmp_path: Path) -> None:
        pytest.importorskip("databento_dbn")
        with pytest.raises(LoadTestError, match="can't be read as DBN"):
            read_arrivals(written(tmp_path / "a.dbn", "time\n" + "1\n" * 1000))


@pytest.mark.parametrize(("name", "package"), [("a.dbn", "databento_dbn"), ("a.parquet", "pyarrow")])
def test_what_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(LoadTestError, match=r"can't be read: pip install 'tickpath\[replay\]'"):
        read_arrivals(written(tmp_path / name, "?"))
