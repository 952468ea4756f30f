"""As many clients as fit, and more. Known failure A19."""

import resource
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.integration.hostile.arena import (
    Neighbour,
    crowd,
    echo,
    expect_answers,
    expect_end,
    unharmed,
)
from tests.peer import Peer
from tests.serving import RunningServer, serve, write_zoo
from tests.waiting import wait_until

from tickpath.server.core import DESCRIPTORS_RESERVED
from tickpath.wire import PROTOCOL_VERSION, Code, Hello

FILES_MAX = DESCRIPTORS_RESERVED + 16
LINGERING_MAX = 16
"""Refused connections that may still hold a descriptor."""


def descriptors(server: RunningServer) -> int:
    return len(list(Path(f"/proc/{server.ready.pid}/fd").iterdir()))


@pytest.fixture
def full(strict: RunningServer) -> Iterator[list[Peer]]:
    """All eight sessions of the strict server are open; these are those that are not the neighbour's."""
    with ExitStack() as stack:
        yield [stack.enter_context(strict.peer()) for _ in range(6)]


@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
@pytest.mark.parametrize("eager", [False, True], ids=["silent", "eager"])
def test_one_session_too_many(strict: RunningServer, full: list[Peer], unix: bool, eager: bool) -> None:
    """It is told, also when it has said a lot before it listens; and others are served."""
    with Peer(strict.connect_unix() if unix else strict.connect()) as peer:
        if eager:
            peer.send(Hello(PROTOCOL_VERSION, "eager"), *map(echo, range(1, 200)))
            time.sleep(0.01)
            peer.send(*map(echo, range(1, 10)))
        assert "8 sessions are open, the most" in expect_end(peer, Code.OVERLOADED)
    for other in full:
        other.send(echo(1))
        expect_answers(other, echo(1))


def test_room_again(strict: RunningServer, full: list[Peer]) -> None:
    """As soon as one closes; and those that were refused take none of it."""

    def welcomed() -> bool:
        with Peer(strict.connect()) as peer:
            peer.send(Hello(PROTOCOL_VERSION, "next"))
            return "Welcome" in str(peer.receive())

    assert not welcomed()
    full[0].close()
    wait_until(welcomed, "there is room again")


def test_a_crowd_that_stays(strict: RunningServer, full: list[Peer]) -> None:
    """Refused and not gone: such clients hold few descriptors, for a moment."""
    before = descriptors(strict)
    with crowd(strict, 100) as refused:
        full[0].send(echo(1))
        expect_answers(full[0], echo(1))
        assert descriptors(strict) <= before + LINGERING_MAX + 4, "4 may be just on their way out"
        wait_until(lambda: descriptors(strict) <= before, "the server has let go of them")
        for peer in refused:
            expect_end(peer, Code.OVERLOADED)


# -- out of descriptors --


@pytest.fixture(scope="module")
def cramped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("cramped")
    limit = ("bash", "-c", f'ulimit -n {FILES_MAX}; exec "$0" "$@"')
    with serve(folder, write_zoo(folder, "null"), prefix=limit) as server:
        yield server


@contextmanager
def files_limited(server: RunningServer, count: int) -> Iterator[None]:
    usual = resource.prlimit(server.ready.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.ready.pid, resource.RLIMIT_NOFILE, (count, usual[1]))
    yield
    resource.prlimit(server.ready.pid, resource.RLIMIT_NOFILE, usual)


def stays_quiet(server: RunningServer) -> bool:
    """Over a second in which nobody asks for anything, the server does next to nothing."""
    cpu_s, start_s = server.cpu_s(), time.monotonic()
    time.sleep(1)
    return server.cpu_s() - cpu_s < (time.monotonic() - start_s) / 4


def test_few_descriptors_mean_few_sessions(cramped: RunningServer) -> None:
    with cramped.peer() as first, crowd(cramped, 100):
        first.send(echo(1))
        expect_answers(first, echo(1))
        assert descriptors(cramped) < FILES_MAX, "some are left"
        assert stays_quiet(cramped)
    with unharmed(cramped), Peer(cramped.connect()) as peer:
        assert peer.greet().limits.sessions_max == 16
    said = cramped.log.read_text()
    assert f"sessions_max lowered from 1024 to 16: the limit of open files is {FILES_MAX}" in said
    assert "Traceback" not in said


def test_no_descriptor_left(cramped: RunningServer) -> None:
    """The last ones are taken away while the server runs: who is connected is served, and accepting goes on later."""
    with Neighbour(cramped) as neighbour, files_limited(cramped, descriptors(cramped) + 2), crowd(cramped, 20):
        neighbour.pause()
        assert stays_quiet(cramped)
        neighbour.ask()
    with unharmed(cramped):
        pass
    assert "Traceback" not in cramped.log.read_text()
