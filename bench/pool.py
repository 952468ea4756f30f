"""What a pool costs with one server, and what hedging does to the tail where one of two servers stalls now and then.

    python -m bench.pool [ROUND_TRIPS]

The servers are those of bench.client_overhead, each a process of its own. All kinds take turns in each round, so that a
noisy machine disturbs all alike. In the second table requests are meant to leave a millisecond apart, and a latency
counts from then; one server is stopped (SIGSTOP) for 20 ms at random times, eight times a second.
"""

import multiprocessing
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.process import BaseProcess
from typing import Final

import numpy as np

from bench.client_overhead import ROUNDS, X, blocking, measure, on_uvloop, serve
from tickpath.client import AsyncPool, Client, Hedge, Pool
from tickpath.loadtest.latency import summarise

Address = tuple[str, int]
INTERVAL_NS: Final = 1_000_000
STALL_S: Final = 0.02
BETWEEN_S: Final = 0.125
HEDGES: Final = {"p95, at most 5 %": Hedge(percentile=95, share_max=0.05), "p99, at most 2 %": Hedge(99, 0.02)}


@contextmanager
def echo_server() -> Iterator[tuple[Address, BaseProcess]]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = multiprocessing.get_context("fork").Process(target=serve, args=(listener,), daemon=True)
    server.start()
    address: Address = listener.getsockname()
    listener.close()
    yield address, server
    server.kill()
    server.join()


def pooled(hedge: Hedge | None, address: Address, round_trips: int) -> list[int]:
    taken_ns = []
    with Pool([address], hedge=hedge) as pool:
        for _ in range(round_trips):
            start_ns = time.perf_counter_ns()
            pool.infer("echo", X)
            taken_ns.append(time.perf_counter_ns() - start_ns)
    return taken_ns


async def _awaiting(address: Address, round_trips: int) -> list[int]:
    taken_ns = []
    async with AsyncPool([address]) as pool:
        for _ in range(round_trips):
            start_ns = time.perf_counter_ns()
            await pool.infer("echo", X)
            taken_ns.append(time.perf_counter_ns() - start_ns)
    return taken_ns


def pooled_on_uvloop(address: Address, round_trips: int) -> list[int]:
    import uvloop

    return uvloop.run(_awaiting(address, round_trips))


def paced(infer: Callable[[str, np.ndarray], object], count: int) -> list[int]:
    """Latencies from when each request was meant to leave."""
    taken_ns = []
    begin_ns = time.monotonic_ns()
    for number in range(count):
        meant_ns = begin_ns + number * INTERVAL_NS
        if (early_ns := meant_ns - time.monotonic_ns()) > 0:
            time.sleep(early_ns / 1e9)
        infer("echo", X)
        taken_ns.append(time.monotonic_ns() - meant_ns)
    return taken_ns


def stall(pid: int) -> None:
    """Stops this process again and again, until killed itself."""
    while True:
        time.sleep(random.expovariate(1 / BETWEEN_S))
        os.kill(pid, signal.SIGSTOP)
        time.sleep(STALL_S)
        os.kill(pid, signal.SIGCONT)


def overhead(round_trips: int) -> None:
    kinds: dict[str, Callable[[Address, int], list[int]]] = {
        "Client": blocking,
        "Pool": lambda address, count: pooled(None, address, count),
        "Pool, hedging": lambda address, count: pooled(Hedge(), address, count),
        "AsyncClient, uvloop": on_uvloop,
        "AsyncPool, uvloop": pooled_on_uvloop,
    }
    with echo_server() as (address, _):
        taken_ns = measure(kinds, address, round_trips)
    print(f"One server, {ROUNDS} rounds of {round_trips}, µs; differences are of one round's medians")
    print(f"{'':22}{'p50':>8}{'p99':>8}{'p50 over its client':>22}  lowest and highest")
    for name, rounds_ns in taken_ns.items():
        client = "AsyncClient, uvloop" if name.startswith("Async") else "Client"
        over_us = (np.median(rounds_ns, axis=1) - np.median(taken_ns[client], axis=1)) / 1e3
        summary = summarise(np.concatenate(rounds_ns))
        print(
            f"{name:22}{summary.p50_ns / 1e3:8.1f}{summary.p99_ns / 1e3:8.1f}{np.median(over_us):22.1f}"
            f"  {over_us.min():.1f} to {over_us.max():.1f}"
        )


def tails(count: int) -> None:
    taken_ns: dict[str, list[list[int]]] = {}
    with ExitStack() as stack:
        (sound, _), (stalling, victim) = (stack.enter_context(echo_server()) for _ in range(2))
        stopper = multiprocessing.get_context("fork").Process(target=stall, args=(victim.pid,), daemon=True)
        stopper.start()
        for _ in range(ROUNDS):
            with Client(stalling) as client:
                taken_ns.setdefault("Client of the stalling one", []).append(paced(client.infer, count))
            for name, hedge in {"Pool": None, **HEDGES}.items():
                with Pool([stalling, sound], hedge=hedge) as pool:
                    label = name if hedge is None else f"Pool, hedging at {name}"
                    taken_ns.setdefault(label, []).append(paced(pool.infer, count))
        stopper.kill()
        stopper.join()
        os.kill(victim.pid or 0, signal.SIGCONT)
    print(
        f"Two servers, one of which stalls for 20 ms, {ROUNDS} rounds of {count}, ms from when each was meant to leave"
    )
    print(f"{'':36}{'p50':>8}{'p99':>8}{'p99.9':>8}{'max':>8}{'n':>9}  p99.9 of the rounds")
    for label, rounds_ns in taken_ns.items():
        summary = summarise(np.concatenate(rounds_ns))
        each = ", ".join(f"{np.percentile(samples, 99.9) / 1e6:.1f}" for samples in rounds_ns)
        ms = [value / 1e6 for value in (summary.p50_ns, summary.p99_ns, summary.p999_ns, summary.max_ns)]
        print(f"{label:36}" + "".join(f"{value:8.2f}" for value in ms) + f"{summary.count:9,}  {each}")


def main() -> None:
    round_trips = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    print("load average:", *(f"{load:.1f}" for load in os.getloadavg()))
    overhead(round_trips)
    tails(round_trips)
    print("load average:", *(f"{load:.1f}" for load in os.getloadavg()))


if __name__ == "__main__":
    main()
