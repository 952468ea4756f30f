"""Reports of runs whose numbers are known: what they say, that it adds up, and that nothing gets through them."""

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from tests.runs import START_NS, make_goodput, make_run

from tickpath.loadtest.outputs import Outputs
from tickpath.loadtest.report.figures import LATE_NS, Gaps, figures
from tickpath.loadtest.report.files import CSV_COLUMNS, csv_text, hgrm_bytes, json_bytes
from tickpath.loadtest.report.page import page
from tickpath.loadtest.report.plots import TITLE_LETTERS, picture, spectrum_svg
from tickpath.loadtest.report.terminal import report_parts
from tickpath.loadtest.run import GAP, INTERRUPTED, LOST, OK, PENDING, ROW, SKIPPED, UNSENT, Run
from tickpath.loadtest.series import NotRun
from tickpath.wire import Code

PERF_ANALYZER = (
    "Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,"
    "Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency"
)
HOSTILE = '<script>alert("1")</script> & </svg>'


def text_of(*runs: Run, width: int = 80) -> str:
    """What a terminal of this width shows."""
    with io.StringIO() as file:
        Console(file=file, width=width, highlight=False, markup=False).print(
            *report_parts([figures(run) for run in runs]), sep="\n"
        )
        return file.getvalue()


def read_json(*runs: Run) -> list[dict[str, Any]]:
    """The runs of a JSON report."""
    document = json.loads(json_bytes([figures(run) for run in runs]))
    assert document["schema"] == "tickpath-loadtest-1"
    found: list[dict[str, Any]] = document["runs"]
    return found


def read_csv(*runs: Run) -> list[dict[str, str]]:
    """The lines of a CSV report."""
    return list(csv.DictReader(io.StringIO(csv_text([figures(run) for run in runs]))))


@pytest.mark.parametrize("stamps", [True, False])
@pytest.mark.parametrize("freeze_s", [None, (0.5, 0.7)])
def test_stages_add_up_to_the_latency(stamps: bool, freeze_s: tuple[float, float] | None) -> None:
    found = figures(make_run(stamps=stamps, freeze_s=freeze_s, codes={Code.DEADLINE: 30, LOST: 20}))
    assert found.latency is not None
    assert sum(found.stage_means_ns.values()) == pytest.approx(found.latency.mean_ns)
    assert list(found.stage_means_ns)[:2] == ["send lateness", "network" if stamps else "round trip"]


def test_every_request_is_counted_once() -> None:
    codes = {Code.DEADLINE: 5, Code.OVERLOADED: 4, 99: 3, PENDING: 7, SKIPPED: 6, UNSENT: 2, LOST: 1, INTERRUPTED: 8}
    found = figures(make_run(codes=codes))
    assert found.errors == {"DEADLINE": 5, "OVERLOADED": 4, "code 99": 3}
    assert found.unmeasured == {"skipped": 6, "unsent": 2, "pending": 7, "lost": 1, "interrupted": 8}
    assert found.answered + sum(found.faults.values()) == 2000
    assert found.sent == 2000 - 6 - 2


def test_in_flight_span_and_gaps_are_those_of_the_run() -> None:
    rows = np.zeros(4, ROW)
    rows["intended_ns"] = rows["sent_ns"] = START_NS + np.array([0, 10, 20, 30])
    rows["done_ns"] = START_NS + np.array([20, 40, 50, 0])
    rows["code"] = [OK, OK, OK, PENDING]
    rows["sent_ns"][3] += LATE_NS + 1
    rows["done_ns"][3] = 0
    gaps = np.array([(0, LATE_NS + 7), (200_000, 450_000)], GAP)
    run = Run("t", "m", "s", True, 1, rows, np.zeros(0, np.int64), "complete", "", 150_000, gaps)
    found = figures(run)
    assert found.in_flight_max == 2  # the first is answered just as the third leaves
    assert found.span_s == 150e-6
    assert found.completed_hz == pytest.approx(20_000)
    assert found.late == 1
    assert found.gaps == Gaps(2, 350_007, 250_000)
    assert "held up 2 times for more than 100 µs: 350.0 µs in all, 250.0 at most" in " ".join(text_of(run).split())
    assert read_json(run)[0]["sender_gaps"] == {"count": 2, "total_ns": 350_007, "max_ns": 250_000}
    assert "held up 2 times" in page([found])


def test_the_terminal_says_what_the_rows_say() -> None:
    run = make_run(count=20_000, codes={Code.DEADLINE: 3})
    said = text_of(run, width=200)
    p50, p999 = np.quantile(run.latency_ns(), [0.5, 0.999], method="inverted_cdf") / 1000
    assert re.search(rf"p50 +{p50:.1f} ", said)
    assert re.search(rf"p99\.9 +{p999:.1f} ", said)
    assert re.search(r"p99\.99 +~\d", said)
    assert "19,997 of 20,000 requests answered with a prediction" in said
    assert "3 DEADLINE" in said
    assert "95% interval" in said
    assert "INVALID" not in said


