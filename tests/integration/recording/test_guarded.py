"""A recording of a server that asks who comes, and its playback to one."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from tests.feed_models import FEATURES, rows
from tests.peer import Peer
from tests.recordings import TICKS, index, messages, replay, write_models
from tests.secured import TOKENS, Secured, clients, secured

from tickpath.client import NotReadyError
from tickpath.recorder.entries import Kind
from tickpath.recorder.reading import open_segments
from tickpath.wire import ClientMessage, Code, Failure, Infer, OpenFeed, Result, ServerMessage, Tick, Welcome

Exchanged = list[tuple[str, ClientMessage, ServerMessage | None]]

STRANGER: Final = "nobody-that-is-known-here"
ROW: Final = np.ones((1, 3), np.float32)
SCALE: Final = 0
WINDOW: Final = 1
COUNT: Final = 10
BURST: Final = 20  # of `slow`'s quota
OVER: Final = 10
# Everything but strangers: what desk asks with a feed of so many ticks, what lab asks twice, and slow's.
TOTAL: Final = COUNT + TICKS + 2 + 2 + BURST + OVER


def rights(folder: Path) -> list[dict[str, Any]]:
    """Of the models that are recorded here: the lab may ask `scale` alone."""
    return [each | {"models": ["scale"]} if each["name"] == "lab" else each for each in clients(folder)]


def answers(peer: Peer, count: int) -> list[ServerMessage | None]:
    return [peer.receive() for _ in range(count)]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What clients of all kinds asked: one that may, one that may not ask all, one over its quota, and strangers."""
    folder = tmp_path_factory.mktemp("guarded")
    with secured(folder, write_models(folder), record={"dir": "recording"}, clients=rights(folder)) as server:
        with server.client("desk", name="what-it-calls-itself") as desk, desk.open_feed("window", "ES") as feed:
            for number in range(COUNT):
                desk.infer("scale", ROW * number)
            for row in rows(TICKS):
                with suppress(NotReadyError):
                    feed.tick(row.reshape(1, FEATURES))
        with server.peer(TOKENS["lab"]) as lab:
            lab.send(infer(1), OpenFeed(2, WINDOW, "NQ"))
            assert [type(each) for each in answers(lab, 3)] == [Welcome, Result, Failure]
        with server.peer(TOKENS["slow"]) as slow:
            slow.send(*(infer(number) for number in range(1, BURST + OVER + 1)))
            answers(slow, 1 + BURST + OVER)
        for token in (STRANGER, ""):
            with server.peer(token) as stranger:
                stranger.send(infer(1))
                refused, end = answers(stranger, 2)
                assert isinstance(refused, Failure)
                assert (refused.code, end) == (Code.UNAUTHENTICATED, None)
    return folder / "recording"


@pytest.fixture(scope="module")
def found(recorded: Path) -> Exchanged:
    return messages(index(recorded))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Another server of the same models and clients, to play to."""
    folder = tmp_path_factory.mktemp("played")
    with secured(folder, write_models(folder), clients=rights(folder)) as server:
        yield server


def infer(number: int) -> Infer:
    return Infer(number, SCALE, 1, [memoryview(ROW.tobytes())])


def test_requests_are_recorded_by_the_name_that_the_server_knows(found: Exchanged) -> None:
    """Each with its answer, and none but theirs."""
    asked = Counter((client, type(request)) for client, request, _ in found)
    assert asked[("desk", Infer)] == COUNT
    assert asked[("desk", Tick)] == TICKS
    assert {client for client, _ in asked} == {"desk", "lab", "slow"}
    assert len(found) == TOTAL
    assert all(reply is not None for _, _, reply in found)


def test_what_rights_and_quotas_refuse_is_recorded_as_an_answer(found: Exchanged) -> None:
    lab = [reply.code if isinstance(reply, Failure) else type(reply) for client, _, reply in found if client == "lab"]
    assert lab == [Result, Code.FORBIDDEN]
    slow = [reply.code if isinstance(reply, Failure) else type(reply) for client, _, reply in found if client == "slow"]
    assert len(slow) == BURST + OVER
    assert slow[:BURST] == [Result] * BURST
    assert Code.OVERLOADED in slow[BURST:]
    assert set(slow[BURST:]) <= {Result, Code.OVERLOADED}


def test_a_stranger_leaves_nothing(recorded: Path) -> None:
    """No session, no request, not even the refusal: three clients came, each once."""
    kinds = Counter(entry.kind for segment in open_segments([recorded]) for _, entry in segment)
    assert kinds[Kind.OPENED] == kinds[Kind.CLOSED] == 3
    assert kinds[Kind.REQUEST] == kinds[Kind.REPLY] == TOTAL


def test_no_token_is_in_any_file(recorded: Path) -> None:
    data = b"".join(path.read_bytes() for path in recorded.iterdir())
    assert b"desk" in data
    for token in (*TOKENS.values(), STRANGER, "what-it-calls-itself"):
        assert token.encode() not in data
    log = (recorded.parent / "server.log").read_text()
    assert not any(token in log for token in TOKENS.values())


def test_it_is_played_over_tls_with_a_token(recorded: Path, guarded: Secured) -> None:
    words = (str(recorded), "--at", guarded.server.address, "--tls-ca", guarded.authority.path, "--speed", "max")
    desk = ("--token-file", str(guarded.folder / "desk.token"))
    report = replay(*words, *desk, exit_code=7)
    assert (report["ending"], report["played"], report["unanswered"]) == ("complete", TOTAL, 0)
    assert (report["differ"], report["not_recorded"]) == (0, 0)
    # The desk may do what the lab may not; a quota of that time decides nothing.
    others = {(change["recorded"], change["replayed"]) for change in report["codes"]}
    assert others == {("FORBIDDEN", "OK"), ("OVERLOADED", "OK")}
    assert report["decided_otherwise"] == 1


@pytest.mark.parametrize("who", ["nobody", "unknown"])
def test_without_a_token_that_is_known_it_says_so(recorded: Path, guarded: Secured, who: str) -> None:
    done = play(recorded, guarded, "--tls-ca", guarded.authority.path, token=STRANGER * (who == "unknown"))
    assert done.returncode == 1
    assert "opens no session" in done.stderr
    assert "did not recognise this client" in done.stderr
    assert STRANGER not in done.stdout + done.stderr


def test_what_is_wrong_with_tls_is_one_line(recorded: Path, guarded: Secured) -> None:
    unknown = play(recorded, guarded, token=TOKENS["desk"])
    assert unknown.returncode == 1
    assert "certificate" in unknown.stderr
    missing = play(recorded, guarded, "--tls-ca", "none.pem", token=TOKENS["desk"])
    assert (missing.returncode, "none.pem" in missing.stderr) == (1, True)
    no_file = play(recorded, guarded, "--token-file", "none.token")
    assert (no_file.returncode, "none.token: No such file" in no_file.stderr) == (1, True)
    for each in (unknown, missing, no_file):
        assert len(each.stderr.splitlines()) == 1, each.stderr


def play(recorded: Path, server: Secured, *more: str, token: str = "") -> subprocess.CompletedProcess[str]:
    words = ("replay", str(recorded), "--at", server.server.address, *more)
    environment = os.environ | {"TICKPATH_TOKEN": token}
    command = [sys.executable, "-m", "tickpath.cli", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
