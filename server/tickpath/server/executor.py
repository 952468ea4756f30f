"""Executors: where a model's lane runs. Inline on the loop for short models, on a thread of its own for long ones.

One writer: the inline lane belongs to the loop's thread; a threaded lane to its thread. A threaded request is the
loop's until the thread takes it from `waiting`, the thread's until it hands it back through the loop. `deque`'s single
operations are atomic, so taking (`popleft`) and taking back (`remove`) can't both succeed.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Set
from contextlib import suppress
from queue import SimpleQueue
from typing import Final, Literal, Protocol

from tickpath.server.admission import Refusal
from tickpath.server.lane import Answer, Lane
from tickpath.server.recent import with_own_inputs
from tickpath.wire import Code, Infer

# Above this a hand-off to a thread and back (two wake-ups: 40 to 120 µs, by machine) is under half of the model's own
# time, and the loop would be deaf to every other session for longer than that.
INLINE_COMPUTE_NS_MAX: Final = 250_000

Outcome = Answer | Refusal

_STOPPED: Final = Refusal(Code.NOT_READY, "the server has shut down before this could start: go to another")


class Requester(Protocol):
    """Who waits for an answer."""

    def finish(self, infer: Infer, outcome: Outcome) -> None:
        """Called once for each request that waited, on the loop's thread. `infer` has its inputs."""
        ...


class Executor(Protocol):
    """Runs the requests of one model in the order they came."""

    @property
    def kind(self) -> Literal["inline", "thread"]:
        """Whether a request is answered within `submit`, or later."""
        ...

    def has_room(self) -> bool:
        """Whether one more request may be submitted."""
        ...

    def submit(self, requester: Requester, infer: Infer, first_byte_ns: int, received_ns: int) -> Outcome | None:
        """What came of it; or None, and it is run later. Bytes of `infer.inputs` need not outlive the call."""
        ...

    def take_back(self, requester: Requester, request_id: int) -> bool:
        """True if the request had not started, and now never will."""
        ...

    def waiting_count(self) -> int: ...

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
        self._run = lane.run

    def has_room(self) -> bool:
        return True

    def submit(self, requester: Requester, infer: Infer, first_byte_ns: int, received_ns: int) -> Outcome:
        return self._run(infer, first_byte_ns, received_ns)

    def take_back(self, requester: Requester, request_id: int) -> bool:
        return False

    def waiting_count(self) -> int:
        return 0

    def close(self) -> None:
        pass

    def join(self) -> None:
        pass


class _Waiting:
    """A request in a thread's queue, with its inputs copied: the receive buffer moves on."""

    __slots__ = ("first_byte_ns", "infer", "received_ns", "requester")

    def __init__(self, requester: Requester, infer: Infer, first_byte_ns: int, received_ns: int) -> None:
        self.requester = requester
        self.infer = with_own_inputs(infer)
        self.first_byte_ns = first_byte_ns
        self.received_ns = received_ns


class ThreadExecutor:
    """Runs requests on its own thread; the runtime leaves the GIL to the loop while it computes."""

    kind: Final[Literal["thread"]] = "thread"

    def __init__(
        self, lane: Lane, loop: asyncio.AbstractEventLoop, name: str, queue_max: int, cpus: Set[int] | None = None
    ) -> None:
        self._run = lane.run
        self._settle = lane.settle
        self._hand_back: Callable[..., object] = loop.call_soon_threadsafe
        self._queue_max = queue_max
        self._cpus = cpus
        self._waiting: deque[_Waiting] = deque()
        self._wake: SimpleQueue[bool] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"tickpath-{name}", daemon=True)
        self._thread.start()

    def has_room(self) -> bool:
        return len(self._waiting) < self._queue_max

    def submit(self, requester: Requester, infer: Infer, first_byte_ns: int, received_ns: int) -> None:
        self._waiting.append(_Waiting(requester, infer, first_byte_ns, received_ns))
        self._wake.put(True)

    def take_back(self, requester: Requester, request_id: int) -> bool:
        for request in tuple(self._waiting):
            if request.requester is requester and request.infer.id == request_id:
                try:
                    self._waiting.remove(request)
                except ValueError:  # the thread was quicker
                    return False
                return True
        return False

    def waiting_count(self) -> int:
        return len(self._waiting)

    def close(self) -> None:
        with suppress(IndexError):
            while True:
                request = self._waiting.popleft()
                request.requester.finish(request.infer, _STOPPED)
        self._wake.put(False)

    def join(self) -> None:
        self._thread.join()

    def _work(self) -> None:
        if self._cpus:
            os.sched_setaffinity(0, self._cpus)  # 0: this thread
        while self._wake.get():
            try:
                request = self._waiting.popleft()
            except IndexError:  # it was taken back after it had rung
                continue
            outcome = self._run(request.infer, request.first_byte_ns, request.received_ns)
            self._hand_back(request.requester.finish, request.infer, outcome)
            if not self._waiting:  # who waits goes first
                self._settle()


def pick_kind(asked: Literal["auto", "inline", "thread"], compute_ns: int) -> Literal["inline", "thread"]:
    """Where a model runs: as asked, or by what a replay of its largest bucket takes, in ns."""
    if asked != "auto":
        return asked
    return "inline" if compute_ns <= INLINE_COMPUTE_NS_MAX else "thread"
