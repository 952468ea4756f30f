"""`python -m bench.goodput`: what a model that is asked for too much still answers in time, with budgets and without.

The load is open: requests leave at random (Poisson) times that were drawn before, whatever becomes of them, from a
small C program (bench/asker.c) that takes no core from the server. An answer is good within the budget of its receipt,
by the own stamps of the server. Without budgets the same server answers first come, first served.
"""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic_ns
from typing import Final

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from bench.report import machine
from bench.targets import ASKER, tickpath_server
from tickpath.client import Client
from tickpath.server.ready import Ready
from tickpath.wire import (
    PROTOCOL_VERSION,
    REPLY_BYTES_MAX,
    Failure,
    FrameDecoder,
    Hello,
    Infer,
    ModelInfo,
    Result,
    ServerMessage,
    decode_server_message,
    encode_frame,
)

SESSIONS: Final = 4
LOADS: Final = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
# What an id has at the least, so that every one takes as many bytes: the asker writes each into the same frame.
ID_BASE: Final = 1 << 32
# A round's rows take longer than that only where the server hangs.
ASK_S_MAX: Final = 120


@dataclass
class Outcome:
    """What became of one rate's requests: server times of those answered, refusals by code; and what the server's main
    thread took of a processor meanwhile."""

    asked: int = 0
    seconds: float = 0.0
    loop_ns: int = 0
    server_ns: list[int] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    def take(self, message: ServerMessage) -> None:
        if isinstance(message, Result):
            self.server_ns.append(message.stamps[5] - message.stamps[1])
        elif isinstance(message, Failure):
            self.refused[message.code.name] += 1

    def add(self, other: "Outcome") -> None:
        self.asked += other.asked
        self.seconds += other.seconds
        self.loop_ns += other.loop_ns
        self.server_ns += other.server_ns
        self.refused += other.refused

    def good_hz(self, budget_ns: int) -> float:
        return sum(each <= budget_ns for each in self.server_ns) / self.seconds


@dataclass(frozen=True)
class Asker:
    """Asks one model of one server. `folder`: for its files."""

    ready: Ready
    model: ModelInfo
    folder: Path

    def offer(self, rate_hz: float, seconds: float, budget_ns: int, seed: int) -> Outcome:
        """Ask so often for so long."""
        rng = np.random.default_rng(seed)
        due_ns = np.cumsum(rng.exponential(1e9 / rate_hz, int(rate_hz * seconds))).astype(np.uint64)
        due_ns.tofile(self.folder / "due")
        before_ns = main_thread_ns(self.ready.pid)
        done = subprocess.run(self._command(budget_ns), check=True, stdout=subprocess.PIPE, timeout=ASK_S_MAX)
        taken_s = max(int(due_ns[-1]), int(done.stdout)) / 1e9
        outcome = Outcome(len(due_ns), taken_s, main_thread_ns(self.ready.pid) - before_ns)
        for message in self._replies():
            outcome.take(message)
        return outcome

    def _command(self, budget_ns: int) -> list[str]:
        request = encode_frame(Infer(ID_BASE, self.model.handle, 1, one_row(self.model), budget_ns))
        (self.folder / "request").write_bytes(request)
        (self.folder / "hello").write_bytes(encode_frame(Hello(PROTOCOL_VERSION, "bench")))
        id_at = request.index(ID_BASE.to_bytes(8, "big"))
        port = self.ready.address.rpartition(":")[2]
        files = [str(self.folder / name) for name in ("due", "request", "hello", "replies")]
        return [str(ASKER), port, str(SESSIONS), files[0], files[1], str(id_at), files[2], files[3]]

    def _replies(self) -> Iterator[ServerMessage]:
        for number in range(SESSIONS):
            came = memoryview((self.folder / f"replies.{number}").read_bytes())
            decoder = FrameDecoder(REPLY_BYTES_MAX)
            while came:
                room = decoder.get_buffer()
                count = min(len(room), len(came))
                room[:count], came = came[:count], came[count:]
                decoder.received(count)
                while (frame := decoder.next_frame()) is not None:
                    yield decode_server_message(frame)

    def capacity_hz(self, seconds: float) -> float:
        """Requests a second with the model always busy and a queue that is never long."""
        row = {
            tensor.name: np.frombuffer(data or b"", tensor.dtype).reshape(tensor.shape)
            for tensor, data in zip(self.model.inputs, one_row(self.model), strict=True)
        }
        with Client(self.ready.address) as client:
            answered, start_ns = 0, monotonic_ns()
            while monotonic_ns() - start_ns < seconds * 1e9:
                answered += len(client.infer_many(self.model.name, [row] * 64, in_flight=4))
            return answered / (monotonic_ns() - start_ns) * 1e9


