"""Who may ask what, message by message, and how much: on a real server that asks who comes."""

import random
import socket
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from msgspec.structs import replace
from tests.integration.hostile.arena import scrape
from tests.integration.observer.observing import get
from tests.peer import Peer
from tests.secured import TOKENS, Secured, secured
from tests.serving import write_zoo
from tests.waiting import wait_until

from tickpath.client import (
    Client,
    ForbiddenError,
    OverloadedError,
    RefusedError,
    UnauthenticatedError,
    UnknownModelError,
)
from tickpath.wire import (
    PROTOCOL_VERSION,
    Cancel,
    ClientMessage,
    CloseFeed,
    Code,
    Failure,
    Goodbye,
    Hello,
    Infer,
    ModelList,
    Models,
    OpenFeed,
    Ping,
    Pong,
    Result,
    SnapshotFeed,
    Tick,
    Welcome,
    encode_frame,
)
from tickpath.wire.tokens import digest_of

ROW: Final = np.zeros((1, 64), np.float32)
BOOK: Final = np.zeros((40,), np.float32)
MLP: Final = 0
DEEPLOB: Final = 1
THREADED: Final = 2


def welcomed(peer: Peer) -> Welcome:
    welcome = peer.receive()
    assert isinstance(welcome, Welcome), welcome
    return welcome


def infer(request_id: int, handle: int, floats: int = 64) -> Infer:
    return Infer(request_id, handle, 1, [memoryview(bytes(4 * floats))])


@pytest.mark.parametrize("token", ["", "x", "desk", TOKENS["desk"][:-1], TOKENS["desk"] + "1", "1" * 2048, "\0", "é"])
def test_a_token_that_is_not_known_opens_nothing(shared: Secured, token: str) -> None:
    with shared.peer(token) as peer:
        peer.send(Ping(1), infer(2, MLP))
        failure = peer.receive()
        assert isinstance(failure, Failure)
        assert (failure.id, failure.code) == (0, Code.UNAUTHENTICATED)
        assert not token or token not in failure.message or len(token) < 5
        assert peer.receive() is None


@pytest.mark.parametrize(
    "first",
    [Ping(1), Models(1), infer(1, MLP), OpenFeed(1, DEEPLOB, "k"), Tick(1, 1, 1, []), Cancel(1), Goodbye()],
    ids=lambda message: type(message).__name__,
)
def test_nothing_is_answered_before_hello(shared: Secured, first: ClientMessage) -> None:
    with Peer(shared.server.connect_unix()) as peer:
        peer.send(first)
        failure = peer.receive()
        assert isinstance(failure, Failure)
        assert (failure.id, failure.code) == (0, Code.UNAUTHENTICATED)


def test_one_is_told_only_of_what_one_may_ask(shared: Secured) -> None:
    with shared.peer(TOKENS["lab"]) as lab, shared.peer(TOKENS["operator"]) as operator:
        assert [model.name for model in welcomed(lab).models] == ["mlp"]
        assert welcomed(operator).models == ()
        for versions in (False, True):
            lab.send(Models(1, versions))
            listed = lab.receive()
            assert isinstance(listed, ModelList)
            assert {model.name for model in listed.models} == {"mlp"}
    with shared.client("desk") as desk:
        assert {model.name for model in desk.models()} == {"mlp", "deeplob", "threaded"}


def test_what_one_may_not_ask_is_refused_by_handle_whatever_the_message(shared: Secured) -> None:
    with shared.client("desk") as desk:
        pinned = next(model.handle for model in desk.models(versions=True) if model.name == "deeplob")
        theirs = desk.open_feed("deeplob", "theirs")
    with shared.peer(TOKENS["lab"], "desk") as lab:
        welcomed(lab)
        number = 1  # the first feed there is
        for message in (
            infer(7, DEEPLOB, 4000),
            infer(7, DEEPLOB, 3),  # refused before its form is looked at
            infer(7, pinned, 4000),
            infer(7, THREADED),
            OpenFeed(7, DEEPLOB, "mine"),
            OpenFeed(7, DEEPLOB, "theirs"),
            OpenFeed(7, DEEPLOB, "theirs", False, memoryview(b"snapshot")),
            OpenFeed(7, pinned, "theirs", True),
            Tick(7, number, 1, [memoryview(bytes(160))]),
            SnapshotFeed(7, number),
            CloseFeed(7, number),
        ):
            lab.send(message)
            failure = lab.receive()
            assert isinstance(failure, Failure), (message, failure)
            assert (failure.id, failure.code) == (7, Code.FORBIDDEN), (message, failure)
            assert "deeplob" not in failure.message
            assert "threaded" not in failure.message
        lab.send(infer(8, 10_000), infer(9, MLP), Ping(10))
        unknown, answer, pong = (lab.receive() for _ in range(3))
        assert isinstance(unknown, Failure)
        assert unknown.code is Code.UNKNOWN_MODEL
        assert isinstance(answer, Result)
        assert isinstance(pong, Pong)
    with shared.client("lab") as lab_client:
        for name in ("deeplob", "deeplob@1", "threaded"):
            with pytest.raises(UnknownModelError):
                lab_client.infer(name, ROW)
        assert lab_client.infer("mlp@1", ROW).version == "1"
    assert theirs is not None


