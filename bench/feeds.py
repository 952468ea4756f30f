"""What a tick costs: the whole window sent each time, beside feeds that keep it.

    python -m bench.feeds [--models lstm_a,lstm_b] [--rounds 7] [--ticks 300]
    python -m bench.feeds --replay day.mbo.dbn.zst --speeds 1,10,100 --seconds 20

One server serves each model three times: whole (an Infer with the whole window), exact (a step model whose feed answers
as the window does) and carry (the same, its state running on). One bare client on one core asks them in turn, a round
after another; only the wire's own code is in between.

- reply: from sending a tick to having its answer, each tick sent after a pause in which the feed has just done what it
  put off, and a Ping that wakes both ends.
- rested: the same after a longer pause, in which others on the machine take the caches.
- cycle: the same ticks sent back to back, so that what was put off is waited for: it bounds the rate of ticks.
- with `--replay`, the arrivals of a real market: a reply's time counts from when its tick should have been sent.
"""

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic_ns, sleep
from typing import Final

import click
import msgspec
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from bench.report import machine
from bench.targets import pinned
from tickpath.engines.zoo.catalogue import CATALOGUE
from tickpath.loadtest.arrivals import read_arrivals
from tickpath.server.ready import Ready
from tickpath.wire import (
    PROTOCOL_VERSION,
    REPLY_BYTES_MAX,
    ClientMessage,
    FeedOpened,
    FrameDecoder,
    Hello,
    Infer,
    OpenFeed,
    Ping,
    Result,
    ServerMessage,
    Tick,
    Welcome,
    decode_server_message,
    encode_frame,
)

MODES: Final = ("whole", "exact", "carry")
# After a reply, in cycles of the exact mode, of which one does what was put off.
PAUSES_CYCLES: Final = {"reply": 1.5, "rested": 5.0}

Times = npt.NDArray[np.int64]