def one_row(model: ModelInfo) -> list[memoryview | None]:
    rng = np.random.default_rng(7)
    arrays = (rng.standard_normal(tensor.shape).astype(tensor.dtype) for tensor in model.inputs)
    return [memoryview(array.tobytes()) for array in arrays]


def main_thread_ns(pid: int) -> int:
    """What a process' main thread has had of a processor."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0])


@click.command()
@click.option("--models", default="lstm_a,lstm_b", show_default=True, help="Of the zoo, each on a thread.")
@click.option("--seconds", default=2.5, show_default=True, help="Of each load, in each round.")
@click.option("--budget", default=10.0, show_default=True, help="The budget, in times that the model takes.")
@click.option("--rounds", default=2, show_default=True, help="They take turns; a row is all rounds together.")
def main(models: str, seconds: float, budget: float, rounds: int) -> None:
    """Offer half to three times what a model can do, with budgets and without, in turn."""
    console = Console(width=140)
    console.print(machine())
    for model in models.split(","):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            path = folder / f"{model}.onnx"
            command = [sys.executable, "-m", "tickpath.cli", "zoo", model, str(path)]
            subprocess.run(command, check=True, capture_output=True)
            with tickpath_server(path, folder / "log", None, "--buckets", "1", "--executor", "thread") as ready:
                console.print(measure(ready, model, folder, seconds, budget, rounds))
    console.print(f"load average at the end: {os.getloadavg()[0]:.1f}")


def measure(ready: Ready, name: str, folder: Path, seconds: float, budget: float, rounds: int) -> Table:
    """The curves of one model."""
    with Client(ready.address) as client:
        asker = Asker(ready, client.model(name), folder)
    rate_hz = float(np.median([asker.capacity_hz(seconds / 3) for _ in range(3)]))
    budget_ns = int(budget * 1e9 / rate_hz)
    cells = {(load, kind): Outcome() for load in LOADS for kind in ("budget", "first come")}
    for number in range(rounds):
        for (load, kind), outcome in cells.items():
            given_ns = budget_ns if kind == "budget" else 0
            outcome.add(asker.offer(load * rate_hz, seconds, given_ns, number))
    title = f"{name}: capacity {rate_hz:.0f}/s, budget {budget_ns / 1e6:.2f} ms"
    return curves(title, cells, budget_ns)


def curves(title: str, cells: dict[tuple[float, str], Outcome], budget_ns: int) -> Table:
    headings = (
        "load",
        "",
        "offered/s",
        "in time/s",
        "of the most",
        "p50 ms",
        "p99 ms",
        "p99 / budget",
        "loop, µs a request",
        "refused",
    )
    table = Table(*headings, title=title)
    most_hz = max(outcome.good_hz(budget_ns) for (_, kind), outcome in cells.items() if kind == "budget")
    for (load, kind), outcome in cells.items():
        table.add_row(f"{load:g}x", kind, *cells_of(outcome, most_hz, budget_ns))
    return table


def cells_of(outcome: Outcome, most_hz: float, budget_ns: int) -> Sequence[str]:
    p50_ns, p99_ns = np.percentile(outcome.server_ns or [0], (50, 99))
    good_hz = outcome.good_hz(budget_ns)
    refused = ", ".join(f"{code} {count / outcome.asked:.1%}" for code, count in sorted(outcome.refused.items()))
    return (
        f"{outcome.asked / outcome.seconds:.0f}",
        f"{good_hz:.0f}",
        f"{good_hz / most_hz:.0%}",
        f"{p50_ns / 1e6:.2f}",
        f"{p99_ns / 1e6:.2f}",
        f"{p99_ns / budget_ns:.2f}",
        f"{outcome.loop_ns / outcome.asked / 1e3:.0f}",
        refused or "-",
    )


if __name__ == "__main__":
    main()
