"""`tickpath serve --record`: everything asked and answered is in the files, or counted as dropped, whatever becomes of
the disk, the recorder and the core; and no reply is late or missing for it."""

import asyncio
import os
import resource
import shutil
import signal
import stat
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.feed_models import Floats
from tests.integration.observer.observing import Scrape
from tests.peer import Peer
from tests.processes import serve_until_end, wait_until_ended
from tests.recordings import (
    TICKS,
    ask,
    index,
    messages,
    recorder_of,
    tick,
    traffic,
    write_models,
)
from tests.serving import RunningServer, serve
from tests.waiting import wait_until

from tickpath.console.scrape import fetch
from tickpath.recorder.reading import Segment, open_segments
from tickpath.recorder.segments import find_segments
from tickpath.wire import (
    PROTOCOL_VERSION,
    Cancel,
    Code,
    Failure,
    FeedOpened,
    Hello,
    Infer,
    Models,
    OpenFeed,
    Ping,
    Result,
    Tick,
)

RING_BYTES = 65536
MIB = 1 << 20
SMALL: dict[str, Any] = {"ring_bytes": RING_BYTES, "segment_bytes": MIB, "bytes_max": 16 * MIB}


def counts(server: RunningServer) -> tuple[int, int]:
    """Entries that were recorded, and dropped."""
    assert server.ready.observer is not None
    scrape = Scrape("\n".join(fetch(server.ready.observer)))
    return int(scrape.value("tickpath_recorded_total")), int(scrape.value("tickpath_record_dropped_total"))


@pytest.mark.parametrize("executor", ["inline", "thread"])
def test_what_was_asked_and_answered_is_there_once(tmp_path: Path, executor: str) -> None:
    folder = tmp_path / "recording"
    with serve(tmp_path, write_models(tmp_path, executor=executor), record={"dir": "recording"}) as server:

        async def asked() -> tuple[list[Floats], list[Floats | None]]:
            answers, ticks = await asyncio.gather(ask(server.address, "desk", 100), tick(server.address, "feeds", "ES"))
            return answers, ticks

        answers, ticks = asyncio.run(asked())
    found = messages(index(folder))
    inferred = {request.id: (request, reply) for _, request, reply in found if isinstance(request, Infer)}
    assert len(inferred) == len(answers) == 100
    by_data = {bytes(request.inputs[0] or b""): reply for request, reply in inferred.values()}
    for number, answer in enumerate(answers):
        reply = by_data[np.full((1 + number % 4, 3), number, np.float32).tobytes()]
        assert isinstance(reply, Result)
        assert bytes(reply.outputs[0]) == answer.tobytes()
    ticked = [reply for client, request, reply in found if isinstance(request, Tick) and client == "feeds"]
    assert len(ticked) == TICKS
    for was, reply in zip(ticks, ticked, strict=True):
        if was is None:
            assert isinstance(reply, Failure)
            assert reply.code is Code.NOT_READY
        else:
            assert isinstance(reply, Result)
            assert bytes(reply.outputs[0]) == was.tobytes()
    opened = [reply for _, request, reply in found if isinstance(request, OpenFeed)]
    assert [type(reply) for reply in opened] == [FeedOpened]


