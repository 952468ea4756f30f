"""What being observed costs a request: a server without an observer, one with it, and one whose observer is scraped.

    python -m bench.observing [ROUND_TRIPS]

Two servers of the zoo's mlp, one with an observer and one without, asked by the same client in turns, one request at a
time: as they are; while the one that is observed is scraped 50 times a second; and while, besides, somebody reads its
page one byte a second. What is printed is the difference to the server without one, of the same round: the median
round, and the lowest and the highest. The servers are on the first processor, and on the last one the client and, since
nobody else's machine is at hand, the scrapers, which step aside for it.
"""

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
import numpy as np

from tickpath.client import Client
from tickpath.loadtest.latency import Summary, summarise
from tickpath.server.ready import Ready

ROUNDS: Final = 7
SCRAPES_PER_S: Final = 50
X: Final = np.zeros((1, 64), np.float32)
ASIDE: Final = "no observer"


@contextmanager
def served(folder: Path, *flags: str) -> Iterator[Ready]:
    """A server of mlp."""
    command = [sys.executable, "-m", "tickpath.cli", "serve", str(folder / "mlp.onnx"), "--port", "0", "--json", *flags]
    command += ["--cpu", str(min(os.sched_getaffinity(0)))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        yield msgspec.json.decode(server.stdout.readline(), type=Ready)
        server.terminate()


def scrape_for_ever(url: str) -> None:
    """Ask for /metrics SCRAPES_PER_S times a second, or as often as there is an answer."""
    while True:
        due_s = time.monotonic() + 1 / SCRAPES_PER_S
        with urllib.request.urlopen(f"{url}/metrics", timeout=30) as page:
            page.read()
        time.sleep(max(0.0, due_s - time.monotonic()))


@contextmanager
def scraped(url: str) -> Iterator[None]:
    """By a process of its own: in this one it would hold up the client that measures."""
    code = "import os, sys; os.nice(19); from bench.observing import scrape_for_ever; scrape_for_ever(sys.argv[1])"
    with subprocess.Popen([sys.executable, "-c", code, url]) as scraping:
        try:
            yield
        finally:
            scraping.kill()


@contextmanager
def trickled(url: str) -> Iterator[None]:
    """Somebody takes a byte of the page a second."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    enough = threading.Event()

    def read() -> None:
        while not enough.is_set():
            with socket.socket() as slow:
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
                slow.connect((host, int(port)))
                slow.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                try:
                    while slow.recv(1) and not enough.wait(1):
                        pass
                except ConnectionError:  # the observer has waited long enough
                    continue

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    try:
        yield
    finally:
        enough.set()
        reading.join()


def summary_of(client: Client, round_trips: int) -> Summary:
    taken_ns = np.empty(round_trips, np.int64)
    for number in range(round_trips):
        start_ns = time.perf_counter_ns()
        client.infer("mlp", X)
        taken_ns[number] = time.perf_counter_ns() - start_ns
    return summarise(taken_ns)


def measure(clients: dict[str, Client], url: str, round_trips: int) -> dict[str, list[Summary]]:
    """Each row's rounds, all rows in turn."""

    def both() -> AbstractContextManager[object]:
        stack = ExitStack()
        stack.enter_context(scraped(url))
        stack.enter_context(trickled(url))
        return stack

    rows: dict[str, tuple[Client, Callable[[], AbstractContextManager[object]]]] = {
        ASIDE: (clients[ASIDE], nullcontext),
        "observed": (clients["observed"], nullcontext),
        f"and scraped {SCRAPES_PER_S} times a second": (clients["observed"], lambda: scraped(url)),
        "and read a byte a second": (clients["observed"], both),
    }
    found: dict[str, list[Summary]] = {name: [] for name in rows}
    for number in range(ROUNDS + 1):
        for name, (client, meanwhile) in rows.items():
            with meanwhile():
                summary = summary_of(client, round_trips if number else round_trips // 10)
            found[name] += [summary] if number else []  # the first round warms all of it up
    return found


def main() -> None:
    round_trips = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
    busy = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = Path(place)
        zoo = [sys.executable, "-m", "tickpath.cli", "zoo", "mlp", str(folder / "mlp.onnx")]
        subprocess.run(zoo, check=True, capture_output=True)
        alone = stack.enter_context(served(folder, "--no-observer"))
        observed = stack.enter_context(served(folder, "--observer-port", "0"))
        assert observed.observer is not None
        clients = {
            name: stack.enter_context(Client(ready.address)) for name, ready in ((ASIDE, alone), ("observed", observed))
        }
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        found = measure(clients, observed.observer, round_trips)
    busy.append(os.getloadavg()[0])
    print(
        f"mlp, {ROUNDS} rounds of {round_trips} round trips, µs; load average {busy[0]:.1f} before, {busy[1]:.1f} after"
    )
    print("| | p50 | over no observer | p99 | over no observer |")
    print("|---|---|---|---|---|")
    for name, rounds in found.items():
        print(f"| {name} | {_cells(rounds, found[ASIDE], 'p50_ns')} | {_cells(rounds, found[ASIDE], 'p99_ns')} |")


def _cells(rounds: list[Summary], aside: list[Summary], field: str) -> str:
    values = [getattr(each, field) / 1e3 for each in rounds]
    more = [value - getattr(other, field) / 1e3 for value, other in zip(values, aside, strict=True)]
    return f"{median(values):.1f} | {median(more):+.1f} ({min(more):+.1f} to {max(more):+.1f})"


if __name__ == "__main__":
    main()
