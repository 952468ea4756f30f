"""`python -m bench.goodput`: what a model that is asked for too much still answers in time, with budgets and without.

The load is open: requests come at random (Poisson) times that were drawn before, whatever becomes of them. An answer is
good within the budget of its receipt by the server, by the server's own stamps. Without budgets the same server answers
first come, first served.
"""

import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic_ns, sleep
from typing import Final

import click
import numpy as np

from bench.targets import tickpath_server
from tickpath.client import Client
from tickpath.server.ready import Ready
from tickpath.wire import (
    PROTOCOL_VERSION,
    Failure,
    FrameDecoder,
    Hello,
    Infer,
    ModelInfo,
    Result,
    decode_server_message,
    encode_frame,
)

SESSIONS: Final = 4
LOADS: Final = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
REPLY_BYTES_MAX: Final = 64 * 1024 * 1024
# Sleep until this long before a request is due, then look at the clock.
SPIN_NS: Final = 200_000


@dataclass
class Outcome:
    """What became of one rate's requests: server times of those answered, refusals by code."""

    asked: int
    seconds: float
    server_ns: list[int] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    def row(self, load: float, kind: str, budget_ns: int) -> str:
        times_ns = np.array(self.server_ns or [0])
        good = int((times_ns <= budget_ns).sum()) / self.seconds
        refused = ", ".join(f"{code} {count / self.asked:.0%}" for code, count in sorted(self.refused.items())) or "-"
        p50, p99 = np.percentile(times_ns, (50, 99)) / 1e6
        offered, answered = self.asked / self.seconds, len(self.server_ns) / self.seconds
        return (
            f"| {load:g}x | {kind} | {offered:.0f} | {answered:.0f} | {good:.0f} | {p50:.2f} | {p99:.2f} | {refused} |"
        )


class Session:
    """One connection: whoever is due sends, and a thread takes what comes."""

    def __init__(self, port: int, outcome: Outcome) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._outcome = outcome
        self._answered = 0
        self.send(encode_frame(Hello(PROTOCOL_VERSION, "bench")))
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def end(self) -> None:
        """Wait for the rest."""
        self._socket.shutdown(socket.SHUT_WR)
        self._thread.join()
        self._socket.close()

    def _receive(self) -> None:
        decoder = FrameDecoder(REPLY_BYTES_MAX)
        while count := self._socket.recv_into(decoder.get_buffer()):
            decoder.received(count)
            while (frame := decoder.next_frame()) is not None:
                self._take(decode_server_message(frame))

    def _take(self, message: object) -> None:
        if isinstance(message, Result):
            self._outcome.server_ns.append(message.stamps[5] - message.stamps[1])
        elif isinstance(message, Failure):
            self._outcome.refused[message.code.name] += 1


def offer(port: int, model: ModelInfo, rate: float, seconds: float, budget_ns: int, seed: int) -> Outcome:
    """Ask so often for so long. `rate`: requests a second."""
    rng = np.random.default_rng(seed)
    due_ns = (np.cumsum(rng.exponential(1e9 / rate, int(rate * seconds)))).astype(np.int64).tolist()
    outcome = Outcome(len(due_ns), due_ns[-1] / 1e9)
    sessions = [Session(port, outcome) for _ in range(SESSIONS)]
    inputs = one_row(model)
    start_ns = monotonic_ns()
    for number, due in enumerate(due_ns):
        wait_until(start_ns + due)
        frame = encode_frame(Infer(number + 1, model.handle, 1, inputs, budget_ns))
        sessions[number % SESSIONS].send(frame)
    outcome.seconds = max(outcome.seconds, (monotonic_ns() - start_ns) / 1e9)
    for session in sessions:
        session.end()
    return outcome


def one_row(model: ModelInfo) -> list[memoryview | None]:
    rng = np.random.default_rng(7)
    arrays = (rng.standard_normal(tensor.shape).astype(tensor.dtype) for tensor in model.inputs)
    return [memoryview(array.tobytes()) for array in arrays]


def wait_until(due_ns: int) -> None:
    while (left_ns := due_ns - monotonic_ns()) > 0:
        if left_ns > SPIN_NS:
            sleep((left_ns - SPIN_NS) / 1e9)


def capacity(address: str, model: ModelInfo, seconds: float) -> float:
    """Requests a second with the model always busy and a queue that is never long."""
    with Client(address) as client:
        row = {
            t.name: np.frombuffer(d or b"", t.dtype).reshape(t.shape)
            for t, d in zip(model.inputs, one_row(model), strict=True)
        }
        answered, start_ns = 0, monotonic_ns()
        while monotonic_ns() - start_ns < seconds * 1e9:
            answered += len(client.infer_many(model.name, [row] * 64, in_flight=4))
        return answered / (monotonic_ns() - start_ns) * 1e9


@click.command()
@click.option("--model", default="lstm_a", show_default=True, help="A model of the zoo that runs on a thread.")
@click.option("--seconds", default=3.0, show_default=True, help="Of each rate.")
@click.option("--budget", default=10.0, show_default=True, help="The budget, in times that the model takes.")
@click.option("--rounds", default=3, show_default=True, help="The capacity is measured before each; rows are of all.")
def main(model: str, seconds: float, budget: float, rounds: int) -> None:
    """Offer half to three times what the model can do, with budgets and without, in turn."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{model}.onnx"
        subprocess.run([sys.executable, "-m", "tickpath.cli", "zoo", model, str(path)], check=True, capture_output=True)
        with tickpath_server(path, Path(folder) / "log", None, "--buckets", "1", "--executor", "thread") as ready:
            measure(ready, model, seconds, budget, rounds)


def measure(ready: Ready, name: str, seconds: float, budget: float, rounds: int) -> None:
    """Print a table for each round."""
    port = int(ready.address.rpartition(":")[2])
    with Client(ready.address) as client:
        model = client.model(name)
    for number in range(rounds):
        rate = capacity(ready.address, model, seconds)
        budget_ns = int(budget * 1e9 / rate)
        click.echo(f"\nround {number + 1}: capacity {rate:.0f}/s, budget {budget_ns / 1e6:.2f} ms\n")
        click.echo("| load | | offered/s | answered/s | in time/s | p50 ms | p99 ms | refused |\n" + "|---" * 8 + "|")
        for load in LOADS:
            for kind, given_ns in (("budget", budget_ns), ("first come", 0)):
                outcome = offer(port, model, load * rate, seconds, given_ns, number)
                click.echo(outcome.row(load, kind, budget_ns))


if __name__ == "__main__":
    main()
