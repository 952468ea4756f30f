"""Which of the requests that wait for a model runs next, and which are not taken at all. Pure: no clock, no threads,
no sockets; the time comes in.

Rules
- Levels are strict: nothing of a lower level runs while something of a higher one waits.
- Within a level sessions take turns of about the same time (deficit round robin): many requests, or large ones, are no
  way to the front.
- Within a session what is due first runs first; what has no budget counts as due `PATIENCE_NS` after its receipt, so
  nothing waits for ever behind what came later.
- A session may have as many requests here as there is room left: one alone half of the room, two a third each, and
  whoever comes next finds some.
- Newest wins: a request takes the place of an older one of its session, handle and key.
- What can't be answered within its budget is refused as it comes, or leaves as soon as that is certain.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from tickpath.server.admission import Refusal
from tickpath.server.compute_time import ComputeTime
from tickpath.server.recent import with_own_inputs
from tickpath.wire import Code, Infer

if TYPE_CHECKING:
    from tickpath.server.executor import Requester

# To act now, to act soon, to look at, to keep.
PRIORITY_LEVELS: Final = 4
# Longer than a request without a budget waits where anything is in order: it only keeps those with one from passing it
# for ever.
PATIENCE_NS: Final = 1_000_000_000
NEVER_NS: Final = 2**65
"""After every time there can be: a stamp and a budget have 64 bits each."""

Key = tuple["Requester", int, int]
"""Session, handle and key: of the requests under it only the newest matters."""


class Queued:
    """A request that waits. `cost_ns`: what it will hold the model up for; `start_by_ns`: when it must begin, or is too
    late; `place`: where it stands among its session's; `credit_ns`: what was left of its turn when it was taken;
    `queued`: how many had not begun when it came.
    """

    __slots__ = (
        "cost_ns",
        "credit_ns",
        "first_byte_ns",
        "infer",
        "place",
        "queued",
        "received_ns",
        "requester",
        "start_by_ns",
        "time",
    )

    def __init__(
        self,
        requester: "Requester",
        infer: Infer,
        first_byte_ns: int,
        received_ns: int,
        time: ComputeTime,
    ) -> None:
        self.requester = requester
        self.infer = infer
        self.first_byte_ns = first_byte_ns
        self.received_ns = received_ns
        budget_ns = infer.budget_ns
        self.time = time
        self.cost_ns = time.mean_ns
        self.credit_ns = 0
        self.queued = 0
        self.start_by_ns = received_ns + budget_ns - time.needed_ns(budget_ns) if budget_ns else NEVER_NS
        self.place = (received_ns + (budget_ns or PATIENCE_NS), 0)

    def own_inputs(self) -> None:
        """It stays: the receive buffer moves on."""
        self.infer = with_own_inputs(self.infer)

    @property
    def key(self) -> Key | None:
        """None: nothing takes its place."""
        infer = self.infer
        return (self.requester, infer.handle, infer.key) if infer.key else None

    def displaces(self, other: "Queued") -> bool:
        """Whether one that came earlier would not run next any more, had it waited."""
        if self.requester is not other.requester:
            return self.infer.priority < other.infer.priority
        if self.infer.key and self.key == other.key:
            return True
        return (self.infer.priority, self.place[0]) < (other.infer.priority, other.place[0])


_place: Final = attrgetter("place")
_start_by: Final = attrgetter("start_by_ns")


class _Line:
    """What one session has waiting at one level, in the order in which it will run. `credit_ns`: what is left of the
    session's turn."""

    __slots__ = ("credit_ns", "requester", "requests", "total_ns")

    def __init__(self, requester: "Requester", credit_ns: int) -> None:
        self.requester = requester
        self.requests: list[Queued] = []
        self.total_ns = 0
        self.credit_ns = credit_ns

    def add(self, request: Queued) -> None:
        insort(self.requests, request, key=_place)
        self.total_ns += request.cost_ns

    def index(self, request: Queued) -> int:
        return bisect_left(self.requests, request.place, key=_place)

    def before_ns(self, place: tuple[int, int]) -> int:
        """What of it runs before that place."""
        if not self.requests or self.requests[-1].place < place:
            return self.total_ns
        return sum(request.cost_ns for request in self.requests if request.place < place)


