"""Executors: where a model's lane runs. Inline on the loop for short models, on a thread of its own for long ones; on a
device that the loop polls, see polled_executor.py.

One writer: the inline lane belongs to the loop's thread; a threaded lane to its thread. What waits for the thread, and
what becomes of it, is the dispatcher's, on the loop's thread: see dispatch.py.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence, Set
from queue import Empty, SimpleQueue
from time import monotonic_ns
from typing import Final, Literal, Protocol

from tickpath.server.admission import Refusal
from tickpath.server.dispatch import OFF, TURNS_HANDED, Batching, Dispatcher, Turn
from tickpath.server.lane import Answer, Lane
from tickpath.server.scheduling import NEVER_NS, Queued, RequestQueue
from tickpath.server.timer import Timer
from tickpath.wire import Code, Infer

# Above this a hand-off to a thread and back (two wake-ups: 40 to 120 µs, by machine) is under half of the model's own
# time, and the loop would be deaf to every other session for longer than that.
INLINE_COMPUTE_NS_MAX: Final = 250_000

# An expired request is looked for when it has expired, and not a moment before.
TIMER_S: Final = 0.001

Outcome = Answer | Refusal


class Requester(Protocol):
    """Who waits for an answer."""

    def finish(self, infer: Infer, outcome: Outcome, queued: int = 0) -> None:
        """Called once for each request that waited, on the loop's thread. `infer` has its inputs; `queued`: of one that
        ran, how many had not begun when it came."""
        ...


class Executor(Protocol):
    """Runs the requests of one model."""

    @property
    def kind(self) -> Literal["inline", "thread", "polled"]:
        """Where a request runs. Inline, it is answered within `submit`; else later."""
        ...

    def submit(self, requester: Requester, infer: Infer, first_byte_ns: int, received_ns: int) -> Outcome | None:
        """What came of it; or None, and it is finished later. Bytes of `infer.inputs` need not outlive the call. Others
        may be finished meanwhile: those that are too late, and one whose place this one takes."""
        ...

    def answer_tick(self, infer: Infer, first_byte_ns: int, received_ns: int) -> Outcome | None:
        """What came of a tick, or None: it has to be submitted. On the loop's thread."""
        ...

    def settle(self) -> None:
        """Have done what was put off until replies have left: they have. On the loop's thread."""
        ...

    def take_back(self, requester: Requester, request_id: int) -> bool:
        """True if the request had not started, and now never will."""
        ...

    def supersede(self, requester: Requester, handle: int, key: int) -> None:
        """Finish what has not started under this key: another version answers a newer one."""
        ...

    def took(self, infer: Infer, outcome: Outcome, sent_ns: int) -> None:
        """A request with a budget has been answered or refused; where it waited, that is known already."""
        ...

    def waiting_count(self) -> int: ...

    def idle(self) -> bool:
        """Whether nothing waits or runs. On the loop's thread."""
        ...

    def close(self) -> None:
        """Refuse what waits; what runs still finishes. On the loop's thread; nothing may be submitted any more."""
        ...

    def join(self) -> None:
        """After `close`: wait for what runs."""
        ...


class InlineExecutor:
    """Runs a request at once, on the caller's thread: no hand-off, no queue."""

    kind: Final[Literal["inline"]] = "inline"

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._run = lane.run
        self._settling: asyncio.Handle | None = None
        self._is_closed = False

    def submit(self, requester: Requester, infer: Infer, first_byte_ns: int, received_ns: int) -> Outcome:
        return self._run(infer, first_byte_ns, received_ns)

    def answer_tick(self, infer: Infer, first_byte_ns: int, received_ns: int) -> Outcome | None:
        return self._run(infer, first_byte_ns, received_ns)

    def settle(self) -> None:
        if self._settling is None and not self._is_closed:
            self._settle_some()

    def take_back(self, requester: Requester, request_id: int) -> bool:
        return False

    def supersede(self, requester: Requester, handle: int, key: int) -> None:
        pass

    def took(self, infer: Infer, outcome: Outcome, sent_ns: int) -> None:
        if isinstance(outcome, Answer):
            _note(self._lane, outcome, sent_ns)
        elif outcome.code is Code.DEADLINE:
            self._lane.time_of(infer.rows).doubt()

    def waiting_count(self) -> int:
        return 0

    def idle(self) -> bool:
        return True

    def close(self) -> None:
        self._is_closed = True
        if self._settling is not None:
            self._settling.cancel()

    def join(self) -> None:
        pass

    def _settle_some(self) -> None:
        """One run in each turn of the loop, so that ticks which have come meanwhile are answered first."""
        self._lane.settle()
        self._settling = asyncio.get_running_loop().call_soon(self._settle_some) if self._lane.unsettled else None


