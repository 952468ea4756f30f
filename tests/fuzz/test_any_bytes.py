"""Any bytes are messages, or RemoteProtocolError; never another exception. Known failures A5 to A10.

`TICKPATH_FUZZ_SECONDS=600 pytest tests/fuzz` runs the mutations that long, from a fresh seed; a failure prints the seed
and the frame. `TICKPATH_FUZZ_SEED` runs one seed again.
"""

import os
import random
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.vectors import FOLDER, Decode, MessageVectors

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

SECONDS: Final = float(os.environ.get("TICKPATH_FUZZ_SECONDS", "0"))
SEED: Final = os.environ.get("TICKPATH_FUZZ_SEED")
# Enough to try every kind of mutation on every vector a hundred times.
MUTATIONS_IN_CI: Final = 50_000
MUTATIONS_A_SEED: Final = 1_000

DECODERS: Final[dict[str, Decode]] = {"client": decode_client_message, "server": decode_server_message}
BOTH: Final = pytest.mark.parametrize("decode", DECODERS.values(), ids=DECODERS)
HEADS: Final = bytes([0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, *range(0xC0, 0xE0), 0x00, 0x7F, 0xFF])


def outcome(decode: Decode, body: bytes) -> ClientMessage | ServerMessage | None:
    """The message that a body is, or None where it is refused. Raises all else: another exception, another code, or a
    message that does not come back as itself."""
    try:
        message = decode(memoryview(body))
    except RemoteProtocolError as error:
        if error.code is not Code.BAD_MESSAGE:
            raise
        return None
    frame = encode_frame(message)
    assert decode(memoryview(frame)[PREFIX_BYTES:]) == message
    return message


def check(decode: Decode, body: bytes, name: str) -> None:
    """A failure says under which name, and with which bytes."""
    try:
        outcome(decode, body)
    except Exception as error:
        error.add_note(f"{name}, body {body[:500].hex()}")
        raise


@BOTH
@given(body=st.binary(max_size=200))
def test_any_bytes(decode: Decode, body: bytes) -> None:
    check(decode, body, "any bytes")


PLAIN: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.integers(0, 20),
    st.floats(),
    st.text(st.characters(codec="utf-8"), max_size=10),
    st.binary(max_size=20),
    st.builds(msgspec.msgpack.Ext, st.integers(-128, 127), st.binary(max_size=20)),
)
NESTED: Final = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)


@BOTH
@given(values=st.lists(NESTED, max_size=10), tag=st.integers(-1, 16))
def test_any_messagepack_behind_any_tag(decode: Decode, values: list[Any], tag: int) -> None:
    check(decode, msgspec.msgpack.encode([tag, *values]), "any MessagePack")


def hostile() -> Iterator[tuple[str, bytes]]:
    """Values that broke others."""
    for depth in (900, 2_000, 200_000):
        yield f"{depth} arrays", b"\x91" * depth
        yield f"{depth} closed arrays", b"\x91" * depth + b"\xc0"
        yield f"{depth} closed maps", b"\x81\xc0" * depth + b"\xc0"
        yield f"{depth} maps as keys", b"\x81" * depth
    for head in HEADS:
        yield f"{head:02x} alone", bytes([head])
        yield f"{head:02x} of 4 GiB", bytes([head]) + b"\xff" * 4
        yield f"{head:02x} of nothing", bytes([head]) + bytes(20)
    yield "an extension", bytes.fromhex("c7 06 40 07 e9 04 16 09 1e")
    yield "a timestamp out of range", bytes.fromhex("c7 0c ff ff ff ff ff ff ff ff ff ff ff ff ff")
    yield "bad UTF-8", bytes.fromhex("a4 f8 88 80 80")
    yield "NaN", bytes.fromhex("cb 7f f8 00 00 00 00 00 00")
    yield "a key twice", bytes.fromhex("82 a1 78 01 a1 78 02")
    yield "a map as key", bytes.fromhex("81 80 c0")


@BOTH
@pytest.mark.parametrize(
    "before",
    [
        "",
        "92",
        "93 0c 01",
        "92 0e",
        "95 05 01 00 01",
        "95 05 01 00 01 91",
        "96 05 01 00 01 91",
        "95 06 01 a0 91",
        "95 02 01 a0",
    ],
)
def test_hostile_values_in_every_place(decode: Decode, before: str) -> None:
    assert threading.current_thread() is threading.main_thread(), "decoding belongs on a full-size stack"
    for name, value in hostile():
        check(decode, bytes.fromhex(before) + value, name)


