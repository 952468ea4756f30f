"""What a model that is asked for too much answers in time, in simulated time: the real queue, dispatcher and estimate,
around a loop to which every request costs something and a thread whose runs take what a distribution says.

    python -m tests.sim.scheduling.overload

prints the curves of docs/adr/0007-scheduling.md. Nothing of a machine is in them: what they compare is policies.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Final

import click

from tickpath.server.admission import Refusal
from tickpath.server.compute_time import ComputeTime
from tickpath.server.dispatch import Dispatcher, Turn
from tickpath.server.executor import TIMER_S, Outcome
from tickpath.server.lane import Answer
from tickpath.server.scheduling import NEVER_NS, Queued, RequestQueue
from tickpath.wire import Infer

ANSWER: Final = Answer(b"", 0, 1, (0, 0, 0, 0, 0, 0))
# As measured on two cores: what the loop takes to read and to refuse a request, and to send an answer.
READ_NS: Final = 40_000
SEND_NS: Final = 30_000
WAKE_NS: Final = 40_000
ROOM: Final = 64
SESSIONS: Final = 4

Draw = Callable[[random.Random, int], int]
"""What a run takes, ns, from chance and the time it begins at."""
Order = Callable[[int, int], int]
"""Of what waits in a session the smallest runs first: from the time of receipt and the budget."""

ORDERS: Final[dict[str, Order]] = {
    "EDF": lambda received_ns, budget_ns: received_ns + budget_ns,
    "FIFO": lambda received_ns, _: received_ns,
    "LIFO": lambda received_ns, _: -received_ns,
}


def steady(mean_ns: int) -> Draw:
    """Nearly the same each time."""
    return lambda chance, _: int(mean_ns * chance.uniform(0.9, 1.1))


def paused(mean_ns: int) -> Draw:
    """One run in 400 meets a pause of the machine, of ten runs."""
    return lambda chance, _: int(mean_ns * (chance.uniform(0.9, 1.1) + 10 * (chance.random() < 0.0025)))


def in_spells(mean_ns: int) -> Draw:
    """Every other fifty runs' time all of them take twice as long: a neighbour wants the processor."""
    return lambda chance, now_ns: int(mean_ns * chance.uniform(0.9, 1.1) * (1 + now_ns // (50 * mean_ns) % 2))


@dataclass(frozen=True)
class Load:
    """`rate`: requests in the time that a run takes on the mean. `budgets`: in such times, drawn for each request; 0:
    none is told, and the last of `judged` says what would have been in time."""

    rate: float
    mean_ns: int
    draw: Draw
    budgets: Sequence[float] = (10,)
    order: str = "EDF"
    told: bool = True
    requests: int = 4_000


class Overload:
    """One load, from one seed. Afterwards `answered_ns`: of each request that was answered, the time from its receipt
    and its budget."""

    def __init__(self, load: Load, seed: int) -> None:
        self.chance = random.Random(seed)
        self.load = load
        self.now_ns = 10**12
        self.time = ComputeTime(load.mean_ns)
        self.deck: deque[Turn] = deque()
        self.dispatcher = Dispatcher(RequestQueue("sim", ROOM, [self.time]), self.deck, self.ring)
        self.answered_ns: list[tuple[int, int]] = []
        self.budget_ns: dict[int, int] = {}
        self.sessions = [_Session(self) for _ in range(SESSIONS)]
        self.loop_free_ns = self.timer_ns = 0
        self.thread_busy = False
        self.ended_ns = 0
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()

    def run(self) -> "Overload":
        at_ns = self.now_ns
        for number in range(self.load.requests):
            at_ns += int(self.chance.expovariate(self.load.rate / self.load.mean_ns))
            self.at(at_ns, partial(self.on_loop, READ_NS, partial(self.ask, number + 1)))
        self.span_ns = at_ns - self.now_ns
        while self._due:
            self.now_ns, _, call = heappop(self._due)
            call()
        return self

    def at(self, at_ns: int, call: Callable[[], None]) -> None:
        heappush(self._due, (at_ns, next(self._order), call))

    def on_loop(self, cost_ns: int, call: Callable[[], None]) -> None:
        """The loop does it once it has done what came before; `call` is at its end."""
        self.loop_free_ns = max(self.loop_free_ns, self.now_ns) + cost_ns
        self.at(self.loop_free_ns, call)

    # -- on the loop --

    def ask(self, number: int) -> None:
        budget_ns = self.budget_ns[number] = int(self.chance.choice(self.load.budgets) * self.load.mean_ns)
        told_ns = budget_ns if self.load.told else 0
        session = self.sessions[number % SESSIONS]
        request = Queued(session, Infer(number, 0, 1, [], told_ns), self.now_ns, self.now_ns, self.time)
        if self.load.order != "EDF":
            request.place = (ORDERS[self.load.order](self.now_ns, budget_ns), 0)
        self.dispatcher.submit(request, self.now_ns)
        self.watch()

    def watch(self) -> None:
        next_ns = self.dispatcher.next_expiry_ns()
        if next_ns != NEVER_NS and not self.now_ns < self.timer_ns <= next_ns + int(TIMER_S * 1e9):
            self.timer_ns = max(self.now_ns, next_ns) + int(TIMER_S * 1e9)
            self.at(self.timer_ns, partial(self.on_loop, 0, self.expire))

    def expire(self) -> None:
        self.dispatcher.expire(self.now_ns)
        self.watch()

    def done(self, turn: Turn, began_ns: int, ended_ns: int, ran: bool) -> None:
        """A turn has run, or its thread has found that it comes too late."""
        request = turn[0]
        if ran:
            self.time.note(ended_ns - began_ns, self.now_ns - began_ns)
            self.answered_ns.append((ended_ns - request.received_ns, self.budget_ns[request.infer.id]))
        self.dispatcher.done(turn, self.now_ns)
        self.watch()

    # -- the thread --

    def ring(self, _: int) -> None:
        if not self.thread_busy:
            self.thread_busy = True
            self.at(self.now_ns + WAKE_NS, self.begin)

    def begin(self) -> None:
        """Once it has the interpreter, which the loop keeps until it has nothing to do."""
        self.thread_busy = bool(self.deck)
        if not self.deck:
            return
        if self.now_ns < self.loop_free_ns:
            self.at(self.loop_free_ns, self.begin)
            return
        turn = self.deck.popleft()
        infer, waited_ns = turn[0].infer, self.now_ns - turn[0].received_ns
        too_late = infer.budget_ns and waited_ns + self.time.needed_ns(infer.budget_ns) > infer.budget_ns
        takes_ns = 0 if too_late else self.load.draw(self.chance, self.now_ns)
        self.at(self.now_ns + takes_ns, partial(self.end, turn, self.now_ns, not too_late))

    def end(self, turn: Turn, began_ns: int, ran: bool) -> None:
        self.on_loop(SEND_NS, partial(self.done, turn, began_ns, self.now_ns, ran))
        self.begin()

    # -- afterwards --

    @property
    def goodput(self) -> float:
        """Answers in time, in the time that a run takes on the mean."""
        good = sum(taken_ns <= budget_ns for taken_ns, budget_ns in self.answered_ns)
        return good * self.load.mean_ns / self.span_ns

    @property
    def p99(self) -> float:
        """Of all answers, in shares of their budgets."""
        shares = sorted(taken_ns / budget_ns for taken_ns, budget_ns in self.answered_ns)
        return shares[int(0.99 * len(shares))] if shares else 0.0


class _Session:
    """What it asked is counted elsewhere."""

    def __init__(self, world: Overload) -> None:
        self._world = world

    def finish(self, infer: Infer, outcome: Outcome, queued: int = 0) -> None:
        assert isinstance(outcome, Refusal)


LOADS: Final = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
DRAWS: Final[dict[str, Callable[[int], Draw]]] = {"steady": steady, "paused": paused, "in spells": in_spells}
# One budget for all, and two, of which the tight one is worth an order.
BUDGETS: Final[dict[str, tuple[float, ...]]] = {"10": (10,), "4 or 20": (4, 20)}
POLICIES: Final = (("EDF", True), ("FIFO", True), ("LIFO", True), ("FIFO", False))


def curves(mean_ns: int, seed: int = 0) -> None:
    """Print them, for a model that takes so long."""
    for kind, made in DRAWS.items():
        for budgets, choice in BUDGETS.items():
            click.echo(f"\nruns {kind} of {mean_ns / 1e3:g} µs, budgets of {budgets} runs: goodput (p99 / budget)\n")
            click.echo("| | " + " | ".join(f"{load:g}x" for load in LOADS) + " |\n" + "|---" * (len(LOADS) + 1) + "|")
            for order, told in POLICIES:
                ran = [Overload(Load(load, mean_ns, made(mean_ns), choice, order, told), seed).run() for load in LOADS]
                cells = (f"{each.goodput:.2f} ({each.p99:.2f})" for each in ran)
                click.echo(f"| {order}{'' if told else ', no budgets'} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    curves(300_000)