class Peer:
    """A bare client that has said Hello."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = FrameDecoder(REPLY_BYTES_MAX)
        welcome = self.ask(Hello(PROTOCOL_VERSION, "bench"))
        assert isinstance(welcome, Welcome)
        self.handles = {model.name: model.handle for model in welcome.models}

    def close(self) -> None:
        self._socket.close()

    def ask(self, message: ClientMessage) -> ServerMessage:
        self._socket.sendall(encode_frame(message))
        return self.receive()

    def send(self, message: ClientMessage) -> None:
        self._socket.sendall(encode_frame(message))

    def receive(self, block: bool = True) -> ServerMessage:
        """The next answer. Raises BlockingIOError where none is there and `block` is false."""
        self._socket.setblocking(block)
        try:
            while (frame := self._decoder.next_frame()) is None:
                self._decoder.received(self._socket.recv_into(self._decoder.get_buffer()))
        finally:
            self._socket.setblocking(True)
        return decode_server_message(frame)


class Question:
    """One model in one mode, asked tick by tick."""

    def __init__(self, peer: Peer, model: str, mode: str) -> None:
        steps, features = CATALOGUE[model].input_shape
        self._rows = np.random.default_rng(0).standard_normal((4 * steps, features)).astype(np.float32)
        self._handle = peer.handles[f"{model}-{mode}"]
        self._steps = steps
        self._feed = 0
        self._tick = 0
        if mode != "whole":
            opened = peer.ask(OpenFeed(1, self._handle, "bench", True))
            assert isinstance(opened, FeedOpened)
            self._feed = opened.feed
            for _ in range(2 * steps):
                peer.ask(self.next())

    def next(self) -> ClientMessage:
        """The next tick, or the window that ends with it."""
        self._tick += 1
        if self._feed:
            row = self._rows[self._tick % len(self._rows)]
            return Tick(self._tick, self._feed, self._tick, [row.data.cast("B")])
        start = self._tick % (len(self._rows) - self._steps)
        return Infer(self._tick, self._handle, 1, [self._rows[start : start + self._steps].data.cast("B")])


def _ask(peer: Peer, question: Question) -> int:
    """One round trip, ns."""
    message = question.next()
    start_ns = monotonic_ns()
    answer = peer.ask(message)
    taken_ns = monotonic_ns() - start_ns
    assert isinstance(answer, Result), answer
    return taken_ns


def _replies(peer: Peer, question: Question, ticks: int, pause_ns: int) -> Times:
    times = []
    for _ in range(ticks):
        sleep(pause_ns / 1e9)
        peer.ask(Ping(1))
        times.append(_ask(peer, question))
    return np.array(times)


def _cycles(peer: Peer, question: Question, ticks: int) -> Times:
    return np.array([_ask(peer, question) for _ in range(ticks)])


def _replay(peer: Peer, question: Question, due_ns: Times) -> Times:
    """Send each tick when it is due, whatever is still to be answered; ns from then to its answer."""
    start_ns = monotonic_ns() + 1_000_000
    times: list[int] = []
    sent = 0
    while len(times) < len(due_ns):
        if sent < len(due_ns) and sent - len(times) < 32 and monotonic_ns() >= start_ns + due_ns[sent]:
            peer.send(question.next())
            sent += 1
        try:
            answer = peer.receive(block=False)
        except BlockingIOError:
            continue
        assert isinstance(answer, Result), answer
        times.append(monotonic_ns() - start_ns - int(due_ns[len(times)]))
    return np.array(times)


@contextmanager
def _server(folder: Path, models: Sequence[str], cpu: int | None) -> Iterator[str]:
    lines: list[str] = []
    for model in models:
        whole, step = make_models(folder, model)
        for mode, path in zip(MODES, (whole, step, step), strict=True):
            lines += ["[[models]]", f'name = "{model}-{mode}"', f'path = "{path}"']
            lines += ['feed = { mode = "carry" }'] if mode == "carry" else []
    with running(folder, lines, cpu) as ready:
        yield ready.address


def make_models(folder: Path, model: str) -> tuple[Path, Path]:
    """This model of the zoo, and the step model made of it."""
    whole, step = folder / f"{model}.onnx", folder / f"{model}.step.onnx"
    _tickpath("zoo", model, whole)
    _tickpath("streaming", whole, "-o", step)
    return whole, step


@contextmanager
def running(folder: Path, models: Sequence[str], cpu: int | None) -> Iterator[Ready]:
    """A server of these models, each in lines of its configuration."""
    config = folder / "bench.toml"
    config.write_text("\n".join(["port = 0", "observer_port = false", *models]))
    command = [*pinned(cpu), sys.executable, "-m", "tickpath.cli", "serve", "--config", str(config), "--json"]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            yield msgspec.json.decode(process.stdout.readline(), type=Ready)
        finally:
            process.terminate()


def _tickpath(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "tickpath.cli", *map(str, arguments)], check=True, capture_output=True)


@click.command()
@click.option("--models", default="lstm_a,lstm_b", show_default=True, help="Recurrent models of the zoo, by name.")
@click.option("--rounds", default=7, show_default=True, help="Rounds; in each, every mode is measured once.")
@click.option("--ticks", default=300, show_default=True, help="Ticks of a round, replies and cycles each.")
@click.option("--replay", type=click.Path(path_type=Path), help="Arrival times, as `tickpath loadtest --replay` reads.")
@click.option("--speeds", default="1,10,100", show_default=True, help="Of the replay.")
@click.option("--seconds", default=20.0, show_default=True, help="Of each replay.")
@click.option("--cpu", type=int, help="Keep the server on this core.")
def main(
    models: str, rounds: int, ticks: int, replay: Path | None, speeds: str, seconds: float, cpu: int | None
) -> None:
    """Measure a tick by whole window, exact feed and carry feed."""
    names = models.split(",")
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder), names, cpu) as address:
        peer = Peer(address)
        questions = {(name, mode): Question(peer, name, mode) for name in names for mode in MODES}
        rows: dict[tuple[str, str, str], list[Times]] = {}
        if replay is None:
            for _ in range(rounds):
                _round(peer, questions, ticks, rows)
        else:
            arrivals_ns = read_arrivals(replay)
            for speed in map(float, speeds.split(",")):
                due_ns = _due(arrivals_ns, speed, seconds)
                for (name, mode), question in questions.items():
                    rows[name, mode, f"{speed:g}x"] = [_replay(peer, question, due_ns)]
    console = Console(width=120)
    console.print(machine())
    console.print(_table(rows))


def _round(
    peer: Peer,
    questions: dict[tuple[str, str], Question],
    ticks: int,
    rows: dict[tuple[str, str, str], list[Times]],
) -> None:
    for (name, mode), question in questions.items():
        cycle_ns = float(np.median(_cycles(peer, questions[name, "exact"], 20)))
        for kind, cycles in PAUSES_CYCLES.items():
            times = _replies(peer, question, ticks, int(cycles * cycle_ns))
            rows.setdefault((name, mode, kind), []).append(times)
        rows.setdefault((name, mode, "cycle"), []).append(_cycles(peer, question, ticks))


def _due(arrivals_ns: Times, speed: float, seconds: float) -> Times:
    """From the middle of the file, where records come one by one, when each is due."""
    live = arrivals_ns[len(arrivals_ns) // 2 :]
    due_ns = ((live - live[0]) / speed).astype(np.int64)
    return np.asarray(due_ns[due_ns < seconds * 1e9])


def _table(rows: dict[tuple[str, str, str], list[Times]]) -> Table:
    table = Table(title="µs; of p50, the median round and the quietest; of p50 / whole, the rounds' median")
    for heading in ("model", "mode", "what", "p50", "quietest", "p99", "n", "p50 / whole"):
        table.add_column(heading)
    for (name, mode, kind), rounds in rows.items():
        p50 = [float(np.median(times)) for times in rounds]
        whole = [float(np.median(times)) for times in rows[name, "whole", kind]]
        every = np.concatenate(rounds)
        ratio = float(np.median(np.divide(p50, whole)))
        cells = (np.median(p50) / 1e3, min(p50) / 1e3, np.percentile(every, 99) / 1e3)
        table.add_row(name, mode, kind, *(f"{cell:.1f}" for cell in cells), f"{len(every):,}", f"{ratio:.3f}")
    return table


if __name__ == "__main__":
    main()