@pytest.mark.parametrize("count", [1, 2, 53, 2000])
@pytest.mark.parametrize("freeze_s", [None, (0.0, 5.0)])
def test_the_terminal_keeps_to_80_letters(count: int, freeze_s: tuple[float, float] | None) -> None:
    run = make_run(count=count, freeze_s=freeze_s, target="tickpath 0.1.0 at unix:/run/" + 100 * "x")
    said = text_of(run) + text_of(run, run)
    assert max(map(len, said.splitlines())) <= 80
    assert "…" not in said


def test_a_run_that_is_not_to_be_trusted_says_so_everywhere() -> None:
    run = make_run(codes={LOST: 500}, ending="server lost", reason="the server closed the connection")
    assert "INVALID: the server was lost" in text_of(run)
    assert "INVALID" in text_of(run, make_run())
    assert "INVALID: the server was lost" in page([figures(run)])
    found, good = read_json(run, make_run())
    assert (found["valid"], good["valid"]) == (False, True)
    assert found["invalid_reasons"]
    assert [line["verdict"] for line in read_csv(run, make_run())] == ["INVALID", "valid"]


def test_a_run_without_an_answer_has_no_percentiles() -> None:
    run = make_run(codes={PENDING: 2000})
    assert read_json(run)[0]["latency"] is None
    assert read_csv(run)[0]["p99 latency"] == ""
    assert "INVALID: no request was answered" in text_of(run)
    assert text_of(run, run).count("INVALID") == 4
    assert hgrm_bytes(figures(run)) == b""
    assert "INVALID: no request was answered" in page([figures(run), figures(run)])


def test_csv_begins_with_the_columns_of_perf_analyzer() -> None:
    text = csv_text([figures(make_run())])
    assert text.startswith(PERF_ANALYZER + ",p99.9 latency,p99.99 latency,max latency,count,late sends,skipped,errors,")
    assert len(set(CSV_COLUMNS)) == len(CSV_COLUMNS)


def test_csv_adds_up_in_microseconds() -> None:
    run = make_run(codes={SKIPPED: 7, Code.DEADLINE: 5, LOST: 2, PENDING: 1})
    (line,) = read_csv(run)
    stages = PERF_ANALYZER.split(",")[2:9]
    assert sum(float(line[stage]) for stage in stages) == pytest.approx(run.latency_ns().mean() / 1000, abs=0.5)
    assert float(line["max latency"]) == pytest.approx(run.latency_ns().max() / 1000, abs=0.05)
    assert (line["skipped"], line["errors"], line["unanswered"], line["count"]) == ("7", "5", "3", "1985")
    assert line["schedule"] == "constant 1,000/s"


def test_hgrm_is_the_distribution_to_three_digits() -> None:
    run = make_run(count=20_000, freeze_s=(3, 4))
    text = hgrm_bytes(figures(run)).decode()
    lines = [line.split() for line in text.splitlines() if re.match(r" +\d", line)]
    ascending_us = np.sort(run.latency_ns()) / 1000
    for value, _, count, *_ in lines:
        assert float(value) == pytest.approx(ascending_us[int(count) - 1], rel=0.002)
    assert int(lines[-1][2]) == 20_000
    deviation = re.search(r"StdDeviation += +([\d.]+)", text)
    assert deviation is not None
    assert float(deviation[1]) == pytest.approx(run.latency_ns().std() / 1000, rel=0.01)