def test_refusals_are_there_and_no_secret_is(tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    with (
        serve(tmp_path, write_models(tmp_path), record={"dir": "recording"}) as server,
        server.connect() as connection,
    ):
        peer = Peer(connection)
        peer.send(Hello(PROTOCOL_VERSION, "desk", "a-secret-token"), Models(1), Ping(2))
        peer.send(Infer(3, 99, 1, []), Infer(4, 0, 1, [memoryview(b"short")]), Cancel(5))
        said = [peer.receive() for _ in range(5)]
        assert [type(each).__name__ for each in said] == ["Welcome", "ModelList", "Pong", "Failure", "Failure"]
    found = messages(index(folder))
    assert [type(request) for _, request, _ in found] == [Infer, Infer]
    assert [reply.code for _, _, reply in found if isinstance(reply, Failure)] == [Code.UNKNOWN_MODEL, Code.BAD_SHAPE]
    assert all(b"a-secret-token" not in path.read_bytes() for path in folder.iterdir())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_a_killed_recorder_is_followed_by_one_that_loses_and_doubles_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    total = 0
    with serve(tmp_path, write_models(tmp_path), record={"dir": "recording"}) as server:
        for _ in range(2):
            total += traffic(server.address, 100)
            pid = recorder_of(server)
            os.kill(pid, signal.SIGKILL)
            total += traffic(server.address, 100)
            wait_until(lambda pid=pid: recorder_of(server) != pid, "another recorder")  # type: ignore[misc]
        total += traffic(server.address, 20)
    exchanges = index(folder)
    assert sum(each.is_request for each in exchanges) == total
    assert all(each.reply_length for each in exchanges if each.is_request)
    sequences = Counter(entry.sequence for segment in _segments(folder) for _, entry in segment)
    del sequences[0]
    assert set(sequences.values()) == {1}
    assert set(sequences) == set(range(1, max(sequences) + 1))
    assert [segment.torn for segment in exchanges.segments] == [""] * len(exchanges.segments)


def test_so_does_one_that_is_started_while_the_folder_is_away(tmp_path: Path) -> None:
    folder, away = tmp_path / "recording", tmp_path / "away"
    with serve(tmp_path, write_models(tmp_path), record={"dir": "recording"}) as server:
        total = traffic(server.address, 100)
        wait_until(lambda: any(path.stat().st_size for path in find_segments(folder)), "a segment's header")
        pid = recorder_of(server)
        folder.rename(away)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: recorder_of(server) != pid, "another recorder")
        total += traffic(server.address, 100)
        wait_until(lambda: "nothing can be recorded: No such file" in server.log.read_text(), "the word of it")
        away.rename(folder)
        total += traffic(server.address, 20)
    exchanges = index(folder)
    assert sum(each.is_request and each.reply_length > 0 for each in exchanges) == total
    assert {path.suffix for path in find_segments(folder)} == {".segment"}
    assert [segment.header.number for segment in exchanges.segments] == [1, 2]


