"""Frames that are no message, or not one for this moment. Known failures A8, A9, A10."""

import random
from collections.abc import Iterator

import msgspec
import pytest
from tests.integration.hostile.arena import (
    Model,
    echo,
    expect_answers,
    expect_end,
    expect_failure,
)
from tests.peer import Peer
from tests.serving import RunningServer

from tickpath.wire import (
    PROTOCOL_VERSION,
    TENSORS_MAX,
    Cancel,
    ClientMessage,
    Code,
    Goodbye,
    Hello,
    Infer,
    Models,
    Ping,
)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "little") + body


# Where a value can stand: past a message's known fields, where it is passed over; and in the place of a typed one.
PLACES = {
    "passed over": bytes.fromhex("93 0c 01"),
    "as an id": bytes.fromhex("92 0c"),
    "as inputs": bytes.fromhex("95 05 01 00 01"),
    "as an input": bytes.fromhex("95 05 01 00 01 91"),
    "as a tag": bytes.fromhex("91"),
    "as a message": b"",
}


def bombs() -> Iterator[tuple[str, bytes]]:
    for head in ("dd", "df", "c6", "db", "c9"):
        yield f"{head} of 4 GiB", bytes.fromhex(head) + b"\xff" * 4
        yield f"{head} of 2 GiB", bytes.fromhex(head) + b"\x7f\xff\xff\xff" + b"\xc0" * 100
    for depth in (2_000, 200_000):
        yield f"{depth} arrays", b"\x91" * depth + b"\xc0"
        yield f"{depth} maps", b"\x81\xc0" * depth + b"\xc0"
        yield f"{depth} open arrays", b"\x91" * depth
    yield "an extension", bytes.fromhex("c7 06 40 07 e9 04 16 09 1e")


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_bombs(usual: RunningServer, place: bytes) -> None:
    """Each is refused, or in one case passed over: an extension where anything may stand."""
    before = usual.rss_bytes()
    for name, bomb in bombs():
        with usual.peer() as peer:
            peer.send(echo(1))
            peer.socket.sendall(framed(place + bomb))
            expect_answers(peer, echo(1))
            if name == "an extension" and place == PLACES["passed over"]:
                assert peer.receive() is not None
            else:
                assert "not a message of this protocol" in expect_end(peer, Code.BAD_MESSAGE), name
    assert usual.rss_bytes() - before < 8 * 1024 * 1024


def test_garbage(usual: RunningServer) -> None:
    """Random bytes behind good lengths; the first two bytes make no tag of ours."""
    chance = random.Random(1)
    for _ in range(50):
        with usual.peer() as peer:
            peer.socket.sendall(framed(b"\xff" + chance.randbytes(chance.randint(1, 300))))
            expect_end(peer, Code.BAD_MESSAGE)


@pytest.mark.parametrize(
    "text", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\n" * 64]
)
def test_other_protocols(usual: RunningServer, text: bytes) -> None:
    with Peer(usual.connect()) as peer:
        peer.socket.sendall(text)
        expect_end(peer, Code.BAD_FRAME)


def expect_bad_message(server: RunningServer, content: object) -> None:
    """As the second message of a session, after an answered first."""
    with server.peer() as peer:
        peer.send(echo(1))
        peer.socket.sendall(framed(msgspec.msgpack.encode(content)))
        expect_answers(peer, echo(1))
        assert "not a message of this protocol" in expect_end(peer, Code.BAD_MESSAGE), content


def test_tags_that_no_client_sends(usual: RunningServer) -> None:
    """Those of a server and those that are none."""
    for tag in (0, 2, 4, 6, 7, 13, 15, 17, 18, 19, 127, 255, 2**32, 2**64 - 1, -1, "x", None, 5.0, True, [5]):
        expect_bad_message(usual, [tag, 1, 1, "x", [], [], [0] * 6])


MISTYPED = [
    [5],
    [5, 0, 0, 1, [b""]],  # id 0
    [5, -1, 0, 1, [b""]],
    [5, 1, -1, 1, [b""]],
    [5, 1, 0, -1, [b""]],  # rows of -1
    [5, 1, 0, 1.0, [b""]],
    [5, 1, 0, True, [b""]],
    [5, 1, 0, None, [b""]],
    [5, 1, "0", 1, [b""]],
    [5, 1, 0, 1, b""],
    [5, 1, 0, 1, None],
    [5, 1, 0, 1, ["text"]],
    [5, 1, 0, 1, [[1.0]]],
    [5, 1, 0, 1, {"x": b""}],
    [5, 1, 0, 1, [b""], -1],
    [1, 1, "a client", "", 0][:1],
    {"tag": 5},
    "Infer",
    500,
]