def test_a_feed_is_its_clients_whatever_name_another_says(shared: Secured) -> None:
    """The name in Hello is for people; the token says whose feed it is. Nobody else takes it, empties it, or puts
    something else there."""
    with shared.client("desk", name="alice") as owner, shared.client("slow", name="desk") as other:
        feed = owner.open_feed("deeplob", "BTC", anew=True)
        for _ in range(3):
            with pytest.raises(RefusedError):  # not full yet
                feed.tick(BOOK)
        snapshot = feed.snapshot()
        for more in ({}, {"anew": True}, {"snapshot": snapshot}):
            with pytest.raises(ForbiddenError, match="another client"):
                other.open_feed("deeplob", "BTC", **more)
        with pytest.raises(RefusedError):
            feed.tick(BOOK)
        assert feed.next_sequence == 5
    with shared.client("desk", name="someone else") as again:
        assert again.open_feed("deeplob", "BTC").next_sequence == 5


def test_cancel_takes_back_ones_own_requests_alone(shared: Secured) -> None:
    with shared.peer(TOKENS["desk"]) as desk, shared.peer(TOKENS["lab"]) as lab:
        welcomed(desk)
        welcomed(lab)
        desk.send(*(infer(n, THREADED) for n in range(1, 11)))
        lab.send(*(Cancel(n) for n in range(1, 11)))
        answers = [desk.receive() for _ in range(10)]
        assert all(isinstance(answer, Result) for answer in answers)


def test_quotas_are_of_the_client_over_all_its_sessions(shared: Secured) -> None:
    with shared.peer(TOKENS["slow"]) as one, shared.peer(TOKENS["slow"], "another name") as two:
        welcomed(one)
        welcomed(two)
        with shared.peer(TOKENS["slow"]) as third:
            failure = third.receive()
            assert isinstance(failure, Failure)
            assert (failure.id, failure.code) == (0, Code.OVERLOADED)
            assert "2 sessions" in failure.message
            assert third.receive() is None
        asked = [infer(n, MLP) for n in range(1, 31)]
        one.send(*asked[:15])
        two.send(*asked[15:])
        answers = [peer.receive() for peer in (one, two) for _ in range(15)]
        refused = [answer for answer in answers if isinstance(answer, Failure)]
        assert {failure.code for failure in refused} == {Code.OVERLOADED}
        assert all("5 times a second" in failure.message for failure in refused)
        assert len(refused) >= 5
        one.send(Ping(99))
        assert isinstance(one.receive(), Pong)
    with shared.client("desk") as desk:  # what one used up is not another's
        assert all(not isinstance(each, RefusedError) for each in desk.infer_many("mlp", [ROW] * 40))
    wait_until(lambda: _may_connect(shared, "slow"), "a session of the client whose others have ended")


def test_what_never_ran_is_not_in_flight_of_the_client(tmp_path: Path) -> None:
    """A request that its model's queue refuses takes no room of the client's, however many there are."""
    token = f"narrow-{'5' * 32}"
    narrow = {"name": "narrow", "token_sha256": [digest_of(token).hex()], "in_flight_max": 2}
    models = [{**model, "executor": "thread"} for model in write_zoo(tmp_path, "mlp")]
    with secured(tmp_path, models, tls=None, clients=[narrow]) as server, server.peer(token) as peer:
        welcomed(peer)
        peer.send(*(replace(infer(n, MLP), budget_ns=1) for n in range(1, 6)))
        refused = [peer.receive() for _ in range(5)]
        assert {each.code for each in refused if isinstance(each, Failure)} == {Code.DEADLINE}
        peer.send(infer(6, MLP))
        answer = peer.receive()
        assert isinstance(answer, Result), answer


