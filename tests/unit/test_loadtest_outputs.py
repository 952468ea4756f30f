"""Where figures go: each file as it is named, none twice, all that can be written, and why one can't."""

import csv
import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
from tests.runs import make_comparison, make_goodput, make_run

from tickpath.loadtest.errors import LoadTestError, UsageError
from tickpath.loadtest.outputs import Outputs
from tickpath.loadtest.run import LOST, PENDING

FULL = Path("/dev/full")
"""No byte can be written to it."""


def test_each_file_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {kind: tmp_path / f"r.{kind}" for kind in ("json", "html", "png", "hgrm")}
    outputs = Outputs(**{f"{kind}_path": path for kind, path in names.items()}, samples_path=tmp_path / "r.npy")
    outputs.check()
    run = make_run(count=400)
    assert outputs.report([run])
    assert names["png"].read_bytes().startswith(b"\x89PNG")
    assert np.array_equal(np.load(tmp_path / "r.npy"), run.rows)
    assert all(path.stat().st_size for path in names.values())
    assert not Outputs(hgrm_path=names["hgrm"]).report([run, make_run(codes={LOST: 999})])
    assert {path.name for path in tmp_path.glob("*-*")} == {"r-1.hgrm", "r-2.hgrm"}
    assert "where it went" in capsys.readouterr().out


def test_csv_on_stdout_is_alone_there(capsys: pytest.CaptureFixture[str]) -> None:
    Outputs(csv_path=Path("-")).report([make_run()])
    out, err = capsys.readouterr()
    assert out.startswith("Concurrency,Inferences/Second,")
    assert "p99.9" in err


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        (Outputs(json_path=Path("nowhere/r.json")), "there is no folder nowhere"),
        (Outputs(json_path=Path(".")), "is a folder"),
        (Outputs(samples_path=Path("/proc/nothing")), "/proc/nothing can't be written: No such file"),
    ],
)
def test_what_cant_be_written_is_said_before_anything_is_measured(outputs: Outputs, said: str) -> None:
    with pytest.raises(LoadTestError, match=said):
        outputs.check()


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        (Outputs(json_path=Path("r"), csv_path=Path("r")), "--json and --csv both go to r"),
        (Outputs(json_path=Path("-"), csv_path=Path("-")), "--json and --csv both go to -"),
        (Outputs(html_path=Path("r"), png_path=Path("./x/../r")), "--html and --png both go to x/../r"),
        (Outputs(html_path=Path("-")), "--html can't go to stdout"),
    ],
)
def test_a_file_for_each(outputs: Outputs, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").mkdir()
    with pytest.raises(UsageError, match=said):
        outputs.check()


def test_looking_whether_a_file_can_be_written_changes_nothing(tmp_path: Path) -> None:
    old, link = tmp_path / "old", tmp_path / "link"
    old.write_text("of yesterday")
    link.symlink_to(tmp_path / "new")
    Outputs(json_path=old, csv_path=link, png_path=tmp_path / "none").check()
    assert old.read_text() == "of yesterday"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "old"]


def test_a_pipe_is_left_to_its_reader(tmp_path: Path) -> None:
    """Opening it would wait for one."""
    os.mkfifo(tmp_path / "pipe")
    Outputs(json_path=tmp_path / "pipe").check()


def test_a_file_that_can_not_be_written_skips_no_other(tmp_path: Path) -> None:
    outputs = Outputs(json_path=FULL, csv_path=tmp_path / "r.csv", hgrm_path=FULL, samples_path=tmp_path / "rows")
    with pytest.raises(LoadTestError) as caught:
        outputs.report([make_run(count=400)])
    assert str(caught.value) == "; ".join(2 * ["/dev/full can't be written: No space left on device"])
    assert (tmp_path / "r.csv").read_text()
    assert len(np.load(tmp_path / "rows")) == 400


def test_samples_keep_the_name_they_are_given(tmp_path: Path) -> None:
    Outputs(samples_path=tmp_path / "foo.txt").report([make_run(count=40)])
    Outputs(samples_path=tmp_path / "bar").report([make_run(count=40), make_run(count=40)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bar-1", "bar-2", "foo.txt"]


def test_a_search_is_told_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    goodput = make_goodput()
    runs = [probe.run for probe in goodput.probes]
    Outputs(json_path=Path("-"), csv_path=tmp_path / "r.csv").report(runs, goodput=goodput)
    out, err = capsys.readouterr()
    assert json.loads(out)["goodput"]["rate_hz"] == 1000
    assert goodput.describe() in err.splitlines()
    assert len(list(csv.DictReader(io.StringIO((tmp_path / "r.csv").read_text())))) == 3


def test_a_comparison_is_told_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = Outputs(json_path=tmp_path / "r.json", csv_path=Path("-"))
    assert outputs.report_comparison("a:1", "b:2", make_comparison())
    assert not outputs.report_comparison("a:1", "b:2", make_comparison("the sender was late"))
    found = json.loads((tmp_path / "r.json").read_bytes())
    assert (found["a"], found["b"], found["valid"]) == ("a:1", "b:2", False)
    assert found["invalid_reasons"] == ["the sender was late"]
    p50, p99 = found["differences"]
    assert (p50["percentile"], p50["claimed"], p50["ratio"]["low"]) == ("p50", True, 1.4)
    assert (p99["claimed"], p99["claimable"]) == (False, pytest.approx(1 / 0.98 - 1))
    out, err = capsys.readouterr()
    lines = list(csv.DictReader(io.StringIO(out)))
    assert [line["B / A"] for line in lines[:2]] == ["1.5000", "1.0000"]
    assert lines[0]["verdict"] == "valid"
    assert "p50: B is 50.0% slower" in err


def test_pictures_of_nothing_say_so(tmp_path: Path) -> None:
    outputs = Outputs(png_path=tmp_path / "r.png", html_path=tmp_path / "r.html")
    assert not outputs.report([make_run(codes={PENDING: 2000})])
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
    assert "INVALID: no request was answered" in (tmp_path / "r.html").read_text()
