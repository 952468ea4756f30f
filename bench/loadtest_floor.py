"""What the load test itself costs: its figures against a server that does nothing.

    python -m bench.loadtest_floor [--cpu N] [--rates 1000,2000,5000,20000] [--seconds 2] [--rounds 7]

The server is the C floor, which answers each frame at once: what is measured is the kernel, the floor and the sender.
Neighbours on the machine only ever add: the median round says what to expect here, the quietest what the sender does.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from bench.report import machine
from bench.targets import FLOOR, pinned
from tickpath.loadtest.latency import P50, P99, P999, nearest_rank
from tickpath.loadtest.run import NANOSECONDS, Run
from tickpath.loadtest.runner import ClosedLoop, Load, measure
from tickpath.loadtest.schedule import Constant, Schedule
from tickpath.loadtest.target import Options
from tickpath.loadtest.validity import invalid

REPLY_BYTES = 100


@click.command()
@click.option("--rates", default="1000,2000,5000,20000", show_default=True, help="Requests a second.")
@click.option("--seconds", default=2.0, show_default=True, help="Of each run.")
@click.option("--rounds", default=7, show_default=True, help="Rounds; in each, every load is run once.")
@click.option("--cpu", type=int, help="Keep the sender on this core, and the server on core 0.")
def main(rates: str, seconds: float, rounds: int, cpu: int | None) -> None:
    """Constant rates and a closed loop of one in flight, interleaved."""
    loops: list[Schedule | ClosedLoop] = [Constant(float(rate), seconds) for rate in rates.split(",")]
    loops.append(ClosedLoop(1, seconds))
    with _null_server(None if cpu is None else 0) as address:
        runs = [[measure(Load(Options(address), loop, "echo", cpu=cpu)) for loop in loops] for _ in range(rounds)]
    console = Console(width=160)
    console.print(machine())
    console.print(f"sender {'free' if cpu is None else f'on core {cpu}, server on core 0'}; {rounds} rounds")
    console.print(_table(list(zip(*runs, strict=True))))


@contextmanager
def _null_server(cpu: int | None) -> Iterator[str]:
    command = [*pinned(cpu), str(FLOOR), "serve", "0", str(REPLY_BYTES)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def _table(by_load: list[tuple[Run, ...]]) -> Table:
    table = Table(title="The load test against a null server, µs: median round (quietest round)")
    for heading in (
        "load",
        "latency p50",
        "p99",
        "p99.9",
        "lateness p50",
        "p99",
        "p99.9",
        "n a round",
        "INVALID rounds",
    ):
        table.add_column(heading, justify="left" if heading == "load" else "right")
    for runs in by_load:
        latencies = _over_rounds([run.latency_ns() for run in runs])
        lateness = _over_rounds([run.lateness_ns() for run in runs])
        spoilt = sum(bool(invalid(run)) for run in runs)
        table.add_row(runs[0].schedule, *latencies, *lateness, f"{len(runs[0].rows):,}", str(spoilt))
    return table


def _over_rounds(rounds_ns: list[NANOSECONDS]) -> list[str]:
    """p50, p99 and p99.9."""
    ascending_ns = [np.sort(spans_ns) for spans_ns in rounds_ns]
    cells = []
    for quantile in (P50, P99, P999):
        found_us = [nearest_rank(spans_ns, quantile) / 1e3 for spans_ns in ascending_ns]
        cells.append(f"{np.median(found_us):,.1f} ({min(found_us):,.1f})")
    return cells


if __name__ == "__main__":
    main()
