"""Messages: every one comes back as it went, numbers keep to their ranges, and what has no form is refused before it
is sent. Known failures A8, A10, B2."""

import tomllib
import tracemalloc
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickpath.wire import (
    PREFIX_BYTES,
    TENSORS_MAX,
    Cancel,
    ClientMessage,
    Code,
    Failure,
    Goodbye,
    Hello,
    Infer,
    Limits,
    LocalProtocolError,
    ModelInfo,
    ModelList,
    Models,
    Ping,
    Pong,
    RemoteProtocolError,
    Result,
    ServerMessage,
    TensorInfo,
    Welcome,
    decode_client_message,
    decode_server_message,
    encode_frame,
)


def as_view(data: bytes) -> memoryview:
    """What a decoder gives."""
    return memoryview(data)


NATURAL: Final = st.integers(0, 2**64 - 1)
ID: Final = st.integers(1, 2**64 - 1)
TEXT: Final = st.text(st.characters(codec="utf-8"), max_size=40)
TENSOR: Final = st.binary(max_size=300).map(as_view)

TENSOR_INFO: Final = st.builds(
    TensorInfo, TEXT, TEXT, st.lists(NATURAL, max_size=5).map(tuple), st.integers(-1, 2**63 - 1), st.booleans()
)
TENSOR_INFOS: Final = st.lists(TENSOR_INFO, max_size=3).map(tuple)
MODEL_INFO: Final = st.builds(
    ModelInfo,
    TEXT,
    TEXT,
    NATURAL,
    TENSOR_INFOS,
    TENSOR_INFOS,
    st.lists(NATURAL, max_size=4).map(tuple),
    st.lists(TEXT, max_size=2).map(tuple),
)
MODEL_INFOS: Final = st.lists(MODEL_INFO, max_size=3).map(tuple)
LIMITS: Final = st.builds(Limits, *[NATURAL] * 9)
STAMPS: Final = st.tuples(NATURAL, NATURAL, NATURAL, NATURAL, NATURAL, NATURAL)

CLIENT_MESSAGES: Final[st.SearchStrategy[ClientMessage]] = st.one_of(
    st.builds(Hello, NATURAL, TEXT, TEXT),
    st.builds(Models, ID),
    st.builds(
        Infer, ID, NATURAL, NATURAL, st.lists(st.none() | TENSOR, max_size=20), NATURAL, NATURAL, NATURAL, NATURAL
    ),
    st.builds(Cancel, ID),
    st.builds(Ping, ID),
    st.builds(Goodbye, TEXT),
)
SERVER_MESSAGES: Final[st.SearchStrategy[ServerMessage]] = st.one_of(
    st.builds(Welcome, NATURAL, TEXT, LIMITS, MODEL_INFOS),
    st.builds(ModelList, ID, MODEL_INFOS),
    st.builds(Result, ID, TEXT, st.lists(TENSOR, max_size=20), STAMPS),
    st.builds(Failure, NATURAL, st.sampled_from(Code), TEXT),
    st.builds(Pong, ID, NATURAL),
    st.builds(Goodbye, TEXT),
)


def body_of(message: ClientMessage | ServerMessage) -> memoryview:
    """A message's frame without its prefix."""
    return memoryview(encode_frame(message))[PREFIX_BYTES:]


@given(CLIENT_MESSAGES)
def test_a_clients_message_comes_back_as_it_went(message: ClientMessage) -> None:
    assert decode_client_message(body_of(message)) == message


@given(SERVER_MESSAGES)
def test_a_servers_message_comes_back_as_it_went(message: ServerMessage) -> None:
    assert decode_server_message(body_of(message)) == message


def test_decoded_tensors_are_views_of_the_frame() -> None:
    frame = bytearray(body_of(Infer(1, 0, 1, [memoryview(b"old!")])))
    message = decode_client_message(memoryview(frame))
    assert isinstance(message, Infer)
    (tensor,) = message.inputs
    assert tensor is not None
    frame[frame.index(b"old!") : frame.index(b"old!") + 4] = b"new!"
    assert bytes(tensor) == b"new!"


def test_frames_are_not_changed_by_later_ones() -> None:
    first = encode_frame(Goodbye("first"))
    encode_frame(Goodbye("later"))
    assert first == b"\x08\0\0\0\x92\x0e\xa5first"


@pytest.mark.parametrize(
    "message",
    [
        Ping(2**64),
        Ping(-(2**63) - 1),
        Goodbye("\ud800"),
        Infer(1, 0, 1, [np.zeros((3, 4), np.float32).T.data]),
        Infer(1, 0, 1, [np.zeros(8, np.float32)[::2].data]),
    ],
    ids=["over-u64", "under-i64", "not-unicode", "transposed", "strided"],
)
def test_what_has_no_form_is_refused_before_it_is_sent(message: ClientMessage) -> None:
    with pytest.raises(LocalProtocolError, match=rf"^{type(message).__name__} does not fit the protocol: "):
        encode_frame(message)
    assert encode_frame(Ping(1)) == b"\x03\0\0\0\x92\x0c\x01", "what comes after a refusal has nothing of it"


@pytest.mark.parametrize(
    "message",
    [
        Ping(0),
        Cancel(-1),
        Models(0),
        Infer(0, 0, 1, []),
        Infer(1, -1, 1, []),
        Infer(1, 0, -1, []),
        Infer(1, 0, -(2**63), []),
        Infer(1, 0, 1, [], -1),
        Infer(1, 0, 1, [], 0, -1),
        Infer(1, 0, 1, [], 0, 0, -1),
        Infer(1, 0, 1, [], 0, 0, 0, -1),
        Infer(1, 0, 1, [None] * (TENSORS_MAX + 1)),
        Hello(-1, ""),
        Hello(1, "x" * 129),
        Hello(1, "", "x" * 2049),
        Goodbye("x" * 1025),
    ],
    ids=lambda message: repr(message)[:60],
)
def test_a_client_out_of_range_is_refused(message: ClientMessage) -> None:
    with pytest.raises(RemoteProtocolError) as refused:
        decode_client_message(body_of(message))
    assert refused.value.code == Code.BAD_MESSAGE


def test_the_longest_hello_in_ascii_fits_in_what_every_server_takes() -> None:
    assert len(body_of(Hello(1, "c" * 128, "t" * 2048))) <= 4096


def test_the_most_tensors_there_may_be() -> None:
    message = Infer(1, 0, 1, [None] * TENSORS_MAX)
    assert decode_client_message(body_of(message)) == message


@pytest.mark.parametrize("element", ["c0", "c400"], ids=["nil", "empty"])
def test_a_frame_of_many_tensors_costs_no_memory(element: str) -> None:
    body = bytes.fromhex("95 05 01 00 01 dd 00 10 00 00") + bytes.fromhex(element) * (1 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match="length <= 1024"):
            decode_client_message(memoryview(body))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 64 * 1024


@pytest.mark.parametrize(
    "body",
    ["dd ff ff ff ff", "df ff ff ff ff", "95 05 01 00 01 dd ff ff ff ff", "95 05 01 00 01 91 c6 ff ff ff ff"],
)
def test_a_large_header_costs_no_memory(body: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError):
            decode_client_message(memoryview(bytes.fromhex(body)))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 64 * 1024


def test_the_floor_of_msgspec_is_above_the_release_that_read_past_an_extensions_end() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    (floor,) = (need.partition(">=")[2] for need in project["project"]["dependencies"] if need.startswith("msgspec"))
    assert tuple(int(part) for part in floor.split(".")) > (0, 19, 0)
