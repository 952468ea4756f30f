"""What becomes of a request between `submit` and its end: it waits in the queue, lies on the deck for the thread to
take, runs, and is finished, once. Pure: no clock and no thread of its own; times come in.

Rules
- The loop's thread calls everything here. Only the deck is shared with the thread that runs the model: whoever takes a
  turn off it has it, since `deque`'s single operations are atomic.
- So many turns are handed over as keep the model busy: for a thread one that runs and one that lies ready, so that it
  never waits for the loop; for a device one for each slot. The queue decides as late as it can: a turn that has not
  begun is taken back when something else should run first.
- A turn is one request, or several that share a run (`Batching`).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tickpath.server.admission import Refusal
from tickpath.server.scheduling import Key, Queued, RequestQueue
from tickpath.wire import Code

if TYPE_CHECKING:
    from tickpath.server.executor import Requester

Turn = tuple[Queued, ...]
"""Requests that run together."""

# For a thread: what runs and what lies ready.
TURNS_HANDED: Final = 2

STOPPED: Final = Refusal(Code.NOT_READY, "the server has shut down before this could start: go to another")
CANCELLED: Final = Refusal(Code.CANCELLED, "taken back before it ran")
SUPERSEDED: Final = Refusal(Code.SUPERSEDED, "a newer request with this key came before this one began")


@dataclass(frozen=True, slots=True)
class Batching:
    """Whether requests share a run: of up to `rows_max` rows (0: never), for which a request waits `wait_ns` at the
    most."""

    rows_max: int = 0
    wait_ns: int = 0


OFF: Final = Batching()


class Dispatcher:
    """Of one model. `deck`: turns that may begin, oldest first; `ring` tells whoever runs them that there is one more,
    and until when it may wait for others to join (0: not at all). `turns_max`: how many are handed over at a time."""

    def __init__(
        self,
        queue: RequestQueue,
        deck: deque[Turn],
        ring: Callable[[int], object],
        batching: Batching = OFF,
        turns_max: int = TURNS_HANDED,
    ) -> None:
        self._queue = queue
        self._deck = deck
        self._ring = ring
        self._batching = batching
        self._turns_max = turns_max
        self._handed: list[Turn] = []  # not finished: the first runs, or will in a moment
        self._began_ns = 0  # when the first of them could begin

    @property
    def waiting_count(self) -> int:
        """Requests that have not begun."""
        return len(self._queue) + sum(map(len, tuple(self._deck)))

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing runs."""
        return not self._handed

    def next_expiry_ns(self) -> int:
        """When the next one is too late of those that have not begun; NEVER_NS: none ever is."""
        next_ns = self._queue.first_expiry_ns
        for turn in self._ready():
            for request in turn:
                next_ns = min(next_ns, request.start_by_ns)
        return next_ns

    def submit(self, request: Queued, now_ns: int) -> Refusal | None:
        """Take a request, or say why not. One whose place it takes is finished."""
        self.expire(now_ns)
        # While too much comes, most is refused and ends here: this way is kept short.
        if self._deck:
            self._recall_from(lambda turn: self._changes(turn, request))
        came = self._queue.put(request, len(self._deck), self._ahead_ns(now_ns), now_ns)
        if isinstance(came, Refusal):
            self._fill(now_ns)
            return came
        request.own_inputs()
        request.queued = self.waiting_count - 1
        self._fill(now_ns)
        if came is not None:
            came.requester.finish(came.infer, SUPERSEDED)
        return None

    def done(self, turn: Turn, now_ns: int) -> None:
        """The thread has run a turn, and the answers have been given."""
        self._handed.remove(turn)
        self._began_ns = now_ns
        self.expire(now_ns)
        self._fill(now_ns)

    def expire(self, now_ns: int) -> None:
        """Finish those that can't be answered in time any more, and hand over what runs instead."""
        if self.next_expiry_ns() >= now_ns:
            return
        self._recall_from(lambda turn: any(request.start_by_ns < now_ns for request in turn))
        gone = self._queue.expired(now_ns)
        self._fill(now_ns)
        for request in gone:
            request.requester.finish(request.infer, _expired(request, now_ns))

    def take_back(self, requester: "Requester", request_id: int, now_ns: int) -> bool:
        """True if the request had not begun, and now never will. It is not finished: the caller knows."""
        request = self._withdraw(
            lambda queue: queue.take_back(requester, request_id),
            lambda each: each.infer.id == request_id and each.requester is requester,
            now_ns,
        )
        return request is not None

    def supersede(self, key: Key, now_ns: int) -> None:
        """Finish what has not begun under this key: a newer request is answered elsewhere."""
        older = self._withdraw(lambda queue: queue.supersede(key), lambda each: each.key == key, now_ns)
        if older is not None:
            older.requester.finish(older.infer, SUPERSEDED)

    def close(self) -> None:
        """Finish all that has not begun as refused. What runs is still to be `done`."""
        self._recall_from(lambda _: True)
        while (request := self._queue.take()) is not None:
            request.requester.finish(request.infer, STOPPED)

    def _ready(self) -> list[Turn]:
        """Handed over and not begun, as far as the loop can know: the thread may take the first at any moment."""
        return self._handed[len(self._handed) - len(self._deck) :]

    def _fill(self, now_ns: int) -> None:
        """Hand over what runs next. What has expired must be gone."""
        while len(self._handed) < self._turns_max and (first := self._queue.take()) is not None:
            turn = self._joined(first)
            if not self._handed:
                self._began_ns = now_ns
            self._handed.append(turn)
            self._deck.append(turn)
            self._ring(self._may_wait_until_ns(turn))

    def _joined(self, first: Queued) -> Turn:
        """The turn that begins with this request."""
        turn, rows = [first], first.infer.rows
        if self._batching.rows_max and self._queue.can_share(first.infer):
            while (more := self._queue.take_joining(self._batching.rows_max - rows)) is not None:
                turn.append(more)
                rows += more.infer.rows
        return tuple(turn)

    def _may_wait_until_ns(self, turn: Turn) -> int:
        batching = self._batching
        if not batching.wait_ns or sum(each.infer.rows for each in turn) >= batching.rows_max:
            return 0
        return min(min(each.received_ns + batching.wait_ns, each.start_by_ns) for each in turn)

    def _changes(self, turn: Turn, request: Queued) -> bool:
        """Whether a turn that lies ready would be another one, had this request come before it was formed."""
        for each in turn:
            if request.displaces(each):
                return True
        if not self._batching.rows_max:
            return False
        rows = request.infer.rows + sum(each.infer.rows for each in turn)
        can_share = self._queue.can_share
        return rows <= self._batching.rows_max and can_share(request.infer) and can_share(turn[0].infer)

    def _recall_from(self, is_it: Callable[[Turn], bool]) -> None:
        """Take back the first such turn and what was handed over after it, in reverse, as far as it has not begun."""
        ready = self._ready()
        index = next((index for index, turn in enumerate(ready) if is_it(turn)), len(ready))
        for turn in reversed(ready[index:]):
            try:
                self._deck.remove(turn)
            except ValueError:  # the thread was quicker
                return
            self._handed.remove(turn)
            for request in reversed(turn):
                self._queue.put_back(request)

    def _withdraw(
        self, withdraw: Callable[[RequestQueue], Queued | None], is_it: Callable[[Queued], bool], now_ns: int
    ) -> Queued | None:
        """What leaves the queue, where it waits or lies ready. None: it has begun, or never was."""
        request = withdraw(self._queue)
        if request is None:
            self._recall_from(lambda turn: any(map(is_it, turn)))
            request = withdraw(self._queue)
            self.expire(now_ns)
            self._fill(now_ns)
        return request

    def _ahead_ns(self, now_ns: int) -> int:
        """What the turns that are handed over still take."""
        ahead_ns = 0
        for turn in self._handed:
            cost_ns = turn[0].cost_ns if len(turn) == 1 else max([each.cost_ns for each in turn])
            # The first has begun, or could have.
            ahead_ns += cost_ns if turn is not self._handed[0] else max(0, self._began_ns + cost_ns - now_ns)
        return ahead_ns


def _expired(request: Queued, now_ns: int) -> Refusal:
    budget_ns, waited_ns = request.infer.budget_ns, now_ns - request.received_ns
    compute_ns = request.received_ns + budget_ns - request.start_by_ns
    return Refusal(
        Code.DEADLINE,
        f"the budget of {budget_ns} ns can't be kept: the request has waited {waited_ns} ns and the model takes "
        f"{compute_ns}, so it was not run",
    )