@pytest.mark.parametrize("depth", [2_000, 200_000])
@pytest.mark.parametrize("level", [b"\x91", b"\x81\xc0"], ids=["arrays", "maps"])
def test_nesting_is_refused_on_the_main_thread(level: bytes, depth: int) -> None:
    body = bytes.fromhex("930c01") + level * depth + b"\xc0"
    with pytest.raises(RemoteProtocolError, match="recursion") as refused:
        decode_client_message(memoryview(body))
    assert refused.value.code == Code.BAD_MESSAGE
    assert refused.value.__cause__ is None


def frames_of(side: str) -> list[bytes]:
    """The valid vectors that are short enough to be mutated often."""
    vectors = msgspec.json.decode((FOLDER / f"{side}.json").read_bytes(), type=MessageVectors).valid
    return [bytes.fromhex(vector.frame) for vector in vectors if len(vector.frame) < 2000]


def mutate(chance: random.Random, frames: list[bytes]) -> bytes:
    """One frame with one to four changes."""
    frame = bytearray(chance.choice(frames))
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(frame) + 1)
        end = min(len(frame), at + chance.randint(1, 8))
        match chance.randrange(6):
            case 0 if at < len(frame):
                frame[at] ^= 1 << chance.randrange(8)
            case 1 if at < len(frame):
                frame[at] = chance.choice(HEADS)
            case 2:
                frame[at:at] = chance.randbytes(chance.randint(1, 8))
            case 3:
                del frame[at:end]
            case 4:
                frame[at:at] = frame[at:end]
            case _:
                frame[at:] = chance.choice(frames)[at:]
    return bytes(frame)


def deliver(decode: Decode, frame_bytes_max: int, stream: bytes, chance: random.Random) -> None:
    """A stream in random pieces, as a session would take it; ends at the first refusal, as a session would."""
    decoder = FrameDecoder(frame_bytes_max, chance.randint(0, 64))
    while stream:
        room = decoder.get_buffer()
        taken = min(len(room), len(stream), chance.randint(1, 64))
        room[:taken] = stream[:taken]
        decoder.received(taken)
        stream = stream[taken:]
        try:
            while (frame := decoder.next_frame()) is not None:
                if outcome(decode, bytes(frame)) is None:
                    return
        except RemoteProtocolError as error:
            if error.code is not Code.BAD_FRAME:
                raise
            return


def seeds() -> Iterator[int]:
    """The seeds to try: one, a fixed number of fixed ones, or fresh ones until the time is over."""
    if SEED is not None:
        yield int(SEED)
    elif SECONDS == 0:
        yield from range(MUTATIONS_IN_CI // MUTATIONS_A_SEED)
    else:
        end_s = time.monotonic() + SECONDS / len(DECODERS)
        while time.monotonic() < end_s:
            yield random.SystemRandom().getrandbits(32)


def fuzz(decode: Decode, frames: list[bytes], seed: int) -> None:
    """One seed's mutations. Any exception but the one allowed ends in a failure that names seed and bytes."""
    chance = random.Random(seed)
    for _ in range(MUTATIONS_A_SEED):
        mutated = mutate(chance, frames)
        stream = mutated + chance.choice(frames)
        try:
            outcome(decode, mutated[PREFIX_BYTES:])
            deliver(decode, 4096, stream, chance)
        except Exception as error:
            error.add_note(f"TICKPATH_FUZZ_SEED={seed}, stream {stream.hex()}")
            raise


@pytest.mark.timeout(120 + 2 * SECONDS)
@pytest.mark.parametrize("side", DECODERS)
def test_mutated_frames(side: str) -> None:
    frames = frames_of(side)
    for seed in seeds():
        fuzz(DECODERS[side], frames, seed)


def test_canary_a_decoder_that_lets_another_exception_out_is_found() -> None:
    def lets_value_error_out(body: memoryview) -> ClientMessage:
        if body[-1] == 0xFF:
            raise ValueError("not a protocol error")
        return decode_client_message(body)

    with pytest.raises(ValueError, match="not a protocol error") as found:
        fuzz(lets_value_error_out, frames_of("client"), 0)
    assert found.value.__notes__[0].startswith("TICKPATH_FUZZ_SEED=0, stream ")
