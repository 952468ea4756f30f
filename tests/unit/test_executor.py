"""Executors: every request that was submitted is finished once, in order, or taken back; never both, never neither."""

import asyncio
import random
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from time import monotonic_ns
from typing import Literal

import numpy as np
import pytest
import uvloop
from tests.numpy_engine import NumpyEngine, copy_through, tensor

from tickpath.engines import Array
from tickpath.server.admission import Refusal
from tickpath.server.config import ModelConfig
from tickpath.server.dispatch import Batching
from tickpath.server.executor import (
    INLINE_COMPUTE_NS_MAX,
    Executor,
    InlineExecutor,
    Outcome,
    ThreadExecutor,
    pick_kind,
)
from tickpath.server.lane import Answer, Lane
from tickpath.wire import Code, Infer, Result, decode_server_message

SPECS = [tensor("x", (1,))]


class Waiter:
    """Who asks: notes what it was told, and on which thread."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[int, Outcome]] = []
        self.threads: set[int] = set()

    @property
    def ids(self) -> list[int]:
        return [request_id for request_id, _ in self.outcomes]

    def finish(self, infer: Infer, outcome: Outcome, queued: int = 0) -> None:
        self.outcomes.append((infer.id, outcome))
        self.threads.add(threading.get_ident())


def lane_of(compute: Callable[[Sequence[Array], Sequence[Array]], None] = copy_through) -> Lane:
    return Lane(NumpyEngine(SPECS, SPECS, compute), ModelConfig("m.onnx"), (1,))


def submit(executor: Executor, waiter: Waiter, request_id: int, value: float = 0.0) -> bytearray:
    """The bytes of the request, which are the caller's again as this returns."""
    data = bytearray(np.float32(value).tobytes())
    infer = Infer(request_id, 0, 1, [memoryview(data)])
    if (outcome := executor.submit(waiter, infer, 0, 0)) is not None:
        waiter.finish(infer, outcome)
    return data


def value_of(outcome: Outcome) -> float:
    assert isinstance(outcome, Answer)
    result = decode_server_message(memoryview(outcome.frame)[4:])
    assert isinstance(result, Result)
    return float(np.frombuffer(result.outputs[0], np.float32)[0])


