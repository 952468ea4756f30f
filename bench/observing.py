"""What being observed costs a request: a server without an observer, one with it, and one whose observer is scraped.

    python -m bench.observing [ROUND_TRIPS]

Two servers of the zoo's mlp, one with an observer and one without, asked by the same client in turns, one request at a
time. The servers are on the first processor, and on the last one the client and, since nobody else's machine is at
hand, the scrapers, which step aside for it. Each row is compared with another of the same round; what is printed is the
median round, the lowest and the highest:

- observed, with no observer: what it costs to write records, and to have a process beside the core that reads them.
- scraped (50 times a second), and besides read a byte a second, with no observer while the *other* server's observer is
  scraped just so: what a scrape costs the server that it is of. What scraping takes of the machine's processors, from
  anybody, is in both.
- no observer, while the other's is scraped, with no observer: just that, which is felt only where processors are few.
"""

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import msgspec
import numpy as np

from tickpath.client import Client
from tickpath.loadtest.latency import Summary, summarise
from tickpath.server.ready import Ready

ROUNDS: Final = 7
SCRAPES_PER_S: Final = 50
X: Final = np.zeros((1, 64), np.float32)
ALONE: Final = "no observer"
OTHERS_SCRAPED: Final = "no observer, the other's is scraped"


class Row(NamedTuple):
    """A server that is asked, what goes on meanwhile, and the row that it is compared with."""

    client: Client
    meanwhile: Sequence[Callable[[], AbstractContextManager[None]]]
    aside: str


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
    """Ask for /metrics SCRAPES_PER_S times a second, or as often as there is an answer. Says a line after the first."""
    said = False
    while True:
        due_s = time.monotonic() + 1 / SCRAPES_PER_S
        with urllib.request.urlopen(f"{url}/metrics", timeout=30) as page:
            page.read()
        if not said:
            print("scraped", flush=True)
            said = True
        time.sleep(max(0.0, due_s - time.monotonic()))


@contextmanager
def scraped(url: str) -> Iterator[None]:
    """By a process of its own: in this one it would hold up the client that measures."""
    code = "import os, sys; os.nice(19); from bench.observing import scrape_for_ever; scrape_for_ever(sys.argv[1])"
    with subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE) as scraping:
        try:
            assert scraping.stdout is not None
            if not scraping.stdout.readline():
                raise RuntimeError("the scraper ended before its first scrape")
            yield
        finally:
            scraping.kill()


@contextmanager
def trickled(url: str) -> Iterator[None]:
    """Somebody takes a byte of /metrics a second."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    begun, enough = threading.Event(), threading.Event()

    def read() -> None:
        while not enough.is_set():
            with socket.socket() as slow:
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
                slow.connect((host, int(port)))
                slow.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                try:
                    while slow.recv(1):
                        begun.set()
                        if enough.wait(1):
                            break
                except ConnectionError:  # the observer has waited long enough
                    continue

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    try:
        if not begun.wait(60):
            raise RuntimeError("the observer sends nothing")
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


def rows_of(alone: Client, observed: Client, url: str) -> dict[str, Row]:
    """What is compared; `url`: of the observer."""

    def scraping() -> AbstractContextManager[None]:
        return scraped(url)

    def trickling() -> AbstractContextManager[None]:
        return trickled(url)

    return {
        ALONE: Row(alone, (), ALONE),
        "observed": Row(observed, (), ALONE),
        OTHERS_SCRAPED: Row(alone, (scraping,), ALONE),
        f"scraped {SCRAPES_PER_S} times a second": Row(observed, (scraping,), OTHERS_SCRAPED),
        "and read a byte a second": Row(observed, (scraping, trickling), OTHERS_SCRAPED),
    }


def measure(rows: dict[str, Row], round_trips: int) -> dict[str, list[Summary]]:
    """Each row's rounds, all rows in turn."""
    found: dict[str, list[Summary]] = {name: [] for name in rows}
    for number in range(ROUNDS + 1):
        for name, row in rows.items():
            with ExitStack() as meanwhile:
                for begin in row.meanwhile:
                    meanwhile.enter_context(begin())
                summary = summary_of(row.client, round_trips if number else round_trips // 10)
            found[name] += [summary] if number else []  # the first round warms all of it up
    return found


def main() -> None:
    round_trips = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    busy = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = Path(place)
        zoo = [sys.executable, "-m", "tickpath.cli", "zoo", "mlp", str(folder / "mlp.onnx")]
        subprocess.run(zoo, check=True, capture_output=True)
        alone = stack.enter_context(served(folder, "--no-observer"))
        observed = stack.enter_context(served(folder, "--observer-port", "0"))
        assert observed.observer is not None
        first, second = (stack.enter_context(Client(ready.address)) for ready in (alone, observed))
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        rows = rows_of(first, second, observed.observer)
        found = measure(rows, round_trips)
    busy.append(os.getloadavg()[0])
    print(
        f"mlp, {ROUNDS} rounds of {round_trips} round trips, µs; load average {busy[0]:.1f} before, {busy[1]:.1f} after"
    )
    print("| | p50 | more | p99 | more | than |")
    print("|---|---|---|---|---|---|")
    for name, row in rows.items():
        p50, p99 = (_cells(found[name], found[row.aside], field) for field in ("p50_ns", "p99_ns"))
        print(f"| {name} | {p50} | {p99} | {row.aside} |")


def _cells(rounds: list[Summary], aside: list[Summary], field: str) -> str:
    values = [getattr(each, field) / 1e3 for each in rounds]
    more = [value - getattr(other, field) / 1e3 for value, other in zip(values, aside, strict=True)]
    return f"{median(values):.1f} | {median(more):+.1f} ({min(more):+.1f} to {max(more):+.1f})"


if __name__ == "__main__":
    main()