def test_fields_of_another_type(usual: RunningServer) -> None:
    for fields in MISTYPED:
        expect_bad_message(usual, fields)


def test_the_most_inputs_that_a_message_may_have(usual: RunningServer) -> None:
    with usual.peer() as peer:
        peer.send(echo(1, inputs=[b""] * TENSORS_MAX))
        assert f"{TENSORS_MAX} came" in expect_failure(peer, 1, Code.BAD_SHAPE)
        peer.send(echo(2), echo(3, inputs=[b""] * (TENSORS_MAX + 1)))
        expect_answers(peer, echo(2))
        expect_end(peer, Code.BAD_MESSAGE)


def test_a_million_inputs_cost_nothing(usual: RunningServer) -> None:
    before = usual.rss_bytes()
    for _ in range(5):
        with usual.peer() as peer:
            peer.socket.sendall(framed(bytes.fromhex("95 05 01 00 01 dd 00 0f 42 40") + b"\xc0" * 1_000_000))
            expect_end(peer, Code.BAD_MESSAGE)
    assert usual.rss_bytes() - before < 8 * 1024 * 1024


# -- not at this moment --


@pytest.mark.parametrize(
    "first", [echo(1), Ping(1), Models(1), Cancel(1), Goodbye()], ids=lambda message: type(message).__name__
)
def test_nothing_comes_before_hello(usual: RunningServer, first: ClientMessage) -> None:
    with Peer(usual.connect()) as peer:
        peer.send(first, Hello(PROTOCOL_VERSION, "late"))
        assert "Hello must be the first message" in expect_end(peer, Code.UNAUTHENTICATED)


@pytest.mark.parametrize("version", [0, 2, 2**64 - 1])
def test_another_protocol_version(usual: RunningServer, version: int) -> None:
    with Peer(usual.connect()) as peer:
        peer.send(Hello(version, "newer"), echo(1))
        message = expect_end(peer, Code.BAD_MESSAGE)
        assert f"speaks protocol {PROTOCOL_VERSION}, {version} was asked for" in message


def test_a_second_hello(usual: RunningServer) -> None:
    with usual.peer() as peer:
        peer.send(echo(1), Hello(PROTOCOL_VERSION, "again"), echo(2))
        expect_answers(peer, echo(1))
        assert "only the first" in expect_end(peer, Code.BAD_MESSAGE)


def test_a_hello_too_long(usual: RunningServer) -> None:
    for hello in (Hello(PROTOCOL_VERSION, "x" * 129), Hello(PROTOCOL_VERSION, "x", "x" * 2049)):
        with Peer(usual.connect()) as peer:
            peer.send(hello)
            expect_end(peer, Code.BAD_MESSAGE)


def test_hello_and_a_request_in_one_segment(usual: RunningServer) -> None:
    with Peer(usual.connect()) as peer:
        peer.send(Hello(PROTOCOL_VERSION, "eager"), echo(1), Ping(2))
        assert peer.receive() is not None
        expect_answers(peer, echo(1))
        assert peer.receive() is not None


def test_hello_has_its_time(strict: RunningServer) -> None:
    """From connecting, whether nothing comes, a part, or a part more now and then."""
    with Peer(strict.connect()) as silent, Peer(strict.connect()) as partial, Peer(strict.connect()) as trickler:
        hello = silent.frame(Hello(PROTOCOL_VERSION, "x" * 100))
        partial.socket.sendall(hello[:50])
        trickler.socket.settimeout(0.05)
        for at in range(len(hello)):
            trickler.socket.send(hello[at : at + 1])
            try:
                trickler.socket.recv(1, 2)  # MSG_PEEK
                break
            except TimeoutError:
                continue
        assert at < len(hello) - 1
        for peer in (silent, partial, trickler):
            peer.socket.settimeout(20)
            assert "no Hello within 1 s" in expect_end(peer, Code.UNAUTHENTICATED)


def test_cancel_of_what_is_not_there(usual: RunningServer) -> None:
    with usual.peer() as peer:
        peer.send(Cancel(1), Cancel(2**64 - 1), Infer(2**64 - 1, Model.ECHO, 1, echo(3).inputs, 0, 0, 0, 2**64 - 1))
        expect_answers(peer, echo(2**64 - 1, inputs=echo(3).inputs))