def refusal_of(waiter: Waiter, request_id: int) -> Refusal:
    refusal = dict(waiter.outcomes)[request_id]
    assert isinstance(refusal, Refusal)
    return refusal


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until it is so; a test that never gets there is ended by its timeout."""
    while not condition():
        await asyncio.sleep(0.0002)


@asynccontextmanager
async def threaded(lane: Lane, queue_max: int = 1000) -> AsyncIterator[ThreadExecutor]:
    executor = ThreadExecutor(lane, asyncio.get_running_loop(), "test", queue_max)
    try:
        yield executor
    finally:
        executor.close()
        executor.join()


class Gate:
    """A model that does not go on until it is let."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Semaphore(0)
        self.values: list[float] = []

    def compute(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        self.entered.release()
        assert self.open.acquire(timeout=60)
        self.values.append(float(inputs[0].astype(np.float64)[0]))
        copy_through(inputs, outputs)


class Opener(Waiter):
    """Opens a gate as soon as two of its requests have ended: who waits for the thread first waits for ever."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate

    def finish(self, infer: Infer, outcome: Outcome, queued: int = 0) -> None:
        super().finish(infer, outcome, queued)
        if len(self.outcomes) == 2:
            self._gate.open.release()


@contextmanager
def nimble_threads() -> Iterator[None]:
    """Threads that change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_inline_answers_within_submit() -> None:
    waiter = Waiter()
    executor = InlineExecutor(lane_of())
    for request_id in (3, 1, 2):
        submit(executor, waiter, request_id, request_id)
        assert value_of(waiter.outcomes[-1][1]) == request_id
    assert waiter.ids == [3, 1, 2]
    assert not executor.take_back(waiter, 1)
    assert executor.waiting_count() == 0
    executor.close()


def test_a_thread_answers_in_order_on_the_loops_thread() -> None:
    async def main() -> None:
        waiter = Waiter()
        async with threaded(lane_of()) as executor:
            for request_id in range(1, 201):
                data = submit(executor, waiter, request_id, request_id)
                data[:] = b"\xff" * 4  # the receive buffer moves on
            await until(lambda: len(waiter.outcomes) == 200)
        assert waiter.ids == list(range(1, 201))
        assert [value_of(outcome) for _, outcome in waiter.outcomes] == waiter.ids
        assert waiter.threads == {threading.get_ident()}

    uvloop.run(main())


def test_the_queue_is_bounded_by_what_waits_not_by_what_runs() -> None:
    async def main() -> None:
        gate, waiter, other = Gate(), Waiter(), Waiter()
        async with threaded(lane_of(gate.compute), queue_max=4) as executor:
            submit(executor, waiter, 1)
            await asyncio.to_thread(gate.entered.acquire)
            for request_id in (2, 3, 4):  # one of them lies ready
                submit(executor, waiter, request_id)
            assert executor.waiting_count() == 3
            submit(executor, waiter, 5)
            assert refusal_of(waiter, 5).code is Code.OVERLOADED, "the rest is for others"
            submit(executor, other, 1)
            submit(executor, other, 2)
            assert "is full" in refusal_of(other, 2).message
            assert executor.waiting_count() == 4
            gate.open.release(5)
            await until(lambda: len(waiter.outcomes) + len(other.outcomes) == 7)
            assert executor.waiting_count() == 0
            assert executor.idle()

    uvloop.run(main())


def test_take_back_knows_what_runs_and_whose_it_is() -> None:
    async def main() -> None:
        gate, waiter, other = Gate(), Waiter(), Waiter()
        async with threaded(lane_of(gate.compute)) as executor:
            submit(executor, waiter, 1, 1)
            await asyncio.to_thread(gate.entered.acquire)
            submit(executor, waiter, 2, 2)
            submit(executor, other, 2, 22)
            submit(executor, waiter, 3, 3)
            assert not executor.take_back(waiter, 1), "it runs"
            assert executor.take_back(waiter, 2)
            assert not executor.take_back(waiter, 2), "it is gone"
            assert not executor.take_back(waiter, 9), "it never was"
            assert not executor.take_back(other, 3), "it is another's"
            gate.open.release(3)
            await until(lambda: len(waiter.outcomes) + len(other.outcomes) == 3)
        assert (waiter.ids, other.ids) == ([1, 3], [2])
        assert gate.values == [1, 3, 22], "it was this session's turn, whichever of its requests is left"

    uvloop.run(main())


@pytest.mark.parametrize("seed", range(50))
def test_taken_back_or_finished_and_never_both(seed: int) -> None:
    """The thread pops while the loop takes back; every request has one end."""
    chance = random.Random(seed)

    async def main() -> None:
        waiter = Waiter()
        taken: list[int] = []
        async with threaded(lane_of()) as executor:
            for request_id in range(1, 101):
                submit(executor, waiter, request_id)
                for _ in range(chance.randrange(3)):
                    victim = chance.randrange(max(1, request_id - 3), request_id + 1)
                    if executor.take_back(waiter, victim):
                        taken.append(victim)
                if chance.random() < 0.1:
                    await asyncio.sleep(0)
            await until(lambda: len(waiter.outcomes) + len(taken) >= 100)
            await until(executor.idle)
        await asyncio.sleep(0)  # whatever the thread has handed back besides
        assert sorted([*waiter.ids, *taken]) == list(range(1, 101)), f"seed {seed}"
        assert waiter.ids == sorted(waiter.ids), f"seed {seed}"

    with nimble_threads():
        asyncio.run(main())


def test_close_refuses_what_waits_and_awaits_what_runs() -> None:
    async def main() -> None:
        gate = Gate()
        waiter = Opener(gate)
        executor = ThreadExecutor(lane_of(gate.compute), asyncio.get_running_loop(), "test", 1000)
        for request_id in (1, 2, 3):
            submit(executor, waiter, request_id, request_id)
        await asyncio.to_thread(gate.entered.acquire)
        executor.close()
        await until(lambda: len(waiter.outcomes) == 3)
        assert waiter.ids == [2, 3, 1]
        assert [type(outcome) for _, outcome in waiter.outcomes] == [Refusal, Refusal, Answer]
        assert all(outcome.code is Code.NOT_READY for _, outcome in waiter.outcomes[:2] if isinstance(outcome, Refusal))
        assert gate.values == [1]
        executor.close()  # twice does no harm
        executor.join()
        assert not [thread for thread in threading.enumerate() if thread.name == "tickpath-test"]

    uvloop.run(main())


def test_a_failing_request_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    def compute(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        if inputs[0].astype(np.float64)[0] == 13:
            raise RuntimeError("unforeseen")
        copy_through(inputs, outputs)

    async def main() -> None:
        waiter = Waiter()
        async with threaded(lane_of(compute)) as executor:
            for value in (1, 13, 2):
                submit(executor, waiter, value, value)
            await until(lambda: len(waiter.outcomes) == 3)
        first, failed, last = (outcome for _, outcome in waiter.outcomes)
        assert isinstance(failed, Refusal)
        assert failed.code is Code.INTERNAL
        assert (value_of(first), value_of(last)) == (1, 2)

    uvloop.run(main())
    assert "unforeseen" in caplog.text


@pytest.mark.parametrize(
    ("asked", "compute_ns", "kind"),
    [
        ("auto", INLINE_COMPUTE_NS_MAX, "inline"),
        ("auto", INLINE_COMPUTE_NS_MAX + 1, "thread"),
        ("inline", 10**9, "inline"),
        ("thread", 1, "thread"),
    ],
)
def test_where_a_model_runs(asked: Literal["auto", "inline", "thread"], compute_ns: int, kind: str) -> None:
    assert pick_kind(asked, compute_ns) == kind


class SteppingLane(Lane):
    """One whose requests are all ticks, each of which leaves something to be done."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(NumpyEngine(SPECS, SPECS, copy_through), ModelConfig("m.onnx"), (1,))
        self.gate = gate
        self.left = 0
        self.threads: list[int] = []

    def run(self, infer: Infer, first_byte_ns: int, received_ns: int) -> Answer | Refusal:
        self.threads.append(threading.get_ident())
        self.left += 1
        return super().run(infer, first_byte_ns, received_ns)

    @property
    def unsettled(self) -> bool:
        return bool(self.left)

    def at_rest(self, infer: Infer) -> bool:
        return not self.left

    def settle(self) -> None:
        if self.left:
            self.gate.entered.release()
            assert self.gate.open.acquire(timeout=60)
            self.left -= 1


def tick(request_id: int) -> Infer:
    return Infer(request_id, 0, 1, [memoryview(np.float32(request_id).tobytes())])


def test_a_tick_runs_on_the_loop_unless_its_lane_has_something_to_do() -> None:
    async def main() -> None:
        loop, gate, waiter = asyncio.get_running_loop(), Gate(), Waiter()
        lane = SteppingLane(gate)
        executor = ThreadExecutor(lane, loop, "test", 10, ticks_at_once=True)
        outcome = executor.answer_tick(tick(1), 0, 0)
        assert outcome is not None
        assert value_of(outcome) == 1
        assert executor.answer_tick(tick(2), 0, 0) is None, "something is to be done first"
        executor.settle()
        assert gate.entered.acquire(timeout=60)
        assert executor.answer_tick(tick(2), 0, 0) is None, "the thread has the lane"
        executor.submit(waiter, tick(2), 0, 0)
        gate.open.release()
        await until(lambda: waiter.ids == [2])
        gate.open.release()
        await until(lambda: executor.answer_tick(tick(3), 0, 0) is not None)
        here = threading.get_ident()
        assert [thread == here for thread in lane.threads] == [True, False, True]
        gate.open.release()
        executor.close()
        executor.join()

    uvloop.run(main())


def test_a_tick_that_comes_while_others_step_waits_and_its_stamps_say_so() -> None:
    async def main() -> None:
        loop, gate, waiter = asyncio.get_running_loop(), Gate(), Waiter()
        executor = ThreadExecutor(SteppingLane(gate), loop, "test", 10)
        executor.submit(waiter, tick(1), 0, monotonic_ns())
        await until(lambda: waiter.ids == [1])
        assert gate.entered.acquire(timeout=60), "it has been answered, and what it put off is stepped"
        executor.submit(waiter, tick(2), 0, came_ns := monotonic_ns())
        free_ns = monotonic_ns()
        gate.open.release()
        await until(lambda: waiter.ids == [1, 2])
        answer = waiter.outcomes[1][1]
        assert isinstance(answer, Answer)
        _, received_ns, started_ns, *_ = answer.stamps
        assert received_ns == came_ns < free_ns <= started_ns
        gate.open.release()
        executor.close()
        executor.join()

    uvloop.run(main())


def test_a_tick_waits_for_the_thread_where_that_is_asked_for() -> None:
    async def main() -> None:
        async with threaded(SteppingLane(Gate())) as executor:
            assert executor.answer_tick(tick(1), 0, 0) is None

    uvloop.run(main())


def test_a_turn_that_others_could_not_join_is_answered_and_so_are_they() -> None:
    """Nothing else comes: who waits for the next ring waits for ever."""

    async def main() -> None:
        loop, waiter = asyncio.get_running_loop(), Waiter()
        lane = Lane(NumpyEngine(SPECS, SPECS, copy_through), ModelConfig("m.onnx"), (1, 8))
        executor = ThreadExecutor(lane, loop, "test", 100, batching=Batching(8, 20_000_000))
        for request_id in range(1, 6):
            data = np.full(5, request_id, np.float32).tobytes()
            assert executor.submit(waiter, Infer(request_id, 0, 5, [memoryview(data)]), 0, monotonic_ns()) is None
        await until(lambda: len(waiter.ids) == 5)
        assert waiter.ids == [1, 2, 3, 4, 5]
        executor.close()
        executor.join()

    uvloop.run(main())