class _Level:
    """The lines of one level, and whose turn it is."""

    def __init__(self) -> None:
        self.lines: dict[Requester, _Line] = {}
        self.turns: deque[_Line] = deque()
        self.total_ns = 0

    def add(self, request: Queued, turn_ns: int) -> None:
        line = self.lines.get(request.requester)
        if line is None:
            line = self.lines[request.requester] = _Line(request.requester, turn_ns)
            self.turns.append(line)
        line.add(request)
        self.total_ns += request.cost_ns

    def put_back(self, request: Queued) -> None:
        """As if it had never been taken."""
        self.add(request, 0)
        line = self.lines[request.requester]
        line.credit_ns = request.credit_ns
        self.turns.remove(line)
        self.turns.appendleft(line)

    def replace(self, older: Queued, newer: Queued) -> None:
        """`newer` stands where `older` stood."""
        line = self.lines[older.requester]
        line.requests[line.index(older)] = newer
        line.total_ns += newer.cost_ns - older.cost_ns
        self.total_ns += newer.cost_ns - older.cost_ns

    def remove(self, request: Queued) -> None:
        line = self.lines[request.requester]
        del line.requests[line.index(request)]
        line.total_ns -= request.cost_ns
        self.total_ns -= request.cost_ns
        if not line.requests:
            del self.lines[request.requester]
            self.turns.remove(line)

    def next(self, turn_ns: int) -> Queued:
        """Whose turn it is, and what of it is first. A session that has too little left for it waits for its next
        turn."""
        line = self.turns[0]
        while line.credit_ns < (cost_ns := line.requests[0].cost_ns):
            line.credit_ns += max(turn_ns, cost_ns)
            self.turns.rotate(-1)
            line = self.turns[0]
        return line.requests[0]

    def wait_ns(self, request: Queued) -> int:
        """What of this level runs before a request that is about to be added: of its own session what is due before it,
        of every other one as much, where it has as much."""
        mine = self.lines.get(request.requester)
        before_ns = wait_ns = 0 if mine is None else mine.before_ns(request.place)
        share_ns = before_ns + request.cost_ns
        for line in self.lines.values():
            if line is not mine:
                wait_ns += line.total_ns if line.total_ns < share_ns else share_ns
        return wait_ns


