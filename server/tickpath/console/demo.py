"""`tickpath demo`: a server, a model, a synthetic book streamed at a steady rate, and what that took.

Three processes: the server; the sender, which does nothing else so that its clock can be trusted; and this one, which
draws the progress line and reads the sender's samples.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tickpath.client import Client
from tickpath.console import floor, scrape
from tickpath.console.errors import ConsoleError
from tickpath.console.server_process import server_process
from tickpath.console.tables import latency_table, stage_table
from tickpath.engines import zoo
from tickpath.loadtest.latency import summarise
from tickpath.loadtest.samples import Samples
from tickpath.loadtest.stages import NANOSECONDS
from tickpath.loadtest.stream import Plan
from tickpath.server.ready import Ready

# The sender writes its samples there, so that it never waits for a disk.
MEMORY = Path("/dev/shm")

# Often enough to look alive, too seldom to take a core from the server or the sender.
REDRAW_S = 0.25

NO_FLOOR = "No C floor to compare with: `make build/floor`, then --floor build/floor."


@dataclass(frozen=True, slots=True)
class Settings:
    """What to stream: a zoo model's name, requests a second, for how long, and the C floor's binary."""

    model: str
    rate_hz: float
    seconds: float
    floor: Path | None

    @property
    def count(self) -> int:
        return max(1, round(self.rate_hz * self.seconds))


def run(settings: Settings, console: Console) -> None:
    """Serve, stream, tell, stop. Ctrl-C ends the stream early, and what was measured is told.
    Raises ConsoleError, TickpathError."""
    with _folder() as folder:
        model = folder / f"{settings.model}.onnx"
        model.write_bytes(zoo.build(settings.model).SerializeToString())
        with server_process(model, folder / "server.log") as ready:
            console.print(f"Serving {settings.model}: {zoo.describe(settings.model)}", soft_wrap=True)
            console.print(f"at {ready.address}, metrics at {ready.observer}/metrics")
            floor_ns = _measure_floor(settings, ready, folder, console)
            with _folder(MEMORY) as memory:
                samples = _stream(settings, ready, memory, console)
                _tell(samples, floor_ns, console)
            _tell_metrics(ready, console)
    console.print("The server has stopped cleanly.")


@contextmanager
def _folder(within: Path | None = None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tickpath-demo-", dir=within) as name:
        yield Path(name)


def _measure_floor(settings: Settings, ready: Ready, folder: Path, console: Console) -> NANOSECONDS | None:
    if settings.floor is None:
        console.print(NO_FLOOR)
        return None
    with Client(ready.address) as client:
        return floor.measure(settings.floor, client.model(settings.model), settings.rate_hz, folder)


def _stream(settings: Settings, ready: Ready, folder: Path, console: Console) -> Samples:
    samples = Samples.create(folder / "samples", settings.count)
    plan = Plan(ready.address, settings.model, str(folder / "samples"), settings.rate_hz, settings.count)
    (folder / "plan.json").write_bytes(msgspec.json.encode(plan))
    console.print(f"Streaming a synthetic book: {settings.count:,} requests at {settings.rate_hz:,g} a second.")
    try:
        with _sender(folder / "plan.json", folder / "sender.log") as process:
            _follow(process, samples, settings.count, console)
    except KeyboardInterrupt:
        console.print("Stopped early: what follows is what was measured until then.")
        return samples
    if process.returncode != 0:
        said = (folder / "sender.log").read_text("utf-8", "replace").strip().split("\n")[-1]
        raise ConsoleError(f"the sender ended with {process.returncode}: {said}")
    if samples.answered < settings.count:
        console.print(f"Only {samples.answered:,} could be sent: the server can't keep up, try a lower --rate.")
    return samples


def _follow(process: subprocess.Popen[bytes], samples: Samples, count: int, console: Console) -> None:
    """Draw the progress line until the sender ends."""
    columns = (TextColumn("streaming"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    hidden = not console.is_terminal
    with Progress(*columns, console=console, auto_refresh=False, transient=True, disable=hidden) as progress:
        task = progress.add_task("", total=count)
        while _running(process):
            progress.update(task, completed=samples.answered, refresh=True)


@contextmanager
def _sender(plan: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tickpath.loadtest.stream", str(plan)]
    with log.open("wb") as errors, subprocess.Popen(command, stderr=errors, process_group=0) as process:
        try:
            yield process
        finally:
            process.terminate()


def _running(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(REDRAW_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def _tell(samples: Samples, floor_ns: NANOSECONDS | None, console: Console) -> None:
    if not samples.answered:
        raise ConsoleError("nothing was measured: it was stopped before the first answer")
    latency_ns = samples.latency_ns()
    spans_ns = {"latency": latency_ns, "send lateness": samples.lateness_ns(), "round trip": samples.round_trip_ns()}
    if floor_ns is not None:
        spans_ns["C floor"] = floor_ns
    console.print(latency_table("Latency from the intended send time, µs", spans_ns))
    stages_ns = samples.stages_ns()
    console.print(stage_table("Stages, µs", stages_ns, ("round trip", samples.round_trip_ns())))
    if floor_ns is not None:
        console.print(_ratios(latency_ns, floor_ns, stages_ns["compute"]))


def _ratios(latency_ns: NANOSECONDS, floor_ns: NANOSECONDS, compute_ns: NANOSECONDS) -> str:
    latency, bare = summarise(latency_ns).p50_ns, summarise(floor_ns).p50_ns
    with_compute = bare + summarise(compute_ns).p50_ns
    return (
        f"p50 is {latency / bare:.2f} x the C floor (blocking C, the same byte counts, the same rate)\n"
        f"and {latency / with_compute:.2f} x the floor and the model's own compute time together."
    )


def _tell_metrics(ready: Ready, console: Console) -> None:
    if ready.observer is None:
        raise ConsoleError("the server runs no observer, so there are no metrics to show")
    console.print(f"{ready.observer}/metrics says:")
    for line in scrape.latency_lines(ready.observer):
        console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
