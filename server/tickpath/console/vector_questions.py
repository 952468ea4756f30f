"""What a program is asked to show that it speaks the protocol: the shared vectors as lines, and what the right answers
are. Pure; clients/vectors/README.md describes the lines."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from tickpath.console.errors import ConsoleError

Side = Literal["client", "server"]

UNSUPPORTED: Final = "unsupported"
# Each byte alone, pieces that end within prefixes and bodies, and all at once.
PIECES_BYTES: Final = (1, 3, 1 << 20)


class Valid(msgspec.Struct, frozen=True):
    """A frame and the message in it. `canonical`: encoding that message gives this very frame."""

    name: str
    canonical: bool
    frame: str
    message: dict[str, Any]


class Invalid(msgspec.Struct, frozen=True):
    """A frame that is no message, and the code under which it is refused."""

    name: str
    code: str
    frame: str


class Vectors(msgspec.Struct, frozen=True):
    """client.json or server.json."""

    valid: list[Valid]
    invalid: list[Invalid]


class Stream(msgspec.Struct, frozen=True):
    """An entry of frames.json."""

    name: str
    frame_bytes_max: int
    stream: str
    frames: list[str]
    bytes_waiting: int
    code: str | None


class Question(msgspec.Struct, frozen=True):
    """One line to ask. `expected` is the answer: a text to be met exactly, or a value that its JSON must equal."""

    group: str
    name: str
    line: str
    expected: str | dict[str, Any]

    def problem(self, answer: str) -> str | None:
        """What is wrong with an answer; None where it is right."""
        if isinstance(self.expected, str):
            return None if answer == self.expected else f"expected {self.expected}, got {answer or 'an empty line'}"
        try:
            found = json.loads(answer)
        except ValueError:
            return f"expected JSON, got {answer or 'an empty line'}"
        return _difference(self.expected, found)


def read_questions(folder: Path) -> list[Question]:
    """All of a folder's vectors. Raises ConsoleError."""
    try:
        sides: dict[Side, Vectors] = {
            "client": msgspec.json.decode((folder / "client.json").read_bytes(), type=Vectors),
            "server": msgspec.json.decode((folder / "server.json").read_bytes(), type=Vectors),
        }
        streams = msgspec.json.decode((folder / "frames.json").read_bytes(), type=list[Stream])
    except OSError as error:
        raise ConsoleError(f"{error.filename}: {error.strerror}; --from names the folder of the vectors") from None
    except msgspec.MsgspecError as error:
        raise ConsoleError(f"{folder}: these are not the protocol's vectors: {error}") from None
    return [question for side in sides for question in _messages(side, sides[side])] + list(_streams(streams))


def _messages(side: Side, vectors: Vectors) -> Iterator[Question]:
    for valid in vectors.valid:
        yield Question(f"decode {side}", valid.name, f"decode {side} {valid.frame}", valid.message)
    for invalid in vectors.invalid:
        line = f"decode {side} {invalid.frame}"
        yield Question(f"refuse {side}", invalid.name, line, f"refused {invalid.code}")
    for valid in vectors.valid:
        if valid.canonical:
            message = json.dumps(valid.message, ensure_ascii=False)
            yield Question(f"encode {side}", valid.name, f"encode {side} {message}", valid.frame)


def _streams(streams: list[Stream]) -> Iterator[Question]:
    for stream in streams:
        expected: dict[str, Any] = {
            "frames": stream.frames,
            "bytes_waiting": stream.bytes_waiting,
            "code": stream.code,
        }
        for piece_bytes in PIECES_BYTES:
            digits = 2 * piece_bytes
            pieces = [stream.stream[at : at + digits] for at in range(0, len(stream.stream), digits)]
            line = " ".join(["frames", str(stream.frame_bytes_max), *pieces])
            yield Question("frames", f"{stream.name}, in pieces of {piece_bytes}", line, expected)


def _same(found: Any, expected: Any) -> bool:
    """Equal, and of the same type: 1 is neither true nor 1.0."""
    if type(found) is not type(expected):
        return False
    if isinstance(expected, dict):
        return found.keys() >= expected.keys() and all(_same(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(_same, found, expected))
    return bool(found == expected)


def _difference(expected: dict[str, Any], found: Any) -> str | None:
    """The first field that differs. Fields that nobody asked for are passed over: the program may know a later
    protocol."""
    if not isinstance(found, dict):
        return f"expected an object, got {json.dumps(found)}"
    for key, value in expected.items():
        if key not in found:
            return f"{key} is missing"
        if not _same(found[key], value):
            return f"{key}: expected {json.dumps(value)}, got {json.dumps(found[key])}"
    return None
