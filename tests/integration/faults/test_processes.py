"""What happens to the server's processes and to the machine below them: signals, descriptors, a disk without room.
Known failures A19, C12."""

import os
import resource
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.integration.faults.figures import Usage, crowd, outcome, replies, row, slow, usage, write_models
from tests.integration.faults.innocent import innocent
from tests.integration.hostile.arena import echo, expect_answers, scrape
from tests.peer import Peer
from tests.processes import children
from tests.recordings import recorder_of
from tests.serving import RunningServer, serve
from tests.waiting import wait_until

from tickpath.wire import PROTOCOL_VERSION, Failure, Goodbye, Hello, Ping, Pong, Result, encode_frame

HELLO = encode_frame(Hello(PROTOCOL_VERSION, "stranger"))
OPEN_FILES = 64
CROWD = 100
# In flight, and in the kernel: a hundred of each, 25 of a session, since a session has 32 in flight at most.
SESSIONS = 4
EACH = 25
# Many times what ten slow requests take: without the stop it would be kept.
STOPPED_BUDGET_NS = 10**9
STOPS_MAX = 5


@contextmanager
def stopped(server: RunningServer) -> Iterator[None]:
    """The process stands still in the block, and knows nothing of it."""
    server.process.send_signal(signal.SIGSTOP)
    stat = Path(f"/proc/{server.ready.pid}/stat")
    wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it stands still")
    yield
    server.process.send_signal(signal.SIGCONT)


def _ended(code: int | None) -> str:
    return f"exit {code}"


def test_64_open_files(tmp_path: Path, table: list[str]) -> None:
    """A hundred come: those for whom there is room are served, the others are told, or wait in the kernel and are told
    later; and afterwards there is room again."""
    limit = ("bash", "-c", f'ulimit -n {OPEN_FILES}; exec "$0" "$@"')
    with serve(tmp_path, write_models(tmp_path), prefix=limit, observer_port=0) as server:
        with (
            innocent(server) as client,
            usage(server.ready.pid) as seen,
            client.beside(),
            crowd(server, CROWD, HELLO) as strangers,
        ):
            outcomes = Counter(map(outcome, strangers))
            assert Usage(server.ready.pid).descriptors < OPEN_FILES
        wait_until(lambda: _is_welcome(server), "there is room again")
    outcomes[_ended(server.process.returncode)] += 1
    table.append(row(f"ulimit -n {OPEN_FILES}, {CROWD} connects", outcomes, client, seen))
    assert outcomes["Welcome"] > 0
    assert outcomes["OVERLOADED"] > 0
    assert outcomes["Welcome"] + outcomes["OVERLOADED"] + outcomes["ended"] == CROWD
    assert "Traceback" not in server.log.read_text()


def _is_welcome(server: RunningServer) -> bool:
    with Peer(server.connect()) as peer:
        peer.socket.sendall(HELLO)
        return outcome(peer) == "Welcome"


@pytest.mark.parametrize("drain_s", [30.0, 0.2], ids=["time enough", "no time"])
def test_sigterm_with_100_in_flight_and_100_queued(tmp_path: Path, table: list[str], drain_s: float) -> None:
    """Each of the two hundred is answered or refused with a code, once; then comes the end."""
    with ExitStack() as opened, serve(tmp_path, write_models(tmp_path), drain_s=drain_s, observer_port=0) as server:
        working = [opened.enter_context(server.peer()) for _ in range(SESSIONS)]
        queued = [opened.enter_context(server.peer()) for _ in range(SESSIONS)]
        for peer in working:
            peer.send(*(slow(number) for number in range(1, EACH + 1)), Ping(99))
        answers: list[Counter[int]] = [Counter() for _ in (*working, *queued)]
        outcomes = Counter[str]()
        for peer, got in zip(working, answers, strict=False):
            while not isinstance(message := peer.receive(), Pong):
                _note(message, got, outcomes)
        with stopped(server):
            for peer in queued:
                peer.send(*map(slow, range(1, EACH + 1)))
            server.process.send_signal(signal.SIGTERM)
        for peer, got in zip((*working, *queued), answers, strict=True):
            while (message := peer.receive()) is not None:
                _note(message, got, outcomes)
        outcomes[_ended(server.process.wait(60))] += 1
    ended = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
    table.append(f"{f'SIGTERM, 100 + 100, drain_s {drain_s:g}':<36} {ended}")
    assert all(got == Counter(range(1, EACH + 1)) for got in answers)
    assert outcomes["exit 0"] == 1
    assert set(outcomes) <= {"Result", "NOT_READY", "exit 0"}
    assert "Traceback" not in server.log.read_text()


