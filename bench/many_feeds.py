"""Many feeds of one step model: stepped one by one after their replies, beside together.

    python -m bench.many_feeds [--models lstm_a,lstm_b] [--feeds 8] [--together 4] [--rounds 7] [--ticks 40]

One server serves each model twice: alone, and with `feed.together`. One bare client on one core asks them in turn, a
round after another.

- turns: one tick at a time, feed after feed, each sent when the answer before it has come.
- burst: a tick of every feed at once, as one event that moves them all; the next when all are answered.

A reply counts from when its tick, or its burst, was sent. CPU is the server's own, which a busy machine does not move.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import monotonic_ns
from typing import Final, NamedTuple

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from bench.feeds import Peer, make_models, running
from bench.report import machine
from tickpath.engines.zoo.catalogue import CATALOGUE
from tickpath.wire import FeedOpened, OpenFeed, Result, Tick

MODES: Final = ("alone", "together")

Times = npt.NDArray[np.float64]


class Round(NamedTuple):
    """Replies in ns; `wall_ns` and `cpu_ns` per tick."""

    replies: list[int]
    wall_ns: float
    cpu_ns: float


class Feeds:
    """Feeds of one model in one mode, all of them warm."""

    def __init__(self, peer: Peer, model: str, mode: str, count: int) -> None:
        self._steps, features = CATALOGUE[model].input_shape
        self._peer = peer
        self._rows = np.random.default_rng(0).standard_normal((64, features)).astype(np.float32)
        self._tick = 0
        self._feeds: list[int] = []
        for number in range(count):
            opened = peer.ask(OpenFeed(1, peer.handles[f"{model}-{mode}"], f"bench {number}", True))
            assert isinstance(opened, FeedOpened)
            self._feeds.append(opened.feed)
        for _ in range(self._steps):
            self.next_tick()
            for place in range(count):
                self._ask([place])

    def next_tick(self) -> None:
        self._tick += 1

    def turns(self) -> list[int]:
        self.next_tick()
        return [reply for place in range(len(self._feeds)) for reply in self._ask([place])]

    def burst(self) -> list[int]:
        self.next_tick()
        return self._ask(range(len(self._feeds)))

    def _ask(self, places: Sequence[int]) -> list[int]:
        """When each was answered, ns from when the first was sent."""
        row = [self._rows[self._tick % len(self._rows)].data.cast("B")]
        start_ns = monotonic_ns()
        for place in places:
            self._peer.send(Tick(1 + place, self._feeds[place], self._tick, row))
        replies = []
        for _ in places:
            answer = self._peer.receive()
            replies.append(monotonic_ns() - start_ns)
            assert isinstance(answer, Result) or self._tick < self._steps, answer
        return replies


def _round(feeds: Feeds, what: str, ticks: int, pid: int) -> Round:
    cpu_ns, start_ns = _cpu_ns(pid), monotonic_ns()
    replies = [reply for _ in range(ticks) for reply in (feeds.turns() if what == "turns" else feeds.burst())]
    return Round(replies, (monotonic_ns() - start_ns) / len(replies), (_cpu_ns(pid) - cpu_ns) / len(replies))


def _cpu_ns(pid: int) -> int:
    """Of all threads of a process, ns."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())


@click.command()
@click.option("--models", default="lstm_a,lstm_b", show_default=True, help="Recurrent models of the zoo, by name.")
@click.option("--feeds", default=8, show_default=True, help="Feeds of each.")
@click.option("--together", default=4, show_default=True, help="The models' feed.together.")
@click.option("--rounds", default=7, show_default=True, help="Rounds; in each, every mode is measured once.")
@click.option("--ticks", default=40, show_default=True, help="Ticks of each feed in a round.")
@click.option("--cpu", type=int, help="Keep the server on this core.")
def main(models: str, feeds: int, together: int, rounds: int, ticks: int, cpu: int | None) -> None:
    """Measure many feeds' ticks, alone and together."""
    names = models.split(",")
    with tempfile.TemporaryDirectory() as folder:
        lines: list[str] = []
        for name in names:
            _, step = make_models(Path(folder), name)
            for mode, most in zip(MODES, (1, together), strict=True):
                lines += [
                    "[[models]]",
                    f'name = "{name}-{mode}"',
                    f'path = "{step}"',
                    f"feed = {{ together = {most} }}",
                ]
        with running(Path(folder), lines, cpu) as ready:
            peer = Peer(ready.address)
            asked = {(name, mode): Feeds(peer, name, mode, feeds) for name in names for mode in MODES}
            measured: dict[tuple[str, str, str], list[Round]] = {}
            for _ in range(rounds):
                for (name, mode), each in asked.items():
                    for what in ("turns", "burst"):
                        measured.setdefault((name, what, mode), []).append(_round(each, what, ticks, ready.pid))
        said = [line for line in (Path(folder) / "log").read_text().splitlines() if "step together" in line]
    console = Console(width=120)
    console.print(machine())
    console.print(*said, sep="\n")
    console.print(_table(measured))


def _table(measured: dict[tuple[str, str, str], list[Round]]) -> Table:
    table = Table(title="µs; medians of rounds, and the rounds' quartiles of their ratio to alone")
    for heading in ("model", "what", "mode", "reply p50", "/ alone", "ticks/s", "CPU a tick", "/ alone"):
        table.add_column(heading)
    for (name, what, mode), rounds in sorted(measured.items()):
        alone = measured[name, what, "alone"]
        reply, cpu = _p50_us(rounds), np.array([each.cpu_ns for each in rounds]) / 1e3
        replies = (f"{np.median(reply):.0f}", _ratio(reply, _p50_us(alone)))
        rate = f"{1e9 / np.median([each.wall_ns for each in rounds]):.0f}"
        cpus = (f"{np.median(cpu):.0f}", _ratio(cpu, np.array([each.cpu_ns for each in alone]) / 1e3))
        table.add_row(name, what, mode, *replies, rate, *cpus)
    return table


def _p50_us(rounds: Sequence[Round]) -> Times:
    return np.array([np.median(each.replies) for each in rounds]) / 1e3


def _ratio(values: Times, alone: Times) -> str:
    low, middle, high = np.percentile(values / alone, (25, 50, 75))
    return f"{middle:.2f} ({low:.2f}-{high:.2f})"


if __name__ == "__main__":
    main()
