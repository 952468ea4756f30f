"""The queue policy said again, as plainly as can be: one list, everything counted anew each time. And a queue that is
held against it, step by step."""

from collections.abc import Sequence
from typing import Final

from tickpath.server.admission import Refusal
from tickpath.server.compute_time import ComputeTime
from tickpath.server.executor import Requester
from tickpath.server.scheduling import NEVER_NS, Key, Queued, RequestQueue
from tickpath.wire import Code

Session = Requester
SESSIONS_MAX: Final = 4


class ReferenceQueue:
    """What waits, in no order, and whose turn it is at each level."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.waiting: list[Queued] = []
        self.turns: list[tuple[int, Session]] = []  # level and session: who comes first at its level stands first
        self.credit_ns: dict[tuple[int, Session], int] = {}
        self.credit_at_take_ns: dict[int, int] = {}  # by the request's identity

    def of(self, turn: tuple[int, Session]) -> list[Queued]:
        """What a session has at a level."""
        level, session = turn
        return [each for each in self.waiting if each.infer.priority == level and each.requester is session]

    def refusal(self, request: Queued, elsewhere: int, ahead_ns: int, now_ns: int) -> Code | None:
        """Why it may not come in."""
        free = self.room - elsewhere - len(self.waiting)
        held = sum(each.requester is request.requester for each in self.waiting)
        if self.under(request.key) is None and (free <= 0 or held >= free):
            return Code.OVERLOADED
        if request.start_by_ns != NEVER_NS and now_ns + ahead_ns + self.wait_ns(request) > request.start_by_ns:
            return Code.DEADLINE
        return None

    def wait_ns(self, request: Queued) -> int:
        """Everything of stricter levels; of its own session what is due before it, of the others as much."""
        stricter = before = 0
        others = dict[Session, int]()
        for each in self.waiting:
            if each.infer.priority < request.infer.priority:
                stricter += each.cost_ns
            elif each.infer.priority == request.infer.priority:
                if each.requester is not request.requester:
                    others[each.requester] = others.get(each.requester, 0) + each.cost_ns
                elif each.place < request.place:
                    before += each.cost_ns
        return stricter + before + sum(min(ns, before + request.cost_ns) for ns in others.values())

    def under(self, key: Key | None) -> Queued | None:
        return next((each for each in self.waiting if key is not None and each.key == key), None)

    def enter(self, request: Queued, turn_ns: int) -> None:
        """It waits; one with its key does not any more, and leaves it its turn."""
        older, turn = self.under(request.key), (request.infer.priority, request.requester)
        if turn not in self.turns:
            self.turns.append(turn)
            self.credit_ns[turn] = turn_ns
        self.waiting.append(request)
        if older is not None:
            self.leave(older)

    def leave(self, request: Queued) -> None:
        self.waiting.remove(request)
        self.settle()

    def settle(self) -> None:
        """Who has nothing at a level has no turn there."""
        left = {(each.infer.priority, each.requester) for each in self.waiting}
        self.turns = [turn for turn in self.turns if turn in left]
        self.credit_ns = {turn: self.credit_ns[turn] for turn in self.turns}

    def next(self, turn_ns: int) -> Queued | None:
        """What runs next. Whoever has not enough left of his turn goes behind."""
        if not self.turns:
            return None
        level = min(level for level, _ in self.turns)
        while True:
            turn = next(turn for turn in self.turns if turn[0] == level)
            first = min(self.of(turn), key=lambda each: each.place)
            if self.credit_ns[turn] >= first.cost_ns:
                return first
            self.credit_ns[turn] += max(turn_ns, first.cost_ns)
            self.turns.remove(turn)
            self.turns.append(turn)

    def take(self, turn_ns: int) -> Queued | None:
        request = self.next(turn_ns)
        if request is not None:
            turn = (request.infer.priority, request.requester)
            self.credit_at_take_ns[id(request)] = self.credit_ns[turn]
            self.credit_ns[turn] -= request.cost_ns
            self.leave(request)
        return request

    def put_back(self, request: Queued) -> None:
        turn = (request.infer.priority, request.requester)
        if turn in self.turns:
            self.turns.remove(turn)
        self.turns.insert(0, turn)
        self.credit_ns[turn] = self.credit_at_take_ns[id(request)]
        self.waiting.append(request)


class CheckedQueue(RequestQueue):
    """The queue, held against the reference at every step; and who has been waited for how long."""

    def __init__(self, room: int, times: Sequence[ComputeTime], optional: Sequence[int]) -> None:
        super().__init__("sim", room, times, optional)
        self.reference = ReferenceQueue(room)
        self.passed_ns: dict[tuple[int, Session], int] = {}
        """By level and session that waits: what others of the level have run since it last did."""
        self.cost_ns_max = 0

    def put(self, request: Queued, elsewhere: int, ahead_ns: int, now_ns: int) -> Queued | Refusal | None:
        reference = self.reference
        came = super().put(request, elsewhere, ahead_ns, now_ns)
        expected = reference.refusal(request, elsewhere, ahead_ns, now_ns)
        if isinstance(came, Refusal):
            assert came.code is expected
            return came
        assert expected is None
        assert came is reference.under(request.key)
        if not reference.of((request.infer.priority, request.requester)):
            self.passed_ns.pop((request.infer.priority, request.requester), None)
        reference.enter(request, self._largest.mean_ns)
        self.check()
        return came

    def take(self) -> Queued | None:
        request = super().take()
        assert request is self.reference.take(self._largest.mean_ns)
        if request is not None:
            self.count(request, request.cost_ns)
        return request

    def take_joining(self, rows_max: int) -> Queued | None:
        self.reference.next(self._largest.mean_ns)  # to look who is next may end a turn
        return super().take_joining(rows_max)

    def count(self, request: Queued, cost_ns: int) -> None:
        """No session that waits is passed for longer than the turns of all others, and what was left of their last."""
        level = request.infer.priority
        self.cost_ns_max = max(self.cost_ns_max, request.cost_ns, self._largest.mean_ns)
        for turn in self.reference.turns:
            if turn[0] == level and turn[1] is not request.requester:
                passed_ns = self.passed_ns[turn] = max(0, self.passed_ns.get(turn, 0) + cost_ns)
                assert passed_ns <= (SESSIONS_MAX - 1) * 2 * self.cost_ns_max, "a session starves"
        self.passed_ns.pop((level, request.requester), None)

    def put_back(self, request: Queued) -> None:
        super().put_back(request)
        self.count(request, -request.cost_ns)
        self.reference.put_back(request)

    def take_back(self, requester: Session, request_id: int) -> Queued | None:
        expected = [
            each for each in self.reference.waiting if each.requester is requester and each.infer.id == request_id
        ]
        return self._gone(super().take_back(requester, request_id), expected)

    def supersede(self, key: Key) -> Queued | None:
        expected = self.reference.under(key)
        return self._gone(super().supersede(key), [] if expected is None else [expected])

    def expired(self, now_ns: int) -> list[Queued]:
        gone = super().expired(now_ns)
        expected = [each for each in self.reference.waiting if each.start_by_ns < now_ns]
        assert set(map(id, gone)) == set(map(id, expected))
        for request in gone:
            self.reference.leave(request)
        if gone:
            self.check()
        return gone

    def check(self) -> None:
        """Both hold the same, and know the same of it."""
        waiting = self.reference.waiting
        assert len(self) == len(waiting)
        assert self.first_expiry_ns == min((each.start_by_ns for each in waiting), default=NEVER_NS)
        totals_ns = [0] * len(self._levels)
        for each in waiting:
            totals_ns[each.infer.priority] += each.cost_ns
        for number, level in enumerate(self._levels):
            assert level.total_ns == totals_ns[number]
            assert [line.requester for line in level.turns] == [s for lvl, s in self.reference.turns if lvl == number]

    def _gone(self, request: Queued | None, expected: list[Queued]) -> Queued | None:
        assert ([] if request is None else [request]) == expected
        if request is not None:
            self.reference.leave(request)
            self.check()
        return request