class QueueingExecutor:
    """What executors share whose requests wait: a dispatcher, and a timer for what expires. `ring`, `batching` and
    `turns_max` are the dispatcher's. On the loop's thread."""

    def __init__(
        self,
        lane: Lane,
        loop: asyncio.AbstractEventLoop,
        name: str,
        queue_max: int,
        ring: Callable[[int], object],
        batching: Batching = OFF,
        turns_max: int = TURNS_HANDED,
    ) -> None:
        self._lane = lane
        self._deck: deque[Turn] = deque()
        queue = RequestQueue(name, queue_max, lane.times, lane.optional_inputs)
        self._dispatcher = Dispatcher(queue, self._deck, ring, batching, turns_max)
        self._timer = Timer(loop)
        self._timer_ns = NEVER_NS

    def submit(self, requester: Requester, infer: Infer, first_byte_ns: int, received_ns: int) -> Refusal | None:
        request = Queued(requester, infer, first_byte_ns, received_ns, self._lane.time_of(infer.rows))
        now_ns = monotonic_ns()
        refusal = self._dispatcher.submit(request, now_ns)
        if infer.budget_ns and refusal is None:
            self._watch(now_ns)
        return refusal

    def answer_tick(self, infer: Infer, first_byte_ns: int, received_ns: int) -> Outcome | None:
        return None

    def settle(self) -> None:
        """Nothing is put off."""

    def take_back(self, requester: Requester, request_id: int) -> bool:
        return self._dispatcher.take_back(requester, request_id, monotonic_ns())

    def supersede(self, requester: Requester, handle: int, key: int) -> None:
        self._dispatcher.supersede((requester, handle, key), monotonic_ns())

    def took(self, infer: Infer, outcome: Outcome, sent_ns: int) -> None:
        """It is noted as the turn ends, for all requests."""

    def waiting_count(self) -> int:
        return self._dispatcher.waiting_count

    def idle(self) -> bool:
        return self._dispatcher.is_idle

    def close(self) -> None:
        self._timer.stop()
        self._dispatcher.close()

    def _watch(self, now_ns: int) -> None:
        """Have what expires next finished then, whatever runs. A timer that comes early looks again, so one is set
        anew only where it would come late. The loop's timers are good to a millisecond."""
        next_ns = self._dispatcher.next_expiry_ns()
        if next_ns < self._timer_ns:
            self._timer_ns = next_ns
            self._timer.start((next_ns - now_ns) / 1e9 + TIMER_S, self._expire)

    def _expire(self) -> None:
        self._timer.stop()
        self._timer_ns = NEVER_NS
        now_ns = monotonic_ns()
        self._dispatcher.expire(now_ns)
        self._watch(now_ns)