class RequestQueue:
    """The requests that wait for one model. `room`: how many there may be; `times`: what the model takes, by bucket,
    the largest last; `optional`: which inputs may be left out."""

    def __init__(self, model: str, room: int, times: Sequence[ComputeTime], optional: Sequence[int] = ()) -> None:
        self._model = model
        self._room = room
        self._largest = times[-1]
        self._optional = optional
        self._levels = [_Level() for _ in range(PRIORITY_LEVELS)]
        self._by_id: dict[tuple[Requester, int], Queued] = {}
        self._by_key: dict[Key, Queued] = {}
        self._held: dict[Requester, int] = {}
        self._expiring: list[Queued] = []  # those with a budget, by `start_by_ns`
        self._order = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Queued]:
        """In no order."""
        return iter(self._by_id.values())

    @property
    def first_expiry_ns(self) -> int:
        """When the first of them is too late."""
        return self._expiring[0].start_by_ns if self._expiring else NEVER_NS

    def put(self, request: Queued, elsewhere: int, ahead_ns: int, now_ns: int) -> Queued | Refusal | None:
        """Take a request, or not: why not, or the older one whose place it took. `elsewhere`: how many were taken and
        have not begun; `ahead_ns`: what runs before any that waits here."""
        key = request.key
        older = None if key is None else self._by_key.get(key)
        self._order += 1
        request.place = (request.place[0], self._order)
        if older is not None and older.infer.priority == request.infer.priority:
            request.place = older.place
        if older is None and (refusal := self._no_room(request, elsewhere)) is not None:
            return refusal
        if request.start_by_ns != NEVER_NS and (refusal := self._too_late(request, ahead_ns, now_ns)) is not None:
            return refusal
        self._enter(request, older)
        return older

    def put_back(self, request: Queued) -> None:
        """What `take` gave has not begun, and others may run before it. The last taken comes back first."""
        self._levels[request.infer.priority].put_back(request)
        self._note(request)

    def take(self) -> Queued | None:
        """What runs next leaves the queue. Call `expired` first: this looks at no clock."""
        for level in self._levels:
            if level.lines:
                request = level.next(self._largest.mean_ns)
                line = level.lines[request.requester]
                request.credit_ns = line.credit_ns
                line.credit_ns -= request.cost_ns
                self._leave(request)
                return request
        return None

    def take_joining(self, rows_max: int) -> Queued | None:
        """What runs next leaves the queue, if it has so few rows and may share a run."""
        level = next((level for level in self._levels if level.lines), None)
        if level is None:
            return None
        infer = level.next(self._largest.mean_ns).infer
        return self.take() if infer.rows <= rows_max and self.can_share(infer) else None

    def can_share(self, infer: Infer) -> bool:
        """Whether it may run with others: not where it goes on from a feed's state, which the lane puts in; nor with an
        optional input, which has no rows, so would be one for all of them."""
        return infer.feed >= 0 and all(infer.inputs[index] is None for index in self._optional)

    def take_back(self, requester: "Requester", request_id: int) -> Queued | None:
        """This request leaves the queue. None: it is not there."""
        request = self._by_id.get((requester, request_id))
        if request is not None:
            self._leave(request)
        return request

    def supersede(self, key: Key) -> Queued | None:
        """What waits under this key leaves the queue, since a newer one is answered elsewhere."""
        request = self._by_key.get(key)
        if request is not None:
            self._leave(request)
        return request

    def expired(self, now_ns: int) -> list[Queued]:
        """Those that can't be answered in time any more leave the queue."""
        count = bisect_left(self._expiring, now_ns, key=_start_by)
        gone = self._expiring[:count]
        for request in gone:
            self._leave(request)
        return gone

    def _no_room(self, request: Queued, elsewhere: int) -> Refusal | None:
        free = self._room - elsewhere - len(self._by_id)
        if free <= 0:
            return Refusal(
                Code.OVERLOADED, f"the queue of model {self._model!r} is full: send less, or raise its queue_max"
            )
        if (held := self._held.get(request.requester, 0)) >= free:
            return Refusal(
                Code.OVERLOADED,
                f"{held} requests of this session wait for model {self._model!r}, and there is room for {free} more: "
                "the rest is for others, so send less, or raise its queue_max",
            )
        return None

    def _too_late(self, request: Queued, ahead_ns: int, now_ns: int) -> Refusal | None:
        level = request.infer.priority
        wait_ns = ahead_ns + self._levels[level].wait_ns(request)
        for stricter in self._levels[:level]:
            wait_ns += stricter.total_ns
        if now_ns + wait_ns <= request.start_by_ns:
            return None
        if not wait_ns:
            request.time.doubt()
        budget_ns = request.infer.budget_ns
        compute_ns = request.received_ns + budget_ns - request.start_by_ns
        return Refusal(
            Code.DEADLINE,
            f"the budget of {budget_ns} ns can't be kept: it would wait about {wait_ns} ns and the model takes "
            f"{compute_ns}, so it was not queued",
        )

    def _enter(self, request: Queued, older: Queued | None) -> None:
        level = self._levels[request.infer.priority]
        if older is not None and older.place == request.place:
            level.replace(older, request)
            self._forget(older)
        else:
            if older is not None:
                self._leave(older)
            level.add(request, self._largest.mean_ns)
        self._note(request)

    def _leave(self, request: Queued) -> None:
        self._levels[request.infer.priority].remove(request)
        self._forget(request)

    def _note(self, request: Queued) -> None:
        requester = request.requester
        self._by_id[requester, request.infer.id] = request
        self._held[requester] = self._held.get(requester, 0) + 1
        if (key := request.key) is not None:
            self._by_key[key] = request
        if request.start_by_ns != NEVER_NS:
            insort(self._expiring, request, key=_start_by)

    def _forget(self, request: Queued) -> None:
        requester = request.requester
        del self._by_id[requester, request.infer.id]
        self._held[requester] -= 1
        if not self._held[requester]:
            del self._held[requester]
        if (key := request.key) is not None and self._by_key.get(key) is request:
            del self._by_key[key]
        if request.start_by_ns != NEVER_NS:
            index = bisect_left(self._expiring, request.start_by_ns, key=_start_by)
            while self._expiring[index] is not request:
                index += 1
            del self._expiring[index]
