"""One run: a sender is started, watched, and what it has measured is taken in, however it ended."""

import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np

from tickpath.loadtest.errors import LoadTestError
from tickpath.loadtest.plan import Ended, Failed, Message, Plan, Started
from tickpath.loadtest.room import Room, make_room
from tickpath.loadtest.rows import Rows, collect, collect_gaps, reached
from tickpath.loadtest.run import INTERRUPTED, Ending, Run
from tickpath.loadtest.schedule import Schedule
from tickpath.loadtest.target import UNBOUNDED, Options
from tickpath.loadtest.words import counted

# A closed loop's rows are counted only as they come: room for more than one thread of Python can send.
CLOSED_HZ_MAX: Final = 100_000
# How often progress is told: often enough to look alive, too seldom to take a core from the server or the sender.
PROGRESS_S: Final = 0.25
# For a sender to say what it knows when it is told to stop. It looks in every turn; only one that is not let run takes
# longer.
STOP_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """`concurrency` requests are in flight for `seconds`: each answer is followed by the next request."""

    concurrency: int
    seconds: float

    def describe(self) -> str:
        return f"closed loop, {self.concurrency:,} in flight"


@dataclass(frozen=True, slots=True)
class Load:
    """What to send where. `target` is that of `make_target`; `in_flight_max` is of each connection."""

    options: Options
    loop: Schedule | ClosedLoop
    target: str = "tickpath"
    connections: int = 1
    in_flight_max: int = UNBOUNDED
    warmup: int = 200
    drain_s: float = 5.0
    cpu: int | None = None
    told: Callable[[Rows], None] = field(default=lambda _rows: None)
    """Called a few times a second with the rows that the sender has come to; it goes on to write to them."""


def measure(load: Load) -> Run:
    """Do one run. Ctrl-C ends it early, with what was measured. Raises LoadTestError, and KeyboardInterrupt before
    anything was."""
    loop = load.loop
    if isinstance(loop, ClosedLoop):
        with make_room(load.warmup + max(loop.concurrency, round(CLOSED_HZ_MAX * loop.seconds))) as room:
            return _Worker(load, room).run()
    offsets_ns = loop.offsets_ns()
    with make_room(load.warmup + len(offsets_ns)) as room:
        # Offsets, which the sender makes times when it starts.
        room.rows["intended_ns"][load.warmup :] = offsets_ns
        return _Worker(load, room).run()


class _Worker:
    def __init__(self, load: Load, room: Room) -> None:
        self._load = load
        self._room = room
        self._started: Started | None = None

    def run(self) -> Run:
        with self._process() as process:
            try:
                ended = self._follow(process)
            except KeyboardInterrupt:
                if self._started is None:
                    raise
                ended = self._stop(process)
        return self._make_run(ended)

    @contextmanager
    def _process(self) -> Iterator[subprocess.Popen[bytes]]:
        folder = self._room.folder
        (folder / "plan.json").write_bytes(msgspec.json.encode(_plan(self._load, self._room)))
        command = [sys.executable, "-m", "tickpath.loadtest.worker", str(folder / "plan.json")]
        # A process group of its own: Ctrl-C is for us, who tell the sender.
        with (
            (folder / "log").open("wb") as log,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, process_group=0
            ) as process,
        ):
            try:
                yield process
            finally:
                process.kill()

    def _follow(self, process: subprocess.Popen[bytes]) -> Ended:
        """Tell progress until the sender has ended."""
        assert process.stdout is not None
        while True:
            while not select.select([process.stdout], [], [], PROGRESS_S)[0]:
                if self._started:
                    rows = self._room.rows
                    self._load.told(rows[self._load.warmup : reached(rows)])
            match _read(process):
                case Started() as started:
                    self._started = started
                case Ended() as ended:
                    return ended
                case Failed(reason=reason):
                    raise LoadTestError(reason)
                case None:
                    reason = self._last_words(process)
                    if self._started is None:
                        raise LoadTestError(f"the sender {reason}")
                    return self._as_far_as_seen("sender lost", f"it {reason}")

    def _stop(self, process: subprocess.Popen[bytes]) -> Ended:
        """The end of its stdin tells the sender. Whatever it has come to meanwhile, the run was interrupted."""
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        said = _read(process) if select.select([process.stdout], [], [], STOP_S)[0] else None
        reason = "stopped early by Ctrl-C"
        if isinstance(said, Ended):
            return msgspec.structs.replace(said, ending="interrupted", reason=reason)
        return self._as_far_as_seen("interrupted", reason)

    def _last_words(self, process: subprocess.Popen[bytes]) -> str:
        code, said = process.wait(), (self._room.folder / "log").read_text("utf-8", "replace").strip()
        return f"ended with {code}: {said.splitlines()[-1]}" if said else f"ended with {code} and said nothing"

    def _as_far_as_seen(self, ending: Ending, reason: str) -> Ended:
        """Of a sender that could not say it: by its rows."""
        come = self._room.rows[self._load.warmup : max(self._load.warmup, reached(self._room.rows))]
        start_ns = int(come["intended_ns"][0]) if len(come) else 0
        return Ended(ending, reason, start_ns, int(come["sent_ns"].max(initial=start_ns)), 0)

    def _make_run(self, ended: Ended) -> Run:
        started, loop = self._started, self._load.loop
        assert started is not None
        open_loop, interrupted = not isinstance(loop, ClosedLoop), ended.ending == "interrupted"
        rows = collect(self._room.rows, self._load.warmup, keep_unsent=open_loop, interrupted=interrupted)
        end_ns = max(int(rows["done_ns"].max(initial=ended.asked_ns)), ended.start_ns)
        return Run(
            target=started.target,
            model=started.model,
            schedule=loop.describe(),
            open_loop=open_loop,
            connections=self._load.connections,
            rows=rows,
            connect_ns=np.array(started.connect_ns, np.int64),
            ending=ended.ending,
            reason=ended.reason + _in_flight(rows, ended.asked_ns),
            span_ns=end_ns - ended.start_ns,
            gaps=collect_gaps(self._room.gaps, ended.start_ns, end_ns),
            unasked=ended.unasked,
        )


def _read(process: subprocess.Popen[bytes]) -> Message | None:
    """What the sender says next; None when it has ended."""
    assert process.stdout is not None
    line = process.stdout.readline()
    return msgspec.json.decode(line, type=Message) if line else None


def _in_flight(rows: Rows, end_ns: int) -> str:
    """Of a run that was interrupted: whether the server kept one waiting."""
    interrupted = rows[rows["code"] == INTERRUPTED]
    if not len(interrupted):
        return ""
    longest_ns = end_ns - int(interrupted["intended_ns"].min())
    return f"; {counted(len(interrupted), 'request')} in flight, the longest for {longest_ns / 1e6:,.1f} ms"


def _plan(load: Load, room: Room) -> Plan:
    closed = load.loop if isinstance(load.loop, ClosedLoop) else None
    return Plan(
        rows=str(room.folder / "rows"),
        gaps=str(room.folder / "gaps"),
        target=load.target,
        options=load.options,
        connections=load.connections,
        in_flight_max=load.in_flight_max,
        warmup=load.warmup,
        concurrency=closed.concurrency if closed else 0,
        seconds=closed.seconds if closed else 0.0,
        drain_ns=round(load.drain_s * 1e9),
        cpu=load.cpu,
    )