class ThreadExecutor(QueueingExecutor):
    """Runs requests on its own thread; the runtime leaves the GIL to the loop while it computes. `ticks_at_once`: a
    tick of a feed runs on the loop while the thread has nothing to do, so that only the work that is put off is handed
    over.

    The thread touches the lane only after a ring: while all that were rung are served, the lane is the loop's.
    """

    kind: Final[Literal["thread"]] = "thread"

    def __init__(
        self,
        lane: Lane,
        loop: asyncio.AbstractEventLoop,
        name: str,
        queue_max: int,
        cpus: Set[int] | None = None,
        batching: Batching = OFF,
        ticks_at_once: bool = False,
    ) -> None:
        self._ticks_at_once = ticks_at_once
        self._rung = 0  # written by the loop
        # Written by the thread. Early: while a turn waited for others, of which each has its own.
        self._heard = self._served = self._rung_early = 0
        self._hand_back: Callable[..., object] = loop.call_soon_threadsafe
        self._cpus = cpus
        self._wake: SimpleQueue[int | None] = SimpleQueue()
        super().__init__(lane, loop, name, queue_max, self._ring, batching)
        self._thread = threading.Thread(target=self._work, name=f"tickpath-{name}", daemon=True)
        self._thread.start()

    def answer_tick(self, infer: Infer, first_byte_ns: int, received_ns: int) -> Outcome | None:
        if not self._ticks_at_once or self._rung != self._served or not self._dispatcher.is_idle:
            return None
        return self._lane.run(infer, first_byte_ns, received_ns) if self._lane.at_rest(infer) else None

    def settle(self) -> None:
        self._ring(0)

    def close(self) -> None:
        super().close()
        self._wake.put(None)

    def join(self) -> None:
        self._thread.join()

    # -- on the loop's thread --

    def _ring(self, until_ns: int) -> None:
        """The thread has something to do; it may wait until then for more of it."""
        self._rung += 1
        self._wake.put(until_ns)

    def _done(self, turn: Turn, outcomes: Sequence[Outcome]) -> None:
        """A turn has run."""
        try:
            for request, outcome in zip(turn, outcomes, strict=True):
                request.requester.finish(request.infer, outcome, request.queued)
        finally:
            now_ns = monotonic_ns()
            if isinstance(outcomes[0], Answer):
                _note(self._lane, outcomes[0], now_ns)
            self._dispatcher.done(turn, now_ns)
            if self._lane.unsettled:  # rung only now: beside it, the reply would have waited for the interpreter
                self.settle()

    # -- on its own --

    def _work(self) -> None:
        if self._cpus:
            os.sched_setaffinity(0, self._cpus)  # 0: this thread
        while self._turn_came():
            try:
                turn = self._deck.popleft()
            except IndexError:  # it was taken back after it had rung; or replies have left, for which work was put off
                self._settle_until_next()
            else:
                self._hand_back(self._done, turn, self._lane.run_turn(turn))
            self._served = self._heard - self._rung_early

    def _settle_until_next(self) -> None:
        """One run after the other while no turn waits. What is left then, the loop rings for as that turn is done."""
        while self._lane.unsettled and not self._deck:
            self._lane.settle()

    def _turn_came(self) -> bool:
        """Wait for a turn, and for others to join it where it may wait. False: there will be none."""
        if self._rung_early:
            self._rung_early -= 1
            return True
        until_ns = self._next_ring()
        # Whatever lies behind it has not joined it.
        while until_ns is not None and len(self._deck) < 2 and until_ns > (now_ns := monotonic_ns()):
            try:
                more_ns = self._next_ring((until_ns - now_ns) / 1e9)
            except Empty:
                break
            self._rung_early += 1
            until_ns = None if more_ns is None else min(until_ns, more_ns)
        return until_ns is not None

    def _next_ring(self, timeout_s: float | None = None) -> int | None:
        """Until when what it was for may wait; None: nothing comes any more. Raises Empty."""
        until_ns = self._wake.get(timeout=timeout_s)
        self._heard += 1
        return until_ns


def _note(lane: Lane, answer: Answer, sent_ns: int) -> None:
    started_ns, read_ns = answer.stamps[2], answer.stamps[5]
    lane.times[answer.bucket_index].note(read_ns - started_ns, sent_ns - started_ns)


def pick_kind(asked: Literal["auto", "inline", "thread"], compute_ns: int) -> Literal["inline", "thread"]:
    """Where a model runs: as asked, or by what a replay of its largest bucket takes, in ns."""
    if asked != "auto":
        return asked
    return "inline" if compute_ns <= INLINE_COMPUTE_NS_MAX else "thread"
