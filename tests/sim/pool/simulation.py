"""Servers that die, come back, stall, refuse and answer late, in simulated time, asked as the pools ask them.

What the pools do with sockets is done here with a heap of events: everything that decides (Servers, Course, Hedging,
Call) is the real thing.
"""

import heapq
import random
from collections.abc import Callable
from itertools import count
from typing import Final

from tickpath.client.conversation import Request
from tickpath.client.deadline import Deadline
from tickpath.client.errors import ConnectionLostError, TickpathError, refusal
from tickpath.client.pool.asking import Asking
from tickpath.client.pool.call import Call
from tickpath.client.pool.course import Course
from tickpath.client.pool.hedging import Hedging
from tickpath.client.pool.options import HEALTH, Hedge
from tickpath.client.pool.servers import NEVER_NS, Server, Servers
from tickpath.client.prediction import Prediction
from tickpath.client.reconnect import RECONNECT
from tickpath.wire import Code, Result

MS: Final = 1_000_000
STAMPS: Final = (0, 1, 2, 3, 4, 5)


class Trouble:
    """How often what goes wrong. Rates are chances for one request, or for one server in a millisecond."""

    def __init__(
        self, dies: float = 0, refuses: dict[Code, float] | None = None, slow: float = 0, spare_one: bool = False
    ) -> None:
        self.dies = dies
        self.refuses = refuses or {}
        self.slow = slow
        self.spare_one = spare_one
        """The first server never dies."""


class Asked:
    """One request of the caller's, and every outcome it was given."""

    def __init__(self, number: int, call: Call["World"]) -> None:
        self.number = number
        self.call = call
        self.outcomes: list[Prediction | TickpathError] = []
        self.sent_to: list[Server] = []
        self.wakes_ns = 0
        self.answers = 0
        """How many answers were taken for it."""


class World:
    """A pool's servers and its callers."""

    def __init__(self, seed: int, server_count: int, trouble: Trouble, hedge: Hedge | None) -> None:
        random.seed(seed)  # Reconnect's waits come from there
        self.random = random.Random(seed)
        self.trouble = trouble
        self.now_ns = 1
        self.servers = Servers.of([f"10.0.0.{place}:7070" for place in range(1, server_count + 1)], HEALTH, RECONNECT)
        self.hedging = Hedging(hedge)
        self.requests: list[Asked] = []
        self.hedges = 0
        self.answers_dropped = 0
        self._ids = count(1)
        self._order = count()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._lives = dict.fromkeys(self.servers.all, 0)
        self._open: list[Asked] = []
        self._in_flight: dict[Server, set[Request[Prediction]]] = {server: set() for server in self.servers.all}
        for server in self.servers.all:
            server.opened(self.now_ns)

    def run(self, request_count: int) -> None:
        """Ask so many, 0.2 ms apart or so, and let everything come to its end."""
        at_ns = self.now_ns
        for number in range(request_count):
            at_ns += self.random.randrange(1, 400_000)
            self.at(at_ns, lambda number=number: self.ask(number))  # type: ignore[misc]
        for ms in range(1, at_ns // MS):
            self.at(ms * MS, self.befall)
        while self._events:
            self.now_ns, _, act = heapq.heappop(self._events)
            act()
            if self.random.random() < 0.7:  # else it is busy, and finds several things at once
                self.see_to_all()
        self.see_to_all()

    def at(self, at_ns: int, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_ns, next(self._order), act))

    def ask(self, number: int) -> None:
        """A caller's call begins."""
        key = str(number % 5) if self.random.random() < 0.3 else None
        timeout_ns = 2_000 * MS
        call: Call[World] = Call(
            Course(self.servers, self.hedging, key), Asking("m", []), Deadline((self.now_ns + timeout_ns) / 1e9, 2.0)
        )
        asked = Asked(number, call)
        self.requests.append(asked)
        self._open.append(asked)
        self.at(self.now_ns + timeout_ns, lambda: self.time_up(asked))

    def see_to_all(self) -> None:
        """What an engine's loop does after each event."""
        self._open = [asked for asked in self._open if not asked.outcomes]
        for asked in self._open:
            self.advance(asked)

    def advance(self, asked: Asked) -> None:
        call = asked.call
        self.collect(asked)
        while (server := call.course.next(self.now_ns)) is not None:
            self.send(asked, server)
        if call.course.wake_ns not in (NEVER_NS, asked.wakes_ns):
            asked.wakes_ns = call.course.wake_ns
            self.at(call.course.wake_ns, lambda: None)
        if call.course.over:
            self.end(asked)
        assert call.requests or call.course.wake_ns == NEVER_NS, "who waits for a server would wake for nothing"

    def collect(self, asked: Asked) -> None:
        waiting = dict(asked.call.requests)
        asked.call.collect(self.now_ns)
        taken = [request for server, (_, request) in waiting.items() if server not in asked.call.requests]
        asked.answers += sum(isinstance(request._outcome, Prediction) for request in taken)

    def send(self, asked: Asked, server: Server) -> None:
        """One server is asked: at some time it answers, refuses, or is never heard of again."""
        self.hedges += bool(asked.call.requests)
        asked.sent_to.append(server)
        request: Request[Prediction] = Request(
            next(self._ids), b"", Result, lambda result: Prediction({}, result.version, STAMPS)
        )
        asked.call.requests[server] = self, request
        self._in_flight[server].add(request)
        life = self._lives[server]
        took_ns = int(self.random.expovariate(1 / 300_000))
        if self.random.random() < self.trouble.slow:
            took_ns += self.random.randrange(5 * MS, 3_000 * MS)
        self.at(self.now_ns + took_ns, lambda: self.answer(server, life, request))

    def answer(self, server: Server, life: int, request: Request[Prediction]) -> None:
        if self._lives[server] != life:
            return  # it died with the request
        self._in_flight[server].discard(request)
        if request.forgotten:
            self.answers_dropped += 1
            return
        if request.done:
            return
        for code, chance in self.trouble.refuses.items():
            if self.random.random() < chance:
                request.fail(refusal(code, "simulated"))
                return
        request.settle(Result(request.id, f"{server.place}", [], STAMPS))

    def befall(self) -> None:
        """A millisecond of fate."""
        for server in self.servers.all:
            spared = self.trouble.spare_one and server.place == 0
            if server.ready and not spared and self.random.random() < self.trouble.dies:
                self.die(server)

    def die(self, server: Server) -> None:
        self._lives[server] += 1
        for request in self._in_flight[server]:
            if not request.done and not request.forgotten:
                request.fail(ConnectionLostError("simulated"))
        self._in_flight[server].clear()
        server.lost(self.now_ns)
        self.at(server.due_ns(), lambda: self.come_back(server))

    def come_back(self, server: Server) -> None:
        if self.random.random() < 0.5:
            server.opened(self.now_ns)
        else:
            server.lost(self.now_ns)
            self.at(server.due_ns(), lambda: self.come_back(server))

    def time_up(self, asked: Asked) -> None:
        if not asked.outcomes:
            self.collect(asked)
            if not asked.call.course.over:
                asked.call.course.give_up(TickpathError("its time is over"), self.now_ns)
            self.end(asked)

    def end(self, asked: Asked) -> None:
        for _, request in asked.call.let_go(self.now_ns):
            request.forgotten = True
        try:
            asked.outcomes.append(asked.call.result())
        except TickpathError as error:
            asked.outcomes.append(error)
