"""Whole conversations with changes, sent to a live server. Each byte stream has one right outcome, worked out here with
the protocol alone; and after each, a new client is served as if nothing had happened.

`TICKPATH_FUZZ_SECONDS=600 pytest tests/integration/hostile/test_mutations.py` goes on that long from a fresh seed;
`TICKPATH_FUZZ_SEED` runs one seed again.
"""

import os
import random
import socket
import time
from collections.abc import Iterator
from typing import Final

import pytest
from tests.fuzz.test_any_bytes import mutate
from tests.integration.hostile.arena import Model, echo, expect_answers, slow
from tests.peer import Peer
from tests.serving import RunningServer

from tickpath.wire import (
    PROTOCOL_VERSION,
    Cancel,
    ClientMessage,
    Code,
    Failure,
    FrameDecoder,
    Goodbye,
    Hello,
    Models,
    Ping,
    RemoteProtocolError,
    decode_client_message,
    encode_frame,
)

SECONDS: Final = float(os.environ.get("TICKPATH_FUZZ_SECONDS", "0"))
SEED: Final = os.environ.get("TICKPATH_FUZZ_SEED")
SEEDS_IN_CI: Final = 80
CONVERSATIONS_A_SEED: Final = 50

HELLO: Final = Hello(PROTOCOL_VERSION, "mutant")
CONVERSATIONS: Final[list[list[ClientMessage]]] = [
    [HELLO, echo(1), echo(2, rows=2, inputs=[bytes(512)]), Ping(3), echo(4)],
    [HELLO, Models(1), slow(2), Cancel(2), echo(3), slow(4, Model.CROWDED), slow(4, Model.CROWDED)],
    [
        HELLO,
        echo(1, inputs=[None]),
        echo(2, rows=0),
        echo(3, handle=77),
        echo(4, handle=Model.TWO, inputs=[bytes(48), bytes(20)]),
    ],
    [HELLO, slow(1), slow(2), slow(3), Goodbye("mutant"), Cancel(3)],
    [HELLO, echo(1, handle=Model.BOOLS, inputs=[b"\1\0\1\0"]), Ping(2), HELLO, Ping(3)],
    [Ping(1), HELLO],
]


def outcome(stream: bytes, frame_bytes_max: int) -> tuple[int | None, Code | None]:
    """(replies, code of the Failure with id 0 behind them) that a stream must get when the sending side is shut after
    it. Replies None: any number, since the session may end at Goodbye, or wait for what is in flight and read on."""
    decoder = FrameDecoder(frame_bytes_max, len(stream) + 1)
    decoder.get_buffer()[: len(stream)] = stream
    decoder.received(len(stream))
    replies, greeted = 0, False
    try:
        while (frame := decoder.next_frame()) is not None:
            message = decode_client_message(frame)
            if not greeted:
                if not isinstance(message, Hello):
                    return replies, Code.UNAUTHENTICATED
                if message.protocol != PROTOCOL_VERSION:
                    return replies, Code.BAD_MESSAGE
                greeted = True
            elif isinstance(message, Hello):
                return replies, Code.BAD_MESSAGE
            if isinstance(message, Goodbye):
                return None, None
            replies += not isinstance(message, Cancel)
    except RemoteProtocolError as error:
        return replies, error.code
    return replies, Code.BAD_FRAME if decoder.bytes_waiting else None


def check(server: RunningServer, frame_bytes_max: int, stream: bytes, unix: bool) -> None:
    """The stream gets what it must; and then a client that keeps the rules is served."""
    with Peer(server.connect_unix() if unix else server.connect()) as peer:
        peer.socket.sendall(stream)
        peer.socket.shutdown(socket.SHUT_WR)
        replies = []
        while (reply := peer.receive()) is not None:
            replies.append(reply)
    ends = [reply for reply in replies if isinstance(reply, Failure) and reply.id == 0]
    assert ends in ([], replies[-1:]), "one Failure with id 0 at the most, and nothing behind it"
    count, code = outcome(stream, frame_bytes_max)
    if count is not None:
        assert (len(replies) - len(ends), ends[0].code if ends else None) == (count, code)
    with server.peer() as other:
        other.send(echo(9))
        expect_answers(other, echo(9))


def seeds() -> Iterator[int]:
    """The seeds to try: one, a fixed number of fixed ones, or fresh ones until the time is over."""
    if SEED is not None:
        yield int(SEED)
    elif SECONDS == 0:
        yield from range(SEEDS_IN_CI)
    else:
        end_s = time.monotonic() + SECONDS
        while time.monotonic() < end_s:
            yield random.SystemRandom().getrandbits(32)


@pytest.mark.timeout(120 + 2 * SECONDS)
def test_mutated_conversations(usual: RunningServer) -> None:
    streams = [b"".join(map(encode_frame, conversation)) for conversation in CONVERSATIONS]
    with Peer(usual.connect()) as peer:
        frame_bytes_max = peer.greet().limits.frame_bytes_max
    for stream in streams:
        check(usual, frame_bytes_max, stream, unix=False)
    for seed in seeds():
        chance = random.Random(seed)
        for number in range(CONVERSATIONS_A_SEED):
            stream = mutate(chance, streams)
            try:
                check(usual, frame_bytes_max, stream, unix=number % 2 == 1)
            except BaseException as error:
                error.add_note(f"TICKPATH_FUZZ_SEED={seed}, stream {stream.hex()}")
                raise
