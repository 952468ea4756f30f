"""docs/LOADTEST.md names every flag, column and field of the load test, and no flags that it doesn't have."""

import json
import re
import textwrap
from pathlib import Path
from typing import Any, Final

import pytest
from tests.runs import make_comparison, make_goodput, make_run

from tickpath.loadtest.command import compare, loadtest, referee
from tickpath.loadtest.compare import BLOCKS, BLOCKS_MIN
from tickpath.loadtest.flags import REQUESTS_MIN
from tickpath.loadtest.goodput import CONNECTIONS_MAX, CONNECTIONS_MIN, IN_FLIGHT, Goodput
from tickpath.loadtest.latency import summarise
from tickpath.loadtest.outputs import Outputs
from tickpath.loadtest.progress import WINDOW
from tickpath.loadtest.report import comparison_files
from tickpath.loadtest.report.figures import LATE_NS, figures
from tickpath.loadtest.report.files import CSV_COLUMNS, CSV_GOODPUT_COLUMNS, JSON_SCHEMA, json_bytes
from tickpath.loadtest.run import GAP_NS, ROW, SKIPPED
from tickpath.loadtest.series import NotRun
from tickpath.loadtest.validity import LATENESS_NS_MIN, SPOILT_SHARE, UNMEASURED
from tickpath.wire import STAMP_NAMES, Code

TEXT: Final = (Path(__file__).parents[2] / "docs" / "LOADTEST.md").read_text("utf-8")
CODE_WORDS: Final = set(re.findall(r"`([^`]+)`", TEXT))


def flags() -> set[str]:
    """All that the commands take."""
    commands = (loadtest, compare, referee)
    return {flag for command in commands for option in command.params for flag in option.opts if flag.startswith("--")}


def keys(value: Any) -> set[str]:
    """The names of all fields of a JSON value, those of counts by code apart."""
    if isinstance(value, list):
        return set().union(*map(keys, value))
    if not isinstance(value, dict):
        return set()
    inner = (keys(item) for name, item in value.items() if name not in ("errors", "stage_means_ns"))
    return set(value).union(*inner)


def test_every_flag_is_explained_and_no_other() -> None:
    named = {word.split()[0] for word in CODE_WORDS if word.startswith("--")}
    assert named == flags()


@pytest.mark.parametrize("column", CSV_COLUMNS + CSV_GOODPUT_COLUMNS + comparison_files.COMPARISON_COLUMNS)
def test_every_column_is_explained(column: str) -> None:
    assert column in CODE_WORDS


@pytest.mark.parametrize("goodput", [None, make_goodput()])
def test_every_field_is_explained(goodput: Goodput | None) -> None:
    plain = json.loads(json_bytes([figures(make_run())], NotRun(("constant 9/s",), "nobody listens"), goodput))
    assert keys(plain) - CODE_WORDS == set()
    assert JSON_SCHEMA in CODE_WORDS


def test_every_field_of_a_comparison_is_explained() -> None:
    plain = json.loads(comparison_files.json_bytes("a:1", "b:2", make_comparison()))
    assert keys(plain) - CODE_WORDS == set()
    assert comparison_files.COMPARISON_SCHEMA in CODE_WORDS


def test_every_field_and_code_of_a_sample_is_explained() -> None:
    samples = TEXT.split("**Samples.**")[1].split("**HTML and PNG.**")[0]
    assert re.findall(r"^\| `(\w+)` \|", samples, re.MULTILINE) == list(ROW.names or ())
    assert re.findall(r"`(\w+)`", samples.split("`stamps_ns`")[1].split(";")[0]) == list(STAMP_NAMES)
    codes = {int(code): name for code, name in re.findall(r"(-\d): (\w+)", samples)}
    assert codes == UNMEASURED
    assert f"such as {Code.OVERLOADED:d}, OVERLOADED" in samples


def test_the_example_reads_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = re.search(r"(?:^    .*\n)+", TEXT.split("**Samples.**")[1], re.MULTILINE)
    assert example is not None
    assert example[0].count("\n") == 4
    monkeypatch.chdir(tmp_path)
    run = make_run(codes={SKIPPED: 5, Code.DEADLINE: 5})
    Outputs(samples_path=Path("run.npy")).report([run])
    names: dict[str, Any] = {}
    exec(textwrap.dedent(example[0]), names)
    assert names["p99_us"] == summarise(run.latency_ns()).p99_ns / 1000


def test_every_stage_is_explained() -> None:
    stages = re.findall(r"^    (\w+(?: \w+)?)  +\S", TEXT.split("## 3.")[1].split("## 4.")[0], re.MULTILINE)
    assert stages == list(figures(make_run()).stage_means_ns)


def test_limits_are_those_of_the_code() -> None:
    assert f"at least {CONNECTIONS_MIN}, which together" in TEXT
    assert f"at most {CONNECTIONS_MAX}." in TEXT
    assert f"limit), {IN_FLIGHT} to a connection" in TEXT
    assert f"has at least {REQUESTS_MIN} requests" in TEXT
    assert f"newest {WINDOW:,} requests" in TEXT
    assert f"`--blocks` is {BLOCKS} unless told and {BLOCKS_MIN}\nat least" in TEXT
    assert f"more than {LATE_NS // 1000} µs" in TEXT
    assert f"{LATENESS_NS_MIN // 1000} µs" in TEXT
    assert f"in each turn of its loop that took more than {GAP_NS // 1000} µs" in TEXT
    assert SPOILT_SHARE == 0.1
    assert "more than a tenth" in TEXT
