"""`tickpath demo`: a server, a model, a synthetic book streamed at a steady rate, and what that took.

Three processes: the server; the sender, which does nothing else so that its clock can be trusted; and this one, which
draws the progress line and reads what the sender has measured.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from tickpath.client import Client
from tickpath.console import floor, scrape
from tickpath.console.calls import RANDOM, make_inputs
from tickpath.console.errors import ConsoleError
from tickpath.console.server_process import server_process
from tickpath.console.tables import latency_table, stage_table
from tickpath.engines import zoo
from tickpath.loadtest.latency import summarise
from tickpath.loadtest.progress import watched
from tickpath.loadtest.run import NANOSECONDS, PENDING, SKIPPED, UNSENT, Run
from tickpath.loadtest.runner import Load, measure
from tickpath.loadtest.schedule import Constant
from tickpath.loadtest.target import Options
from tickpath.loadtest.validity import invalid
from tickpath.server.ready import Ready
from tickpath.wire import ModelInfo

SHORTFALLS = {
    SKIPPED: "were not sent, as no more may be in flight",
    UNSENT: "were not sent, as the sender fell behind",
    PENDING: "were not answered in time",
}
READING = """\
Send lateness is how long after its intended time a request really left: the sender's own delay.
Round trip is from there to the answer. For each request, latency is both together."""
# Where C itself waits so much longer now and then, it is the machine that makes it wait.
FLOOR_BUSY = 10
NO_FLOOR = "No C floor to compare with: `make build/floor`, then --floor build/floor."


@dataclass(frozen=True, slots=True)
class Settings:
    """What to stream: a zoo model's name, requests a second, for how long, and the C floor's binary."""

    model: str
    rate_hz: float
    seconds: float
    floor: Path | None

    @property
    def schedule(self) -> Constant:
        return Constant(self.rate_hz, self.seconds)


def run(settings: Settings, console: Console) -> None:
    """Serve, stream, tell, stop. Ctrl-C ends the stream early, and what was measured is told.
    Raises ConsoleError, TickpathError."""
    if settings.floor is not None and not settings.floor.is_file():
        raise ConsoleError(f"{settings.floor}: there is no such file; build it with `make build/floor`")
    with _folder() as folder:
        file = folder / f"{settings.model}.onnx"
        file.write_bytes(zoo.build(settings.model).SerializeToString())
        with server_process(file, folder / "server.log") as ready:
            console.print(f"Serving {settings.model}: {zoo.describe(settings.model)}", soft_wrap=True)
            console.print(f"at {ready.address}, metrics at {ready.observer}/metrics")
            with Client(ready.address) as client:
                model = client.model(settings.model)
                console.print(f"One prediction: {_ask(client, model)}", soft_wrap=True)
            floor_ns = _measure_floor(settings, model, folder, console)
            _tell(_stream(settings, ready, console), floor_ns, console)
            _tell_metrics(ready, console)
    console.print("The server has stopped cleanly.")


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tickpath-demo-") as name:
        yield Path(name)


def _ask(client: Client, model: ModelInfo) -> str:
    """The answer to a row drawn from a seed."""
    outputs = client.infer(model.name, make_inputs(model, {t.name: RANDOM for t in model.inputs}, 1)).outputs
    return ", ".join(f"{name} = {np.array2string(array, threshold=10)}" for name, array in outputs.items())


def _measure_floor(settings: Settings, model: ModelInfo, folder: Path, console: Console) -> NANOSECONDS | None:
    if settings.floor is None:
        console.print(NO_FLOOR)
        return None
    return floor.measure(settings.floor, model, settings.rate_hz, folder)


def _stream(settings: Settings, ready: Ready, console: Console) -> Run:
    count = len(settings.schedule.offsets_ns())
    console.print(f"Streaming a synthetic book: {count:,} requests at {settings.rate_hz:,g} a second.")
    with watched(Load(Options(ready.address, settings.model), settings.schedule), "streaming", console) as load:
        run = measure(load)
    if run.interrupted:
        console.print("Stopped early: what follows is what was measured until then.")
    elif run.loss:
        raise ConsoleError(run.loss)
    elif len(run.answered) < count:
        console.print(f"Only {len(run.answered):,} were answered: {_shortfall(run)}. A lower --rate may help.")
    return run


def _shortfall(run: Run) -> str:
    told = [f"{count:,} {what}" for code, what in SHORTFALLS.items() if (count := run.count(code))]
    return ", ".join(told) or "the server refused the others"


def _tell(run: Run, floor_ns: NANOSECONDS | None, console: Console) -> None:
    if not len(run.answered):
        raise ConsoleError("nothing was measured: it was stopped before the first answer")
    latency_ns, round_trip_ns = run.latency_ns(), run.uncorrected_ns()
    spans_ns = {"latency": latency_ns, "send lateness": run.lateness_ns(), "round trip": round_trip_ns}
    if floor_ns is not None:
        spans_ns["C floor"] = floor_ns
    console.print(latency_table("Latency from the intended send time, µs", spans_ns), crop=False)
    console.print(READING, soft_wrap=True)
    for doubt in _doubts(run, floor_ns):
        console.print(f"Not to be trusted: {doubt}.", soft_wrap=True)
    stages_ns = run.stages_ns()
    console.print(stage_table("Stages, µs", stages_ns, ("round trip", round_trip_ns)), crop=False)
    if floor_ns is not None:
        console.print(_ratios(latency_ns, floor_ns, stages_ns["compute"]))


def _doubts(run: Run, floor_ns: NANOSECONDS | None) -> Iterator[str]:
    yield from invalid(run)
    if floor_ns is None:
        return
    bare = summarise(floor_ns)
    if bare.p99_ns > FLOOR_BUSY * bare.p50_ns:
        yield f"this machine is busy: the C floor's own p99 is {bare.p99_ns / bare.p50_ns:.0f} x its p50"


def _ratios(latency_ns: NANOSECONDS, floor_ns: NANOSECONDS, compute_ns: NANOSECONDS) -> str:
    latency, bare = summarise(latency_ns).p50_ns, summarise(floor_ns).p50_ns
    with_compute = bare + summarise(compute_ns).p50_ns
    return (
        f"p50 is {latency / bare:.2f} x the C floor (C on both sides, the same byte counts, the same rate)\n"
        f"and {latency / with_compute:.2f} x the floor and the model's own compute time together."
    )


def _tell_metrics(ready: Ready, console: Console) -> None:
    if ready.observer is None:
        raise ConsoleError("the server runs no observer, so there are no metrics to show")
    console.print(f"{ready.observer}/metrics says:")
    for line in scrape.latency_lines(ready.observer):
        console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