def _note(message: object, got: Counter[int], outcomes: Counter[str]) -> None:
    if isinstance(message, Result | Failure):
        got[message.id] += 1
        outcomes[message.code.name if isinstance(message, Failure) else "Result"] += 1
    else:
        assert isinstance(message, Goodbye)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("processes")
    record = {"dir": "recording", "ring_bytes": 65536, "segment_bytes": 1 << 20}
    with serve(folder, write_models(folder), observer_port=0, record=record) as server:
        yield server
    assert "Traceback" not in server.log.read_text()


def test_sigstop_and_sigcont(server: RunningServer, table: list[str]) -> None:
    """What had come is answered where its budget still holds, and refused where it does not: the time in which the
    server stood still counts."""
    outcomes = Counter[str]()
    with server.peer() as asking, innocent(server) as client, usage(server.ready.pid) as seen, client.beside():
        for _ in range(STOPS_MAX):
            asking.send(*map(slow, range(1, 10)), slow(10, 10**12), slow(11, STOPPED_BUDGET_NS), Ping(12))
            before = _until_pong(asking)
            with stopped(server):
                time.sleep(3 * STOPPED_BUDGET_NS / 1e9)  # the fault itself
            after = replies(asking, 11 - len(before))
            outcomes.update([*before.values(), *after.values()])
            assert {number: name for number, name in (before | after).items() if name != "Result"}.keys() <= {11}
            if after.get(11) == "DEADLINE":
                break  # else it was answered before the stop, or refused as it came
    table.append(row("SIGSTOP, SIGCONT", outcomes, client, seen))
    assert after.get(11) == "DEADLINE"


def _until_pong(peer: Peer) -> dict[int, str]:
    """The server has read all that was sent. What is answered already, as `replies` has it."""
    found = {}
    while not isinstance(message := peer.receive(), Pong):
        assert isinstance(message, Result | Failure)
        found[message.id] = message.code.name if isinstance(message, Failure) else "Result"
    return found


def test_the_observer_is_killed(server: RunningServer, table: list[str]) -> None:
    """Another takes its place, and goes on counting from where it was."""
    with innocent(server) as client, usage(server.ready.pid) as seen, client.beside():
        before = _answered(server)
        (pid,) = (pid for pid in children(server.ready.pid) if pid != recorder_of(server))
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: _serves(server) and _answered(server) > before > 0, "another observer, which counts on")
        counted = _answered(server)
    table.append(row("observer killed", Counter({"counted before": int(before), "after": int(counted)}), client, seen))


def _serves(server: RunningServer) -> bool:
    try:
        scrape(server)
    except OSError:
        return False
    return True


def _answered(server: RunningServer) -> float:
    return scrape(server).value("tickpath_request_duration_seconds_count", model="echo")


def test_the_recorder_is_killed(server: RunningServer, table: list[str]) -> None:
    with innocent(server) as client, usage(server.ready.pid) as seen, client.beside():
        os.kill(recorder_of(server), signal.SIGKILL)
        recorded = _recorded(server)
        wait_until(lambda: _recorded(server) > recorded, "another recorder")
    table.append(row("recorder killed", Counter(), client, seen))


def _recorded(server: RunningServer) -> float:
    return scrape(server).value("tickpath_recorded_total")


def test_the_disk_is_full_under_record(server: RunningServer, table: list[str]) -> None:
    """Entries are dropped and counted, no reply is; and when there is room again, recording goes on."""
    pid = recorder_of(server)
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    with innocent(server) as client, usage(server.ready.pid) as seen, client.beside():
        # To the recorder, a limit on the size of its files is a disk without room.
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, hard))
        wait_until(lambda: scrape(server).value("tickpath_record_dropped_total") > 0, "entries are dropped")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
        recorded = _recorded(server)
        wait_until(lambda: _recorded(server) > recorded, "recording goes on")
        with server.peer() as peer:
            peer.send(echo(1))
            expect_answers(peer, echo(1))
    dropped = int(scrape(server).value("tickpath_record_dropped_total"))
    table.append(row("disk full under --record", Counter({"entries dropped": dropped}), client, seen))
