"""docs/TUNING.md speaks of every key and option of the server, has a place for each table, and knows each check of the
doctor's."""

import re
from pathlib import Path
from typing import Final

import click
import msgspec
import numpy as np
import pytest
from bench.tuning.knobs import KNOBS, Knob
from bench.tuning.table import markers, table, write

from tickpath.cli import tickpath
from tickpath.server.config import ModelConfig, ServerConfig

ROOT: Final = Path(__file__).parents[2]
TEXT: Final = (ROOT / "docs" / "TUNING.md").read_text("utf-8")
NAMED: Final = set(re.findall(r"`([a-z_]+|--[a-z-]+)`", TEXT))
KEYS: Final = {field.encode_name for kind in (ServerConfig, ModelConfig) for field in msgspec.structs.fields(kind)}
# Options: those whose key is called as they are, and the others.
OPTIONS: Final = {
    option
    for parameter in tickpath.commands["serve"].params
    if isinstance(parameter, click.Option) and not parameter.is_eager
    for option in parameter.opts
    if option.startswith("--")
}


def test_every_key_is_a_knob_or_said_to_be_none() -> None:
    assert not KEYS - NAMED


def test_every_option_is_a_knob_or_said_to_be_none() -> None:
    unnamed = {option for option in OPTIONS if option[2:].replace("-", "_") not in KEYS}
    assert not unnamed - NAMED


def test_what_is_said_to_be_none_exists() -> None:
    listed = set(re.findall(r"`([^` ]+)`", TEXT.split("## What is no knob of speed\n")[1]))
    assert not listed - KEYS - OPTIONS


def test_each_knob_has_one_place() -> None:
    places = re.findall(r"<!-- measured: (.+?) -->", TEXT)
    assert sorted(places) == sorted(["machine", *(knob.name for knob in KNOBS)])
    assert all(TEXT.count(end) == 1 for _, end in map(markers, places))


def test_each_check_of_the_doctor_has_its_remedy() -> None:
    section = TEXT.split("## What the doctor warns of\n")[1].split("\n## ")[0]
    checks = set()
    for file in (ROOT / "server/tickpath/doctor").glob("*.py"):
        checks |= set(re.findall(r"\bcheck(?:, \w+)? = \"([^\"]+)\"", file.read_text("utf-8")))
    assert len(checks) > 10
    assert not {check for check in checks if check not in section}


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
def test_tables_have_a_row_for_each_variant(knob: Knob) -> None:
    names = [variant.name for variant in knob.variants]
    assert len(set(names)) == len(names)
    measured = {name: [np.full(100, 1_000 * (place + 1))] * 2 for place, name in enumerate(names[:-1])}
    lines = table(knob, measured, {names[-1]: "it is not here"}).splitlines()
    assert len(lines) == 2 + len(names)
    assert lines[2] == f"| {names[0]} | 1.0 | 1.0 | 1.00 (1.00-1.00) | 1.00 (1.00-1.00) | 200 |"
    assert "not measured: it is not here" in lines[-1]


def test_a_table_replaces_the_one_before(tmp_path: Path) -> None:
    begin, end = markers("cpu")
    path = tmp_path / "text.md"
    path.write_text(f"before\n{begin}\nold \\1\n{end}\nafter\n")
    write(path, {"cpu": "new \\1"})
    assert path.read_text() == f"before\n{begin}\nnew \\1\n{end}\nafter\n"
    with pytest.raises(ValueError, match="no place for 'threads'"):
        write(path, {"threads": ""})
