"""docs/OBSERVER.md names every field of the schema, and every cause."""

import json
import re
from importlib.resources import files
from pathlib import Path

import msgspec
import pytest

from tickpath.observe import schema
from tickpath.observe.records import EventKind

TEXT = (Path(__file__).parents[2] / "docs" / "OBSERVER.md").read_text("utf-8")
NAMED = set(re.findall(r"`(\w+)`", TEXT))
STRUCTS = [
    struct for struct in vars(schema).values() if isinstance(struct, type) and issubclass(struct, msgspec.Struct)
]


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_every_field_is_named(struct: type[msgspec.Struct]) -> None:
    assert {field.name for field in msgspec.structs.fields(struct)} - NAMED == set()


def test_the_page_counts_as_errors_what_the_console_does() -> None:
    page = files("tickpath.observe").joinpath("page.html").read_text("utf-8")
    (told,) = re.findall(r"^const HARMLESS = (\[.*\]);$", page, re.MULTILINE)
    assert set(json.loads(told)) == schema.HARMLESS


def test_every_cause_is_named() -> None:
    assert {kind.name.lower() for kind in EventKind} - NAMED == set()
