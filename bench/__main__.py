"""`python -m bench`: the server beside its floors, interleaved in one run."""

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter_ns

import click
import numpy as np
from rich.progress import track

from bench.report import Row, print_report
from bench.targets import Target, floor_server, tickpath_server, write_frames
from tickpath.client import Client
from tickpath.engines.onnxruntime import load_onnx
from tickpath.graphs import Slot
from tickpath.loadtest.latency import summarise
from tickpath.wire import ModelInfo

PLACEMENTS = {"free": (None, None), "split": (0, 1), "same": (0, 0)}
# As served by default (the loop polls for 50 µs after a request, then sleeps in epoll); asleep in epoll at once;
# never asleep.
SERVERS: dict[str, list[str]] = {
    "tickpath": [],
    "tickpath --poll-us 0": ["--poll-us", "0"],
    "tickpath --spin": ["--spin"],
}
# The same servers, asked by the C++ client: what it adds to the C one, and what two that never sleep come to.
CPP_CLIENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "tickpath": ("tickpath, asked in C++", ()),
    "tickpath --spin": ("tickpath --spin, asked in C++ --spin", ("--spin",)),
}
# The control: a C server with a working set of 8 MB a request, so that a tail of this machine's memory is not read as
# ours.
TOUCH_PAGES = 2000
# The engine alone, each round: enough for a median, whatever the model takes.
REPLAYS_MIN, REPLAYS_MAX, REPLAYS_NS = 20, 2000, 300_000_000


@click.command()
@click.option("--models", default="null,mlp,lstm_a", show_default=True, help="Models of the zoo, by name.")
@click.option("--rounds", default=7, show_default=True, help="Rounds; in each, every target is measured once.")
@click.option("--samples", default=5000, show_default=True, help="Round trips per target and round.")
@click.option(
    "--placement",
    type=click.Choice(list(PLACEMENTS)),
    default="split",
    show_default=True,
    help="free: the scheduler decides; split: server on CPU 0, client on CPU 1; same: both on CPU 0 (no --spin rows).",
)
def main(models: str, rounds: int, samples: int, placement: str) -> None:
    """Measure null, mlp and lstm_a beside a blocking C ping-pong with the same byte counts.

    A row's ratio is its p50 over (C floor + engine alone in process), both measured in the same round; the table
    gives the median round and the extremes.
    """
    cpus = PLACEMENTS[placement] if (os.cpu_count() or 1) > 1 else (None, None)
    with tempfile.TemporaryDirectory() as folder:
        bench = _Bench(Path(folder), cpus, spin=placement != "same")
        try:
            for name in models.split(","):
                bench.add_version(name)
            for _ in track(range(rounds), description="rounds", disable=not sys.stderr.isatty()):
                bench.round(samples)
        finally:
            bench.end()
    print_report(bench.rows(), [f"placement {placement}; {rounds} rounds of {samples:,}", *bench.notes])


class _Bench:
    def __init__(self, folder: Path, cpus: tuple[int | None, int | None], spin: bool) -> None:
        self._folder = folder
        self._cpus = cpus
        self._flags = {kind: flags for kind, flags in SERVERS.items() if spin or "--spin" not in flags}
        self._servers = ExitStack()
        self._targets: list[Target] = []
        self._slots: dict[str, Slot] = {}
        self._rows: dict[tuple[str, str], Row] = {}
        self.notes: list[str] = []

    def add_version(self, name: str) -> None:
        """Build the model and start its servers, each asleep until it is measured."""
        path = self._folder / f"{name}.onnx"
        subprocess.run([sys.executable, "-m", "tickpath.cli", "zoo", name, str(path)], check=True, capture_output=True)
        self._slots[name] = Slot(load_onnx(path, {}), 1)
        for number, (kind, flags) in enumerate(self._flags.items()):
            log = self._folder / f"{name}.{number}.log"
            ready = self._servers.enter_context(tickpath_server(path, log, self._cpus[0], *flags))
            with Client(ready.address) as client:
                info = client.model(name)
            port = ready.address.rpartition(":")[2]
            self._add_target(kind, info, port, ready.pid)
            if kind in CPP_CLIENTS:
                cpp_kind, cpp_flags = CPP_CLIENTS[kind]
                self._add_target(cpp_kind, info, port, ready.pid, cpp_flags)
        for pages in (TOUCH_PAGES, 0):
            port, pid = self._servers.enter_context(floor_server(info, self._cpus[0], pages))
            self._add_target(f"C, touching {pages} pages" if pages else "C floor", info, port, pid)

    def _add_target(
        self, kind: str, model: ModelInfo, port: str, pid: int, cpp_flags: tuple[str, ...] | None = None
    ) -> None:
        request, preamble = write_frames(self._folder, model)
        os.kill(pid, signal.SIGSTOP)
        self._targets.append(Target(kind, model.name, port, request, preamble, pid, self._cpus[1], cpp_flags))

    def round(self, samples: int) -> None:
        """Every target once, each model's beside its own floor and engine."""
        for name in self._slots:
            engine_ns = self._engine_p50_ns(name)
            taken = {t.kind: t.ping(samples, samples // 10, self._folder) for t in self._targets if t.model == name}
            floor_ns = float(summarise(taken["C floor"]).p50_ns)
            for kind, round_trips in taken.items():
                row = self._rows.setdefault((name, kind), Row(kind, name))
                row.rounds.append(round_trips)
                row.floor_ns.append(floor_ns)
                row.engine_ns.append(engine_ns if kind.startswith("tickpath") else 0.0)

    def _engine_p50_ns(self, name: str) -> float:
        """The engine alone: replays of bucket 1 in this process, back to back."""
        replay = self._slots[name].replay
        times_ns: list[int] = []
        while len(times_ns) < REPLAYS_MIN or (sum(times_ns) < REPLAYS_NS and len(times_ns) < REPLAYS_MAX):
            start_ns = perf_counter_ns()
            replay()
            times_ns.append(perf_counter_ns() - start_ns)
        return float(summarise(np.array(times_ns)).p50_ns)

    def rows(self) -> list[Row]:
        asked_in_cpp = [CPP_CLIENTS[kind][0] for kind in self._flags if kind in CPP_CLIENTS]
        order = ["C floor", f"C, touching {TOUCH_PAGES} pages", *self._flags, *asked_in_cpp]
        for name in self._slots:
            engine_us = np.median(self._rows[(name, "tickpath")].engine_ns) / 1e3
            self.notes.append(f"{name}: engine alone in process {engine_us:.1f} µs")
        return [self._rows[(name, kind)] for name in self._slots for kind in order]

    def end(self) -> None:
        self.notes += [
            f"{t.model}: {t.kind} holds {t.rss_bytes() / 1e6:.0f} MB" for t in self._targets if t.kind in self._flags
        ]
        self._servers.close()


if __name__ == "__main__":
    main()
