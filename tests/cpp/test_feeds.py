"""Feeds, as the C++ client speaks of them. The server's side is written as bytes."""

from typing import Any, Final

import msgspec
import numpy as np
from tests.cpp.driver import Driver, output
from tests.unit.client.scripted import ECHO, STAMPS, ScriptedServer, Session

from tickpath.wire import Code

ROW: Final = np.array([[1.0, 2.0, 3.0]], np.float32)
TENSOR: Final = ["x", "float32", [1, 3], 0, False]
FEED: Final = 77
FAILURE, RESULT, OPENED, SNAPSHOT, CLOSED = 7, 6, 15, 17, 18
OPEN, CLOSE, TICK, TAKE_SNAPSHOT = 8, 9, 10, 16


def say(session: Session, *message: Any) -> None:
    body = msgspec.msgpack.encode(message)
    session.send_bytes(len(body).to_bytes(4, "little") + body)


def hear(session: Session) -> list[Any]:
    """The client's next message, as an array."""
    length = int.from_bytes(session.socket.recv(4, 0x100), "little")  # MSG_WAITALL
    message: list[Any] = msgspec.msgpack.decode(session.socket.recv(length, 0x100))
    return message


def open_and_answer(session: Session, next_sequence: int) -> list[Any]:
    asked = hear(session)
    say(session, OPENED, asked[1], FEED, next_sequence, 100, next_sequence - 1, False, "7", [TENSOR], [TENSOR])
    return asked


def test_ticks_count_on_and_go_where_the_server_says(client: Driver) -> None:
    def script(session: Session) -> None:
        session.welcome()
        assert open_and_answer(session, 1) == [OPEN, 1, ECHO.handle, "es", False, None]
        first, second, third = hear(session), None, None
        assert first == [TICK, 2, FEED, 1, [ROW.tobytes()], 0, 0, 0]
        say(session, RESULT, 2, "7", [ROW.tobytes()], STAMPS)
        second = hear(session)
        assert second[3] == 2
        say(session, FAILURE, second[1], Code.FEED_GAP, "9 is next", 9)
        third = hear(session)
        assert third[3] == 9
        say(session, RESULT, third[1], "7", [ROW.tobytes()], STAMPS)
        session.expect_end()

    with ScriptedServer(None, script) as server:
        client.connect(server.address)
        opened = client.say("open", "echo", "es", 0)
        assert (opened["status"], opened["next_sequence"], opened["window"]) == ("OK", 1, 100)
        tick = f"float32:{ROW.tobytes().hex()}"
        assert output(client.say("tick", tick)).tobytes() == ROW.tobytes()
        gap = client.say("tick", tick)
        assert (gap["status"], gap["next_sequence"], gap["feed_next"]) == ("FEED_GAP", 9, 9)
        assert client.say("tick", tick)["status"] == "OK"
        assert client.say("tick", "float32:00000000")["status"] == "BAD_SHAPE"  # here: the script hears no more
        client.say("close")


def test_a_snapshot_opens_another_feed(client: Driver) -> None:
    kept = bytes(range(256)) * 200  # more than any message without tensors

    def script(session: Session) -> None:
        session.welcome()
        open_and_answer(session, 5)
        asked = hear(session)
        assert asked[0] == TAKE_SNAPSHOT
        say(session, SNAPSHOT, asked[1], 5, kept)
        asked = hear(session)
        assert (asked[0], asked[2]) == (CLOSE, FEED)
        say(session, CLOSED, asked[1])
        assert open_and_answer(session, 5)[3:] == ["nq", True, kept]
        session.expect_end()

    with ScriptedServer(None, script) as server:
        client.connect(server.address)
        client.say("open", "echo", "es", 0)
        taken = client.say("snapshot")["snapshot"]
        assert bytes.fromhex(taken) == kept
        assert client.say("close_feed")["status"] == "OK"
        assert client.say("open", "echo", "nq", 1, taken)["next_sequence"] == 5
        client.say("close")


def test_a_refused_feed(client: Driver) -> None:
    def script(session: Session) -> None:
        session.welcome()
        say(session, FAILURE, hear(session)[1], Code.FORBIDDEN, "another client has it")
        session.expect_end()

    with ScriptedServer(None, script) as server:
        client.connect(server.address)
        assert client.say("open", "echo", "es", 0)["status"] == "FORBIDDEN"
        assert client.say("open", "echo", "k" * 129, 0)["status"] == "BAD_VALUE"
        client.say("close")