def test_the_page_needs_nothing_but_itself_and_escapes_all() -> None:
    run = make_run(target=HOSTILE, model=HOSTILE, ending="server lost", reason=HOSTILE, codes={LOST: 9})
    html = page([figures(run), figures(make_run(rate_hz=500))])
    assert "<script" not in html
    assert html.count("&lt;script&gt;") >= 4
    assert html.count("<svg") == html.count("</svg>") == 7
    outside = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?(?!#)([^"')>\s]+)""", html)
    assert outside == []
    assert "prefers" in html or "light-dark(" in html
    assert 'name="viewport"' in html


def test_the_same_numbers_make_the_same_page() -> None:
    assert page([figures(make_run())]) == page([figures(make_run())])


def test_a_schedule_that_looks_like_mathematics_is_drawn_as_it_is() -> None:
    runs = [figures(make_run(rate_hz=rate_hz)) for rate_hz in (500, 1000)]
    named = [figures(_named(found.run, f"$x_{place}$ <b>")) for place, found in enumerate(runs)]
    svg = spectrum_svg(named)
    assert "$x_0$ &lt;b&gt;" in svg


def _named(run: Run, schedule: str) -> Run:
    return replace(run, schedule=schedule)


def test_a_count_of_one_is_no_plural() -> None:
    run = make_run(count=1)
    assert "1 of 1 request answered" in text_of(run)
    assert "1 of 1 request answered" in page([figures(run)])
    assert "1 answer nobody asked for" in text_of(replace(run, unasked=1), width=200)
    assert "2 answers nobody asked for" in text_of(replace(run, unasked=2), width=200)


def test_goodput_stands_beside_the_runs_it_was_found_by() -> None:
    goodput = make_goodput()
    all_figures = [figures(probe.run) for probe in goodput.probes]
    document = json.loads(json_bytes(all_figures, goodput=goodput))
    found, probes = document["goodput"], document["goodput"]["probes"]
    assert (found["percentile"], found["limit_ns"], found["rate_hz"]) == (99, 250_000, 1000)
    assert [probe["passed"] for probe in probes] == [True, False, True]
    assert [probe["total"] for probe in probes] == [run["requests"]["meant"] for run in document["runs"]]
    assert [bool(probe["reason"]) for probe in probes] == [False, True, False]
    lines = list(csv.DictReader(io.StringIO(csv_text(all_figures, goodput=goodput))))
    assert [line["passed"] for line in lines] == ["yes", "no", "yes"]
    assert {line["goodput"] for line in lines} == {"1000.0"}
    assert lines[1]["reason"] == probes[1]["reason"]
    assert "goodput" not in json.loads(json_bytes(all_figures))


def test_a_picture_says_what_it_shows_and_cuts_none_of_it_off() -> None:
    run = _named(make_run(codes={LOST: 500}), 5 * "replay of a file with a long name, ")
    title = picture(figures(run)).get_suptitle()
    assert max(map(len, title.splitlines())) <= TITLE_LETTERS
    said = title.replace("\n", " ")
    assert run.schedule.strip() in said
    assert f"INVALID: {figures(run).invalid[0]}" in said


def test_dashes_stand_for_the_uncorrected_alone() -> None:
    all_figures = [figures(make_run(rate_hz=rate_hz, count=round(2 * rate_hz))) for rate_hz in (500, 1000)]
    dashed = [spectrum_svg(shown).count("stroke-dasharray: ") for shown in (all_figures[:1], all_figures)]
    assert dashed[0] > 0 == dashed[1]
    assert "beyond in some run" in spectrum_svg(all_figures)
    assert "beyond)" in spectrum_svg(all_figures[:1])


def test_no_browser_breaks_the_name_of_a_flag() -> None:
    assert "<code>--connections</code>" in page([figures(make_run(codes={SKIPPED: 500}))])


NOT_RUN = NotRun(("constant 2,000/s", "constant 3,000/s"), "nobody listens")


def test_what_was_not_run_is_told_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = {kind: tmp_path / f"r.{kind}" for kind in ("json", "csv", "html")}
    outputs = Outputs(**{f"{kind}_path": path for kind, path in paths.items()})
    for runs in ([make_run()], [make_run(), make_run()]):
        assert outputs.report(runs, NOT_RUN)
        shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
        assert "NOT RUN: constant 2,000/s, constant 3,000/s; nobody listens" in shown
        assert NOT_RUN.describe() in paths["html"].read_text("utf-8")
        told = {"schedules": ["constant 2,000/s", "constant 3,000/s"], "reason": "nobody listens"}
        assert json.loads(paths["json"].read_bytes())["not_run"] == told
        *made, first, second = csv.DictReader(io.StringIO(paths["csv"].read_text("utf-8")))
        assert [line["ending"] for line in made] == ["complete"] * len(runs)
        filled = {name: value for name, value in first.items() if value}
        assert filled == {
            "verdict": "not run",
            "schedule": "constant 2,000/s",
            "ending": "not run: nobody listens",
        }
        assert second["schedule"] == "constant 3,000/s"


def test_what_an_interrupted_run_did_not_come_to_has_not_failed() -> None:
    ended = make_run(codes={UNSENT: 1500, PENDING: 3}, ending="interrupted", reason="stopped early by Ctrl-C")
    complete = make_run(codes={UNSENT: 1500, PENDING: 3})
    lines = text_of(make_run(), ended, complete, width=200).splitlines()
    rows = [line.split() for line in lines if line.startswith("  constant")]
    assert [row[-1] for row in rows] == ["0", "3", "1,503"]
    assert "(interrupted)" in rows[1]
    assert any("The run ended early (interrupted): stopped early by Ctrl-C" in line for line in lines)
    assert [row["ending"] for row in read_csv(ended, complete)] == [
        "interrupted: stopped early by Ctrl-C",
        "complete",
    ]


def test_skipped_requests_come_with_the_remedy() -> None:
    run = make_run(codes={SKIPPED: 7})
    line = "skipped 7: 2 connections had as many in flight as may be; raise --connections"
    assert line in text_of(run, width=200)
    assert text_of(run, run, width=200).count(line) == 2
    assert line in page([figures(run)])
    assert "skipped" not in text_of(make_run())
