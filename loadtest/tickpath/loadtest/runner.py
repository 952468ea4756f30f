"""One run: a sender is started, watched, and what it has measured is taken in, however it ended."""

import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from tickpath.loadtest.errors import LoadTestError
from tickpath.loadtest.plan import Ended, Failed, Message, Plan, Started
from tickpath.loadtest.rows import Rows, collect, create_rows, reached
from tickpath.loadtest.run import Run
from tickpath.loadtest.schedule import Schedule
from tickpath.loadtest.target import UNBOUNDED, Options

# Rows lie in memory, so that the sender never waits for a disk.
MEMORY: Final = Path("/dev/shm")
# A closed loop's rows are counted only as they come: room for more than one thread of Python can send.
CLOSED_HZ_MAX: Final = 100_000
# How often progress is told: often enough to look alive, too seldom to take a core from the server or the sender.
PROGRESS_S: Final = 0.25


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
    with tempfile.TemporaryDirectory(prefix="tickpath-loadtest-", dir=MEMORY if MEMORY.is_dir() else None) as name:
        return _Worker(load, Path(name)).run()


class _Worker:
    def __init__(self, load: Load, folder: Path) -> None:
        self._load = load
        self._folder = folder
        self._rows = _make_rows(load, folder / "rows")
        self._started: Started | None = None

    def run(self) -> Run:
        try:
            with self._process() as process:
                ended = self._follow(process)
        except KeyboardInterrupt:
            if self._started is None:
                raise
            ended = Ended("interrupted", "stopped early by Ctrl-C", 0)
        return self._make_run(ended)

    @contextmanager
    def _process(self) -> Iterator[subprocess.Popen[bytes]]:
        (self._folder / "plan.json").write_bytes(msgspec.json.encode(_plan(self._load, self._folder / "rows")))
        command = [sys.executable, "-m", "tickpath.loadtest.worker", str(self._folder / "plan.json")]
        # A process group of its own: Ctrl-C is for us, and what was measured is taken in before the sender is stopped.
        with (
            (self._folder / "log").open("wb") as log,
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, process_group=0
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
                    self._load.told(self._rows[self._load.warmup : reached(self._rows)])
            match self._read(process):
                case Started() as started:
                    self._started = started
                case Ended() as ended:
                    return ended
                case Failed(reason=reason):
                    raise LoadTestError(reason)

    def _read(self, process: subprocess.Popen[bytes]) -> Message:
        assert process.stdout is not None
        line = process.stdout.readline()
        if line:
            message: Message = msgspec.json.decode(line, type=Message)
            return message
        code, said = process.wait(), (self._folder / "log").read_text("utf-8", "replace").strip()
        reason = f"the sender ended with {code}: {said.splitlines()[-1] if said else 'it said nothing'}"
        return Ended("interrupted", reason, 0) if self._started else Failed(reason)

    def _make_run(self, ended: Ended) -> Run:
        started, loop = self._started, self._load.loop
        assert started is not None
        open_loop = not isinstance(loop, ClosedLoop)
        return Run(
            target=started.target,
            model=started.model,
            schedule=loop.describe(),
            open_loop=open_loop,
            connections=self._load.connections,
            rows=collect(self._rows, self._load.warmup, keep_unsent=open_loop),
            connect_ns=np.array(started.connect_ns, np.int64),
            ending=ended.ending,
            reason=ended.reason,
            unasked=ended.unasked,
        )


def _plan(load: Load, rows: Path) -> Plan:
    closed = load.loop if isinstance(load.loop, ClosedLoop) else None
    return Plan(
        rows=str(rows),
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


def _make_rows(load: Load, path: Path) -> Rows:
    """The schedule as offsets, which the sender makes times when it starts."""
    loop = load.loop
    if isinstance(loop, ClosedLoop):
        return create_rows(path, load.warmup + max(1, round(CLOSED_HZ_MAX * loop.seconds)))
    offsets_ns = loop.offsets_ns()
    rows = create_rows(path, load.warmup + len(offsets_ns))
    rows["intended_ns"][load.warmup :] = offsets_ns
    return rows
