"""The wall clock jumps by hours, forwards and back, under load: whatever waits, waits by another clock."""

import json
import os
import shutil
import signal
import struct
import subprocess
import time
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from tests.integration.faults.figures import outcome, replies, row, slow, usage, write_models
from tests.integration.faults.innocent import innocent
from tests.integration.hostile.arena import echo, scrape
from tests.peer import Peer
from tests.secured import TOKENS, secured
from tests.serving import RunningServer
from tests.waiting import wait_until

from tickpath.recorder.reading import open_segments
from tickpath.wire import Code

SOURCE: Final = Path(__file__).with_name("wall_clock.c")
HOURS: Final = (6, -6, 30, 0)
"""Ahead of the machine's clock, one after another. 6 is in the quiet hours, and so is 30."""
HOUR_NS: Final = 3600 * 10**9
LONG_NS: Final = 60 * 10**9
"""A budget that nothing here comes near to, and every jump would use up."""
SLOW_ONES: Final = 10


class WallClock:
    """Of a server and the processes beside it."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which(os.environ.get("CC", "gcc"))
        if compiler is None:
            pytest.skip("no C compiler: set CC")
        library, self._ahead = folder / "wall_clock.so", folder / "ahead"
        self.jump(0)
        command = [
            compiler,
            "-O2",
            "-std=gnu11",
            "-shared",
            "-fPIC",
            "-Wall",
            "-Werror",
            "-o",
            str(library),
            str(SOURCE),
        ]
        subprocess.run([*command, "-ldl"], check=True)
        self.prefix = ("env", f"LD_PRELOAD={library}", f"WALL_CLOCK_AHEAD={self._ahead}")

    def jump(self, hours: int) -> None:
        """To so many hours ahead of the machine's."""
        descriptor = os.open(self._ahead, os.O_WRONLY | os.O_CREAT, 0o600)
        os.pwrite(descriptor, struct.pack("=q", hours * HOUR_NS), 0)
        os.close(descriptor)


def _last_logged(server: RunningServer, about: str) -> datetime:
    """When a log's last line about this was written, by the server's clock."""
    lines = [line for line in map(json.loads, server.log.read_text().splitlines()) if about in line["message"]]
    return datetime.fromisoformat(lines[-1]["time"])


def _logged(server: RunningServer, about: str) -> int:
    return server.log.read_text().count(about)


def test_the_wall_clock_jumps(tmp_path: Path, table: list[str]) -> None:
    """No reply is lost, budgets and timers go on as they were; quiet hours and the log go by the new time; tokens can
    be changed, and the recording holds everything in its order."""
    clock = WallClock(tmp_path)
    soon = [datetime.now() + timedelta(hours=6, minutes=minutes) for minutes in (-30, 30)]
    outcomes = Counter[str]()
    with secured(
        tmp_path,
        write_models(tmp_path),
        tls=None,
        prefix=clock.prefix,
        flags=["--log-format", "json"],
        quiet_hours=["-".join(f"{moment:%H:%M}" for moment in soon)],
        record={"dir": "recording", "segment_bytes": 32768},
        observer_port=0,
        frame_s=1.0,
    ) as made:
        server, desk = made.server, tmp_path / "desk.token"
        with innocent(server, TOKENS["desk"]) as client, usage(server.ready.pid) as seen, client.beside():
            for hours in HOURS:
                with made.peer(TOKENS["desk"]) as asking, made.peer(TOKENS["desk"]) as half:
                    assert [outcome(asking), outcome(half)] == ["Welcome", "Welcome"]
                    asking.send(*(slow(number, LONG_NS) for number in range(1, SLOW_ONES + 1)))
                    half.socket.sendall(half.frame(echo(1))[:-1])
                    clock.jump(hours)
                    outcomes.update(outcome(asking) for _ in range(SLOW_ONES))
                    _expect_budgets_as_ever(asking)
                    assert outcome(half) == Code.BAD_FRAME.name, "its timer was not stuck"
                quiet = abs(hours) % 24 == 6 and hours > 0
                wait_until(lambda quiet=quiet: scrape(server).value("tickpath_quiet") == quiet, f"quiet: {quiet}")  # type: ignore[misc]
                desk.write_text(f"{TOKENS['desk']}\na-token-of-hour-{hours + 100:016}\n")
                _renewed(server)
                with made.peer(f"a-token-of-hour-{hours + 100:016}") as newcomer:
                    assert outcome(newcomer) == "Welcome"
                moment = _last_logged(server, "tokens")
                ahead = moment.timestamp() - time.time()
                assert round(ahead / 3600) == hours, "or this proves nothing: the server's clock did not jump"
    table.append(row("wall clock +6, -6, +30, 0 h", outcomes, client, seen))
    assert outcomes == {"Result": SLOW_ONES * len(HOURS)}
    assert '"exception"' not in server.log.read_text()
    _expect_all_recorded(tmp_path / "recording")


def _renewed(server: RunningServer) -> None:
    before = _logged(server, "known by")
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: _logged(server, "known by") > before, "the tokens were read again")


def _expect_budgets_as_ever(peer: Peer) -> None:
    """One that can't be kept is refused, one that can is kept."""
    peer.send(slow(1), slow(2, 1))
    assert replies(peer, 2) == {1: "Result", 2: Code.DEADLINE.name}


def _expect_all_recorded(folder: Path) -> None:
    segments = open_segments([folder])
    sequences = [entry.sequence for segment in segments for _, entry in segment if entry.sequence]
    assert len(segments) > len(HOURS)
    assert sequences == list(range(1, len(sequences) + 1)), "by their names the segments are in order, and all there"
    assert not any(segment.torn for segment in segments)
