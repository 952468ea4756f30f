"""A reader of the protocol by somebody who has docs/PROTOCOL.md and nothing else of ours: no msgspec, none of
tickpath's code.

It keeps the document complete and the vectors honest: what it reads, it reads by the tables of the text.
"""

import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

PROTOCOL: Final = Path(__file__).parents[2] / "docs" / "PROTOCOL.md"

Value: TypeAlias = bool | int | float | str | bytes | list["Value"] | None
Json: TypeAlias = bool | int | str | list["Json"] | dict[str, "Json"] | None

LENGTH_FORMATS: Final = {1: ">B", 2: ">H", 4: ">I"}
NUMBERS: Final = dict(zip(range(0xCA, 0xD4), (">f", ">d", ">B", ">H", ">I", ">Q", ">b", ">h", ">i", ">q"), strict=True))
CONSTANTS: Final[dict[int, Value]] = {0xC0: None, 0xC2: False, 0xC3: True}
DEFAULTS: Final[dict[str, Json]] = {
    "nil tensor or nil": None,
    "empty text": "",
    "empty [text]": [],
    "false bool": False,
    "nil Limits or nil": None,
}


@dataclass(frozen=True)
class Field:
    """A row of a table of fields."""

    name: str
    type: str
    default: str


@dataclass(frozen=True)
class Kind:
    """A heading of section 5 and the table below it. `tag` is None for what only stands within messages."""

    name: str
    tag: int | None
    side: str
    fields: tuple[Field, ...]


class Reader:
    """Reads MessagePack from the front of `data`."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def whole(self) -> Value:
        """The one value that `data` is."""
        value = self._value()
        assert self._at == len(self._data), "bytes after the message"
        return value

    def _take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        assert len(taken) == count, "cut short"
        self._at += count
        return taken

    def _number(self, layout: str) -> int:
        (number,) = struct.unpack(layout, self._take(struct.calcsize(layout)))
        assert isinstance(number, int)
        return number

    def _length(self, byte_count: int) -> int:
        return self._number(LENGTH_FORMATS[byte_count])

    def _value(self) -> Value:
        head = self._take(1)[0]
        if head < 0x80 or head >= 0xE0:
            return head if head < 0x80 else head - 0x100
        if head < 0xC0:
            return self._short(head)
        if head in CONSTANTS:
            return CONSTANTS[head]
        if head in (0xCA, 0xCB):
            return float(struct.unpack(NUMBERS[head], self._take(4 if head == 0xCA else 8))[0])
        if head in NUMBERS:
            return self._number(NUMBERS[head])
        return self._long(head)

    def _short(self, head: int) -> Value:
        if head < 0x90:
            return self._map(head - 0x80)
        return self._array(head - 0x90) if head < 0xA0 else self._take(head - 0xA0).decode()

    def _long(self, head: int) -> Value:
        if head in (0xC4, 0xC5, 0xC6):
            return self._take(self._length(1 << head - 0xC4))
        if head in (0xD9, 0xDA, 0xDB):
            return self._take(self._length(1 << head - 0xD9)).decode()
        if head in (0xDC, 0xDD):
            return self._array(self._length(2 << head - 0xDC))
        if head in (0xDE, 0xDF):
            return self._map(self._length(2 << head - 0xDE))
        assert 0xC7 <= head <= 0xC9 or 0xD4 <= head <= 0xD8, "no MessagePack"
        return self._take(1 + (self._length(1 << head - 0xC7) if head <= 0xC9 else 1 << head - 0xD4))

    def _array(self, count: int) -> list[Value]:
        return [self._value() for _ in range(count)]

    def _map(self, count: int) -> list[Value]:
        return self._array(2 * count)


def tables(text: str) -> list[list[list[str]]]:
    """Every table of a Markdown text: its rows without the two of the heading, each a list of cells without
    backticks."""
    found = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [[[c.strip().strip("`") for c in row[1:-1].split("|")] for row in t.splitlines()[2:]] for t in found]


def read_kinds() -> dict[str, Kind]:
    """What section 5 of the document says there is."""
    heading = r"^### (\w+) \((?:tag (\d+), (client|server|both)|within [^)]*)\)\n(.*?)(?=^##)"
    found = re.findall(heading, PROTOCOL.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return {
        name: Kind(name, int(tag) if tag else None, side, tuple(Field(*row[:3]) for row in tables(body)[0]))
        for name, tag, side, body in found
    }


def read_codes() -> dict[int, str]:
    """What section 8 says there is."""
    return {
        int(number): name
        for number, name in re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", PROTOCOL.read_text("utf-8"), re.MULTILINE)
    }


def read_examples() -> list[bytes]:
    """The frames of section 12."""
    blocks = re.findall(r"```hex\n(.*?)```", PROTOCOL.read_text("utf-8"), re.DOTALL)
    return [bytes.fromhex("".join(line.split("  ")[0] for line in block.splitlines())) for block in blocks]


class Stranger:
    """Turns frames into plain JSON by the document's tables."""

    def __init__(self, side: str) -> None:
        self._kinds = read_kinds()
        self._codes = read_codes()
        self._by_tag = {kind.tag: kind for kind in self._kinds.values() if kind.side in (side, "both")}

    def read(self, frame: bytes) -> dict[str, Json]:
        """The message of one whole frame."""
        (length,) = struct.unpack("<I", frame[:4])
        assert length == len(frame) - 4
        values = Reader(frame[4:]).whole()
        assert isinstance(values, list)
        tag = values[0]
        assert isinstance(tag, int)
        return self._object(self._by_tag[tag], values[1:])

    def _object(self, kind: Kind, values: list[Value]) -> dict[str, Json]:
        message: dict[str, Json] = {"type": kind.name}
        for index, field in enumerate(kind.fields):
            if index < len(values):
                message[field.name] = self._plain(field.type, values[index])
            else:
                message[field.name] = self._default(field)
        return message

    def _default(self, field: Field) -> Json:
        assert field.default != "required", f"{field.name} is missing"
        named = f"{field.default} {field.type}"
        return DEFAULTS[named] if named in DEFAULTS else int(field.default)

    def _plain(self, type_name: str, value: Value) -> Json:
        if type_name.startswith("["):
            assert isinstance(value, list)
            return [self._plain(type_name[1:-1], item) for item in value]
        if type_name.endswith(" or nil") and value is None:
            return None
        type_name = type_name.removesuffix(" or nil")
        if type_name in self._kinds:
            assert isinstance(value, list)
            return self._object(self._kinds[type_name], value)
        if type_name == "code":
            assert isinstance(value, int)
            return self._codes[value]
        if isinstance(value, bytes):
            assert type_name.startswith("tensor")
            return value.hex()
        assert not isinstance(value, float | list)
        return value
