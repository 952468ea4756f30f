"""docs/PROTOCOL.md says what the code does: fields, tags, codes, dtypes, limits, and the worked example."""

import re
from typing import Final, get_args

import msgspec
import pytest
from tests.wire.stranger import PROTOCOL, Kind, read_codes, read_examples, read_kinds, tables
from tests.wire.vectors import FOLDER, MessageVectors

from tickpath.server.config import ModelConfig, ServerConfig
from tickpath.server.scheduling import PRIORITY_LEVELS
from tickpath.wire import (
    ITEM_BYTES,
    STAGES,
    STAMP_NAMES,
    ClientMessage,
    Code,
    Limits,
    ModelInfo,
    ServerMessage,
    TensorInfo,
)

MESSAGES: Final[set[type[msgspec.Struct]]] = {*get_args(ClientMessage), *get_args(ServerMessage)}
KINDS: Final = read_kinds()


def table_after(heading: str) -> list[list[str]]:
    """The first table behind a heading that begins so."""
    return tables(PROTOCOL.read_text("utf-8").split(f"\n## {heading}", 1)[1])[0]


def default_of(field: msgspec.structs.FieldInfo) -> str:
    """A field's default in the document's words."""
    if field.required:
        return "required"
    named = {"": "empty", "()": "empty", "False": "false", "None": "nil"}
    return named.get(str(field.default), str(field.default))


def side_of(kind: type[msgspec.Struct]) -> str:
    """Who sends a message, in the document's words."""
    client, server = kind in get_args(ClientMessage), kind in get_args(ServerMessage)
    return "both" if client and server else "client" if client else "server" if server else ""


def test_every_kind_is_there() -> None:
    assert set(KINDS) == {kind.__name__ for kind in MESSAGES | {Limits, ModelInfo, TensorInfo}}


@pytest.mark.parametrize("kind", [*sorted(MESSAGES, key=str), Limits, ModelInfo, TensorInfo])
def test_fields_are_those_of_the_code(kind: type[msgspec.Struct]) -> None:
    said: Kind = KINDS[kind.__name__]
    fields = [(field.name, default_of(field)) for field in msgspec.structs.fields(kind)]
    assert [(field.name, field.default) for field in said.fields] == fields
    assert (said.tag, said.side) == (kind.__struct_config__.tag, side_of(kind))


def test_codes_are_those_of_the_code() -> None:
    assert read_codes() == {code.value: code.name for code in Code}


def test_dtypes_are_those_of_the_code() -> None:
    assert {row[0]: int(row[1]) for row in table_after("6.")} == ITEM_BYTES


def test_stamps_and_stages_are_those_of_the_code() -> None:
    rows = table_after("7.")
    assert tuple(row[0] for row in rows) == STAMP_NAMES
    assert tuple(row[2] for row in rows[1:]) == STAGES


def test_limits_are_the_defaults() -> None:
    config = ServerConfig(models=())
    defaults = {name: getattr(config, name) for name in ServerConfig.__struct_fields__} | {
        "frame_ns_max": int(config.frame_s * 1e9),
        "feed_idle_ns": int(config.feed_idle_s * 1e9),
        "priority_levels": PRIORITY_LEVELS,
        "queue_max": ModelConfig(path="").queue_max,
    }
    said = {row[0]: int(row[1]) for row in table_after("9.")}
    assert said == {name: defaults[name] for name in said}
    assert set(said) >= set(Limits.__struct_fields__)


def test_worked_example_is_what_the_code_sends() -> None:
    frames = {
        vector.name: vector.frame
        for side in ("client", "server")
        for vector in msgspec.json.decode((FOLDER / f"{side}.json").read_bytes(), type=MessageVectors).valid
    }
    order = ("worked-hello", "worked-welcome", "worked-infer", "worked-result")
    assert [example.hex() for example in read_examples()] == [frames[name] for name in order]


def test_section_numbers_are_right() -> None:
    text = PROTOCOL.read_text("utf-8")
    sections = [int(number) for number in re.findall(r"^## (\d+)\.", text, re.MULTILINE)]
    assert sections == list(range(1, len(sections) + 1))
    assert {int(number) for number in re.findall(r"section (\d+)", text)} <= set(sections)
