"""What clients/vectors/ holds. `python -m tests.wire.vectors` from the repository's root writes the files again; a test
proves that they are current.
"""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from tests.wire.vector_entries import (
    BOTH_INVALID,
    CLIENT_CANONICAL,
    CLIENT_INVALID,
    CLIENT_OTHER,
    SERVER_CANONICAL,
    SERVER_INVALID,
    SERVER_OTHER,
    STREAMS,
    Stream,
)

from tickpath.wire import ClientMessage, Code, ServerMessage, decode_client_message, decode_server_message, encode_frame

FOLDER: Final = Path(__file__).parents[2] / "clients" / "vectors"

Json: TypeAlias = bool | int | str | list["Json"] | dict[str, "Json"] | None
Decode: TypeAlias = Callable[[memoryview], ClientMessage | ServerMessage]


class Valid(msgspec.Struct, frozen=True):
    """A frame that is a message. `canonical`: an encoder of the shortest forms makes just these bytes."""

    name: str
    meaning: str
    canonical: bool
    frame: str
    message: dict[str, Any]


class Invalid(msgspec.Struct, frozen=True):
    """A frame of the right length that is no message, and the code it is answered with."""

    name: str
    meaning: str
    code: str
    frame: str


class MessageVectors(msgspec.Struct, frozen=True):
    """One direction."""

    valid: list[Valid]
    invalid: list[Invalid]


def as_json(value: object) -> Json:
    """A message, or a part of one, as plain JSON: an object with its type's name, bytes as hex, a code as its name."""
    if isinstance(value, msgspec.Struct):
        return {"type": type(value).__name__} | {
            name: as_json(getattr(value, name)) for name in value.__struct_fields__
        }
    if isinstance(value, bytes | memoryview):
        return value.hex()
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, Code):
        return value.name
    assert value is None or isinstance(value, bool | int | str)
    return value


def message_json(message: ClientMessage | ServerMessage) -> dict[str, Json]:
    """A whole message as plain JSON."""
    value = as_json(message)
    assert isinstance(value, dict)
    return value


def packed(text: str) -> bytes:
    """The bytes of spaced hex."""
    return bytes.fromhex(text)


def framed(body: bytes) -> str:
    """A body with its length before it, as hex."""
    return (struct.pack("<I", len(body)) + body).hex()


def _valid(
    canonical: list[tuple[str, str, ClientMessage]] | list[tuple[str, str, ServerMessage]],
    other: list[tuple[str, str, str]],
    decode: Decode,
) -> Iterator[Valid]:
    for name, meaning, message in canonical:
        yield Valid(name, meaning, True, encode_frame(message).hex(), message_json(message))
    for name, meaning, text in other:
        body = packed(text)
        yield Valid(name, meaning, False, framed(body), message_json(decode(memoryview(body))))


def _invalid(entries: list[tuple[str, str, str]]) -> list[Invalid]:
    return [Invalid(name, meaning, Code.BAD_MESSAGE.name, framed(packed(text))) for name, meaning, text in entries]


def _plain(stream: Stream) -> Stream:
    return msgspec.structs.replace(
        stream, stream=packed(stream.stream).hex(), frames=[packed(frame).hex() for frame in stream.frames]
    )


def files() -> dict[str, bytes]:
    """Every file of the folder that is made from this one: its name and its bytes."""
    client = list(_valid(CLIENT_CANONICAL, CLIENT_OTHER, decode_client_message))
    server = list(_valid(SERVER_CANONICAL, SERVER_OTHER, decode_server_message))
    contents: dict[str, object] = {
        "client.json": MessageVectors(client, _invalid(BOTH_INVALID + CLIENT_INVALID)),
        "server.json": MessageVectors(server, _invalid(BOTH_INVALID + SERVER_INVALID)),
        "frames.json": [_plain(stream) for stream in STREAMS],
    }
    return {name: msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n" for name, value in contents.items()}


if __name__ == "__main__":
    for file_name, content in files().items():
        (FOLDER / file_name).write_bytes(content)