def _may_connect(secured: Secured, name: str) -> bool:
    try:
        with secured.client(name):
            return True
    except OverloadedError:
        return False


def test_what_is_refused_is_counted_by_cause(shared: Secured) -> None:
    before = {cause: _refused(shared, cause) for cause in ("stranger", "model", "rate", "sessions", "handshake")}
    with pytest.raises(UnauthenticatedError), Client(shared.server.uds, token="nobody-that-is-known"):
        pass
    with shared.peer(TOKENS["lab"]) as lab:
        welcomed(lab)
        lab.send(infer(1, DEEPLOB))
        assert isinstance(lab.receive(), Failure)
    plain = shared.server.connect()
    plain.sendall(bytes(64))
    assert plain.recv(100) == b""
    plain.close()
    for cause in ("stranger", "model", "handshake"):
        wait_until(lambda cause=cause: _refused(shared, cause) > before[cause], cause)  # type: ignore[misc]


def _refused(secured: Secured, cause: str) -> float:
    return scrape(secured.server).value("tickpath_access_refused_total", cause=cause)


def test_secrets_are_nowhere(shared: Secured) -> None:
    """Not in the log, the metrics, what other pages say, titles and environments of processes, or what is refused."""
    for name in TOKENS:
        with shared.client(name):
            pass
    pages = [get(f"{shared.server.ready.observer}{path}")[1] for path in ("/", "/metrics", "/status.json", "/slow")]
    processes = [shared.server.ready.pid, shared.server.process.pid]
    processes += [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/status")
        if _parent(path) == shared.server.ready.pid
    ]
    said = [*pages, shared.server.log.read_text()]
    for pid in processes:
        said += [Path(f"/proc/{pid}/{file}").read_bytes().decode("latin-1") for file in ("cmdline", "environ", "comm")]
    key = (shared.folder / "server.key").read_text().splitlines()[1]
    for secret in (*TOKENS.values(), key):
        assert not any(secret in text for text in said)


def _parent(status: Path) -> int:
    try:
        return int(next(line for line in status.read_text().splitlines() if line.startswith("PPid")).split()[1])
    except (OSError, StopIteration):
        return 0


def test_guesses_and_idle_connections_never_keep_out_who_is_known(tmp_path: Path) -> None:
    with secured(tmp_path, tls=None, sessions_max=8) as server:
        uds = server.server.uds
        strangers = [server.server.connect_unix() for _ in range(20)]
        guessing = [server.peer(f"guess-number-{n:032}") for n in range(20)]
        with Client(uds, token=TOKENS["desk"], timeout_s=60) as desk:
            assert desk.infer("mlp", ROW).version == "1"
            more = [server.server.connect_unix() for _ in range(20)]
            assert desk.infer("mlp", ROW).version == "1"
            with Client(uds, token=TOKENS["desk"], timeout_s=60) as second:
                second.ping()
        for connection in (*strangers, *more):
            connection.close()
        for peer in guessing:
            peer.close()
        log = server.server.log.read_text()
        assert log.count("did not show who they are") <= 3
        assert "guess-number" not in log


def test_any_hello_is_answered_or_refused(shared: Secured) -> None:
    """Bytes of Hello, mutated, from a seed: each ends as UNAUTHENTICATED, a broken rule of the protocol, or Welcome for
    one whose token is still whole; and the server goes on."""

    chance = random.Random(7)
    right = encode_frame(Hello(PROTOCOL_VERSION, "peer", TOKENS["desk"]))
    peers = []
    for _ in range(60):
        frame = bytearray(right)
        for _ in range(chance.randint(1, 3)):
            frame[chance.randrange(4, len(frame))] = chance.randrange(256)
        peer = Peer(shared.server.connect_unix())
        peer.socket.sendall(frame)
        peer.socket.shutdown(socket.SHUT_WR)
        peers.append((peer, TOKENS["desk"].encode() in frame))
    for peer, whole in peers:
        reply = peer.receive()
        if isinstance(reply, Welcome):
            assert whole
        elif reply is not None:
            assert isinstance(reply, Failure)
            assert reply.code in (Code.UNAUTHENTICATED, Code.BAD_MESSAGE, Code.BAD_FRAME)
            assert TOKENS["desk"] not in reply.message
        peer.close()
    with shared.client("desk") as desk:
        desk.ping()
    assert "Traceback" not in shared.server.log.read_text()