def test_a_killed_core_leaves_all_that_it_had_answered(tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    with serve(tmp_path, write_models(tmp_path), record={"dir": "recording"}, exit_code=None) as server:
        recorder = recorder_of(server)
        total = traffic(server.address)
        with server.peer():  # what is recorded behind the last answer is done before the next one is greeted
            server.process.kill()
        wait_until_ended(recorder)
    exchanges = index(folder)
    assert sum(each.is_request and each.reply_length > 0 for each in exchanges) == total
    assert {path.suffix for path in find_segments(folder)} == {".segment"}
    with serve(tmp_path, write_models(tmp_path), record={"dir": "recording"}) as server:
        total += traffic(server.address, 10)
    assert sum(each.is_request for each in index(folder)) == total


def test_both_killed_at_once_leave_whole_entries(tmp_path: Path) -> None:
    """What waits in the ring is gone with both; what is in the file can be read."""
    folder = tmp_path / "recording"
    with serve(tmp_path, write_models(tmp_path), record={"dir": "recording"}, exit_code=None) as server:
        traffic(server.address, 50)
        os.kill(recorder_of(server), signal.SIGKILL)
        server.process.kill()
    left = [path for path in find_segments(folder) if path.suffix == ".open"]
    assert left
    before = sum(each.is_request for each in index(folder))
    with serve(tmp_path, write_models(tmp_path), record={"dir": "recording"}):
        pass
    assert {path.suffix for path in find_segments(folder)} == {".segment"}
    assert sum(each.is_request for each in index(folder)) == before


def test_a_full_disk_costs_drops_that_are_counted_and_no_reply(tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    record = SMALL | {"dir": "recording"}
    with serve(tmp_path, write_models(tmp_path), record=record, observer_port=0) as server:
        traffic(server.address, 10)
        wait_until(lambda: counts(server)[0] > 0, "entries are recorded")
        # To the recorder, a limit on the size of its files is a disk without room.
        pid = recorder_of(server)
        (path,) = find_segments(folder)
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (path.stat().st_size + 50, hard))
        traffic(server.address, 500)  # each is answered, or this raises
        wait_until(lambda: counts(server)[1] > 0, "entries are dropped")
        recorded, _ = counts(server)
        assert "nothing can be recorded: File too large" in server.log.read_text()
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
        wait_until(lambda: counts(server)[0] > recorded, "recording goes on")
        traffic(server.address, 10)
    assert server.log.read_text().count("nothing can be recorded") == 1
    assert "recording goes on" in server.log.read_text()
    _check_sum(folder, server)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for little; where this user may not mount one, the test above has to do."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_so_does_a_file_system_without_room(tmp_path: Path, small_disk: Path) -> None:
    folder = small_disk / "recording"
    record = SMALL | {"dir": str(folder)}
    with serve(tmp_path, write_models(tmp_path), record=record, observer_port=0) as server:

        def full() -> bool:
            traffic(server.address, 100)  # of which a recorder that gets no CPU drops what it likes
            return "nothing can be recorded: No space left on device" in server.log.read_text()

        wait_until(full, "a full disk")
        traffic(server.address, 500)
        wait_until(lambda: counts(server)[1] > 0, "entries are dropped")
        recorded, _ = counts(server)
        subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
        wait_until(lambda: counts(server)[0] > recorded, "recording goes on")
        traffic(server.address, 10)
    assert "recording goes on" in server.log.read_text()
    _check_sum(folder, server)


def test_a_recorder_that_stands_still_costs_drops_and_no_reply(tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    record = SMALL | {"dir": "recording"}
    with serve(tmp_path, write_models(tmp_path), record=record, observer_port=0) as server:
        pid = recorder_of(server)
        os.kill(pid, signal.SIGSTOP)
        traffic(server.address, 500)
        wait_until(lambda: counts(server)[1] > 0, "entries are dropped")
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: counts(server)[0] > 0, "entries are recorded")
        traffic(server.address, 10)
    _check_sum(folder, server)
    assert sum(segment.missing for segment in _read(folder)) > 0


def test_segments_are_rotated_and_all_of_them_bounded(tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    record = {"dir": "recording", "ring_bytes": RING_BYTES, "segment_bytes": 32768, "bytes_max": 131072}
    with serve(tmp_path, write_models(tmp_path), record=record) as server:
        first = wait_until(lambda: find_segments(folder), "a segment")[0]

        def gone() -> bool:
            traffic(server.address, 40)
            return not first.exists() and not first.with_suffix(".segment").exists()  # as it is named once it is closed

        wait_until(gone, "the oldest is gone")
    segments = _read(folder)
    assert 0 < sum(segment.bytes for segment in segments) <= 131072
    assert segments[0].header.number > 1, "the oldest went"
    assert not any(segment.torn for segment in segments)


def test_a_folder_is_one_servers(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    models = write_models(tmp_path / "other")
    with serve(tmp_path, write_models(tmp_path), record={"dir": "recording"}):
        code, lines = serve_until_end(
            models[0]["path"], "--port", "0", "--no-observer", "--record", str(tmp_path / "recording")
        )
    assert code == 2
    assert "another server records there" in lines[-1]


def test_a_folder_that_was_removed_is_whose_it_became(tmp_path: Path) -> None:
    """Two servers never write among each other's segments; the one that can't says so, and counts what it drops, until
    the folder is free again."""
    (tmp_path / "other").mkdir()
    folder = tmp_path / "recording"
    record = SMALL | {"dir": str(folder)}
    with serve(tmp_path, write_models(tmp_path), record=record, observer_port=0) as first:
        traffic(first.address, 10)
        wait_until(lambda: counts(first)[0] > 0, "recorded by the first")
        shutil.rmtree(folder)
        with serve(tmp_path / "other", write_models(tmp_path / "other"), record=record, observer_port=0) as second:
            traffic(second.address, 10)

            def told() -> bool:
                traffic(first.address, 100)  # what comes before its segment is looked at is still written there
                return "another server records there" in first.log.read_text() and counts(first)[1] > 0

            wait_until(told, "the word of it, and drops")
            wait_until(lambda: counts(second)[0] > 0, "recorded by the second")
            (run,) = {segment.header.run for segment in _read(folder)}
            recorded, _ = counts(first)
        assert "can be recorded" not in second.log.read_text()
        wait_until(lambda: counts(first)[0] > recorded, "recorded again")
    segments = _read(folder)
    assert len({segment.header.run for segment in segments} - {run}) == 1
    assert not any(segment.torn or segment.recovered for segment in segments)
    assert "recording goes on" in first.log.read_text()


def test_a_folder_that_cant_be_had_is_named(tmp_path: Path) -> None:
    models = write_models(tmp_path)
    (tmp_path / "file").write_text("")
    code, lines = serve_until_end(models[0]["path"], "--port", "0", "--no-observer", "--record", str(tmp_path / "file"))
    assert code == 2
    assert f"can't record in {tmp_path / 'file'}" in lines[-1]


def _segments(folder: Path) -> list[Segment]:
    return open_segments([folder])


def _read(folder: Path) -> Sequence[Segment]:
    return index(folder).segments


def _check_sum(folder: Path, server: RunningServer) -> None:
    """What was recorded is in the files, and that and what was dropped is all there was."""
    (line,) = [line for line in server.log.read_text().splitlines() if "entries in" in line]
    words = line.split()
    recorded, dropped = int(words[words.index("recorded") + 1]), int(words[words.index("were") - 1])
    sequences = [entry.sequence for segment in _segments(folder) for _, entry in segment if entry.sequence]
    assert len(sequences) == len(set(sequences)) == recorded
    assert recorded + dropped >= max(sequences)
    assert dropped > 0
