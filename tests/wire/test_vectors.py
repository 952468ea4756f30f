"""clients/vectors/ against the code, both ways, and against a reader that knows only docs/PROTOCOL.md."""

from typing import Final

import msgspec
import pytest
from tests.wire.stranger import Stranger
from tests.wire.vector_entries import Stream
from tests.wire.vectors import FOLDER, Decode, Invalid, MessageVectors, Valid, files, message_json

from tickpath.wire import (
    PREFIX_BYTES,
    ClientMessage,
    Code,
    FrameDecoder,
    RemoteProtocolError,
    ServerMessage,
    decode_client_message,
    decode_server_message,
    encode_frame,
)

DECODERS: Final[dict[str, Decode]] = {"client": decode_client_message, "server": decode_server_message}
VECTORS: Final = {
    side: msgspec.json.decode((FOLDER / f"{side}.json").read_bytes(), type=MessageVectors) for side in DECODERS
}
STREAMS: Final = msgspec.json.decode((FOLDER / "frames.json").read_bytes(), type=list[Stream])

VALID: Final = [
    pytest.param(side, vector, id=f"{side}-{vector.name}") for side in DECODERS for vector in VECTORS[side].valid
]
INVALID: Final = [
    pytest.param(side, vector, id=f"{side}-{vector.name}") for side in DECODERS for vector in VECTORS[side].invalid
]


def one_frame(frame: str) -> memoryview:
    """The body of a whole frame in hex, found as a peer would find it."""
    data = bytes.fromhex(frame)
    decoder = FrameDecoder(len(data), len(data))
    decoder.get_buffer()[: len(data)] = data
    decoder.received(len(data))
    body = decoder.next_frame()
    assert body is not None
    assert decoder.bytes_waiting == 0
    return body


@pytest.mark.parametrize("name", ["client.json", "server.json", "frames.json"])
def test_files_are_current(name: str) -> None:
    assert (FOLDER / name).read_bytes() == files()[name], "run: python -m tests.wire.vectors"


@pytest.mark.parametrize(("side", "vector"), VALID)
def test_valid_frame_is_its_message(side: str, vector: Valid) -> None:
    assert message_json(DECODERS[side](one_frame(vector.frame))) == vector.message


@pytest.mark.parametrize(("side", "vector"), VALID)
def test_message_is_its_canonical_frame(side: str, vector: Valid) -> None:
    encoded = encode_frame(DECODERS[side](one_frame(vector.frame))).hex()
    assert (encoded == vector.frame) == vector.canonical
    assert message_json(DECODERS[side](one_frame(encoded))) == vector.message


@pytest.mark.parametrize(("side", "vector"), VALID)
def test_a_stranger_reads_the_same(side: str, vector: Valid) -> None:
    assert Stranger(side).read(bytes.fromhex(vector.frame)) == vector.message


@pytest.mark.parametrize(("side", "vector"), INVALID)
def test_invalid_frame_is_refused(side: str, vector: Invalid) -> None:
    with pytest.raises(RemoteProtocolError) as refused:
        DECODERS[side](one_frame(vector.frame))
    assert refused.value.code.name == vector.code == "BAD_MESSAGE"
    assert "not a message of this protocol: " in refused.value.message


@pytest.mark.parametrize("piece_bytes", [1, 3, 1024])
@pytest.mark.parametrize("stream", [pytest.param(stream, id=stream.name) for stream in STREAMS])
def test_stream_holds_its_frames(stream: Stream, piece_bytes: int) -> None:
    decoder = FrameDecoder(stream.frame_bytes_max)
    data = bytes.fromhex(stream.stream)
    frames, code = [], None
    try:
        for at in range(0, len(data), piece_bytes):
            piece = data[at : at + piece_bytes]
            decoder.get_buffer()[: len(piece)] = piece
            decoder.received(len(piece))
            while (frame := decoder.next_frame()) is not None:
                frames.append(frame.hex())
    except RemoteProtocolError as error:
        code = error.code
    assert frames == stream.frames
    assert code == (Code[stream.code] if stream.code else None)
    assert code is not None or decoder.bytes_waiting == stream.bytes_waiting


@pytest.mark.parametrize(("side", "union"), [("client", ClientMessage), ("server", ServerMessage)])
def test_every_message_has_a_vector(side: str, union: object) -> None:
    named = {str(vector.message["type"]) for vector in VECTORS[side].valid}
    assert named == {kind.__name__ for kind in getattr(union, "__args__", ())}


@pytest.mark.parametrize("side", DECODERS)
def test_names_are_told_apart(side: str) -> None:
    names = [vector.name for vector in VECTORS[side].valid] + [vector.name for vector in VECTORS[side].invalid]
    assert len(names) == len(set(names))
    assert all(len(bytes.fromhex(vector.frame)) > PREFIX_BYTES for vector in VECTORS[side].invalid)
