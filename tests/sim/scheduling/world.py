"""A server in simulated time, from one seed: sessions that ask, take back and leave, a version swap, threads that are
slow to wake, models whose speed changes; and around the real dispatcher and queue nothing real."""

import random
from collections import Counter, deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Final

from tests.sim.scheduling.reference import SESSIONS_MAX, CheckedQueue

from tickpath.server.admission import Refusal
from tickpath.server.compute_time import ComputeTime
from tickpath.server.dispatch import Batching, Dispatcher, Turn
from tickpath.server.executor import Outcome
from tickpath.server.lane import Answer
from tickpath.server.scheduling import NEVER_NS, PRIORITY_LEVELS, Queued
from tickpath.wire import Code, Infer

SECONDS: Final = 1_000_000_000
ANSWER: Final = Answer(b"", 0, 1, (0, 0, 0, 0, 0, 0))
BUCKETS: Final = (1, 4)
# Of what happens at the same time, the loop's timer comes first.
TIMER: Final = 0
THREAD: Final = 1
DATA: Final = memoryview(b"")


class Client:
    """A session, as far as an executor knows it: everything it asked has one end, and none after it has left."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.in_flight: dict[int, Version] = {}
        self.last_id = 0
        self.left = False

    def finish(self, infer: Infer, outcome: Outcome, queued: int = 0) -> None:
        version = self.in_flight.pop(infer.id)
        if self.left:
            assert infer.id in version.begun_by(self), "what had not begun when its client left has ended"
        self.world.ended[outcome.code if isinstance(outcome, Refusal) else 0] += 1

    def ask(self, infer: Infer, version: "Version") -> None:
        now_ns, self.world.asked = self.world.now_ns, self.world.asked + 1
        self.in_flight[infer.id] = version
        request = Queued(self, infer, now_ns, now_ns, version.times[infer.rows > 1])
        refusal = version.dispatcher.submit(request, now_ns)
        if refusal is not None:
            self.finish(infer, refusal)
        elif infer.key:
            for other in {each for each in self.in_flight.values() if each is not version}:
                other.dispatcher.supersede((self, infer.handle, infer.key), now_ns)
        version.watch()
        self.world.check_keys(self)

    def cancel(self, request_id: int) -> None:
        version = self.in_flight.get(request_id)
        if version is not None:
            begun = request_id in version.begun_by(self)
            assert version.dispatcher.take_back(self, request_id, self.world.now_ns) is not begun or (
                request_id not in self.in_flight
            )
            if not begun and self.in_flight.pop(request_id, None) is not None:
                self.world.ended[Code.CANCELLED] += 1

    def leave(self) -> None:
        for request_id in list(self.in_flight):
            self.cancel(request_id)
        self.left = True


class Version:
    """One model version: the real queue and dispatcher, and a thread that is only told of."""

    def __init__(self, world: "World", chance: random.Random) -> None:
        self.world = world
        self.chance = chance
        first_ns = chance.choice((1_000, 50_000, 400_000))
        self.times = [ComputeTime(first_ns), ComputeTime(2 * first_ns)]
        self.pace = 1.0
        self.queue = CheckedQueue(chance.randrange(1, 10), self.times, (0,))
        self.deck: deque[Turn] = deque()
        self.rings = 0
        self.running: Turn = ()
        self.wakes = False
        self.timer_ns = NEVER_NS
        batching = Batching(4, chance.choice((0, first_ns))) if chance.random() < 0.3 else Batching()
        self.dispatcher = Dispatcher(self.queue, self.deck, self.ring, batching)

    def begun_by(self, client: Client) -> set[int]:
        return {each.infer.id for each in self.running if each.requester is client}

    def ring(self, until_ns: int) -> None:
        self.rings += 1
        self.wake(max(0, until_ns - self.world.now_ns))

    def wake(self, delay_ns: int) -> None:
        """The thread gets the processor in a while, if it has slept."""
        if not self.wakes and not self.running and self.rings:
            self.wakes = True
            self.world.after(delay_ns + self.chance.randrange(60_000), self.work)

    def work(self) -> None:
        """The thread: a ring, a turn, and the model."""
        self.wakes = False
        self.rings -= 1
        if not self.deck:
            self.wake(0)
            return
        turn = self.deck.popleft()
        now_ns = self.world.now_ns
        assert all(request.start_by_ns >= now_ns for request in turn), "what has expired runs"
        assert len({id(request) for request in turn}) == len(turn)
        assert len(turn) == 1 or sum(request.infer.rows for request in turn) <= BUCKETS[-1]
        self.check_first(turn)
        self.running = turn
        self.world.ran += len(turn)
        mean_ns = max(request.cost_ns for request in turn)
        self.world.after(int(mean_ns * self.pace * self.chance.uniform(0.5, 1.5)) + 1, lambda: self.end(turn, now_ns))

    def check_first(self, turn: Turn) -> None:
        """Nothing stricter waits, and nothing of its session that is due before it."""
        waiting = self.queue.reference.waiting
        for request in turn:
            assert all(request.infer.priority <= each.infer.priority for each in waiting)
            same = self.queue.reference.of((request.infer.priority, request.requester))
            assert all(request.place < each.place for each in same)

    def end(self, turn: Turn, began_ns: int) -> None:
        now_ns = self.world.now_ns
        for request in turn:
            request.requester.finish(request.infer, ANSWER)
        self.running = ()
        self.times[turn[0].infer.rows > 1].note(now_ns - began_ns, now_ns - began_ns)
        self.dispatcher.done(turn, now_ns)
        self.wake(0)
        self.watch()

    def watch(self) -> None:
        """The timer of the loop, exact here."""
        next_ns = self.dispatcher.next_expiry_ns()
        assert next_ns >= self.world.now_ns, "what has expired still lies ready"
        if next_ns < self.timer_ns:
            self.timer_ns = next_ns
            self.world.after(next_ns + 1 - self.world.now_ns, self.expire, TIMER)

    def expire(self) -> None:
        if self.world.now_ns > self.timer_ns:
            self.timer_ns = NEVER_NS
            self.dispatcher.expire(self.world.now_ns)
            self.watch()


class World:
    """All of it, and what time it is."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now_ns = SECONDS
        self.asked = 0
        self.ran = 0
        self.ended: Counter[int] = Counter()
        self._due: list[tuple[int, int, int, Callable[[], None]]] = []
        self._order = count()
        self.versions = [Version(self, self.chance)]
        self.clients = [Client(self) for _ in range(self.chance.randrange(1, SESSIONS_MAX + 1))]
        self.gap_ns = self.chance.choice((500, 20_000, 200_000))
        self.budgets = self.chance.choice(((0,), (0, 300_000), (100_000, 1_000_000), (0, 5_000, 2_000_000)))
        self.levels = self.chance.choice((1, 2, PRIORITY_LEVELS))
        self.keys = self.chance.choice((0, 1, 3))

    def after(self, delay_ns: int, call: Callable[[], None], order: int = THREAD) -> None:
        heappush(self._due, (self.now_ns + delay_ns, order, next(self._order), call))

    def run(self, steps: int) -> None:
        """So many things happen, then all that is under way comes to its end."""
        for _ in range(steps):
            self._until(self.now_ns + self.chance.randrange(2 * self.gap_ns))
            self._something()
        self._until(NEVER_NS)
        self._check_end()

    def _until(self, end_ns: int) -> None:
        while self._due and self._due[0][0] <= end_ns:
            self.now_ns, _, _, call = heappop(self._due)
            call()
        if end_ns != NEVER_NS:
            self.now_ns = end_ns

    def _something(self) -> None:
        chance, pick = self.chance, self.chance.random()
        client = chance.choice(self.clients)
        if pick < 0.82:
            client.last_id += 1
            client.ask(self._infer(client.last_id), self.versions[-1])
        elif pick < 0.93:
            client.cancel(chance.randrange(client.last_id + 1))
        elif pick < 0.95:
            client.leave()
            self.clients.remove(client)
            self.clients.append(Client(self))
        elif pick < 0.96:
            self.versions.append(Version(self, chance))
        elif pick < 0.98:
            self.versions[-1].pace = chance.choice((0.3, 1.0, 3.0))
        elif pick < 0.985:
            for version in self.versions:
                version.dispatcher.close()

    def _infer(self, request_id: int) -> Infer:
        chance = self.chance
        rows = 1 if chance.random() < 0.7 else chance.randrange(2, BUCKETS[-1] + 1)
        inputs = [DATA if chance.random() < 0.1 else None]
        key = chance.randrange(self.keys + 1)
        return Infer(request_id, 0, rows, inputs, chance.choice(self.budgets), chance.randrange(self.levels), 0, 0, key)

    def check_keys(self, client: Client) -> None:
        """Of what a client has under one key no two wait, whatever version they are of."""
        waiting = [each for version in self.versions for each in version.queue.reference.waiting]
        keys = [each.key for each in waiting if each.requester is client and each.key is not None]
        assert len(keys) == len(set(keys)), "an older one waits behind a newer"

    def _check_end(self) -> None:
        assert sum(self.ended.values()) == self.asked, "one end for each"
        assert self.ended[0] == self.ran
        for version in self.versions:
            assert version.dispatcher.is_idle
            assert version.dispatcher.waiting_count == 0
            queue = version.queue
            assert not any((queue._by_id, queue._by_key, queue._held, queue._expiring)), "nothing is kept"
            assert not any(level.lines or level.turns or level.total_ns for level in queue._levels)
