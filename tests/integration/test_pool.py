"""Pools against real servers that are killed, stopped and held up under load: nothing is lost, nothing comes twice.

Each request has a row of its own, and its answer is compared with what that row must give: an answer that was lost,
given to another request or given twice would be seen.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvloop
from tests.onnx_models import one_node, save
from tests.processes import free_port
from tests.serving import RunningServer, serve

from tickpath.client import (
    AsyncPool,
    BadShapeError,
    Client,
    ConnectError,
    DeadlineError,
    Health,
    Hedge,
    Pool,
    Prediction,
    UnknownModelError,
)

QUICK = Health(ping_after_s=0.2, pong_s_max=0.4)
TASKS = 8


class Group:
    """Servers of the same model on Unix sockets that stay theirs, each of which may end and be started again."""

    def __init__(self, folder: Path, count: int, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self.addresses = [f"unix:{folder / str(place) / 's'}" for place in range(count)]
        self.running: list[RunningServer] = [self._start(place) for place in range(count)]

    def _start(self, place: int) -> RunningServer:
        folder = self._folder / f"{place}"
        folder.mkdir(exist_ok=True)
        model = save(one_node("Abs", "float32", ["N", 4]), folder, "abs.onnx")
        served = serve(folder, [{"path": str(model)}], exit_code=None, drain_s=2)
        return self._stack.enter_context(served)

    def kill(self, place: int) -> None:
        self.running[place].process.kill()
        self.running[place].process.wait(30)

    def stop(self, place: int) -> None:
        assert self.running[place].stop() == 0

    def hold_up(self, place: int) -> None:
        self.running[place].process.send_signal(signal.SIGSTOP)

    def let_go(self, place: int) -> None:
        self.running[place].process.send_signal(signal.SIGCONT)

    def start_again(self, place: int) -> None:
        self.running[place] = self._start(place)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with ExitStack() as stack:
        made = Group(tmp_path, 2, stack)
        yield made
        for running in made.running:
            running.process.send_signal(signal.SIGCONT)


class Answers:
    """Counts right answers; the first wrong one, and the first error, is kept and raised."""

    def __init__(self) -> None:
        self.count = 0
        self.error: BaseException | None = None
        self.ended = False
        self._changed = threading.Condition()

    def row(self, number: int) -> np.ndarray[Any, Any]:
        return np.full((1, 4), -number, np.float32)

    def take(self, number: int, prediction: Prediction) -> None:
        np.testing.assert_array_equal(prediction["y"], -self.row(number))
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self.error = error
            self._changed.notify_all()

    def until(self, more: int) -> None:
        with self._changed:
            goal = self.count + more
            assert self._changed.wait_for(lambda: self.count >= goal or self.error is not None, 60), "no answers come"
        if self.error is not None:
            raise self.error


@contextmanager
def blocking_load(addresses: list[str], **options: Any) -> Iterator[tuple[Answers, Pool]]:
    answers = Answers()
    with Pool(addresses, timeout_s=20, health=QUICK, **options) as pool:

        def ask() -> None:
            number = 0
            try:
                while not answers.ended:
                    number += 1
                    answers.take(number, pool.infer("abs", answers.row(number)))
                    if number % 50 == 0:
                        many = list(range(number, number + 20))
                        for each, outcome in zip(many, pool.infer_many("abs", map(answers.row, many)), strict=True):
                            assert isinstance(outcome, Prediction), outcome
                            answers.take(each, outcome)
            except BaseException as error:
                answers.fail(error)

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            yield answers, pool
        finally:
            answers.ended = True
            thread.join()
        answers.until(0)


@contextmanager
def async_load(
    new_loop: Callable[[], asyncio.AbstractEventLoop], addresses: list[str], **options: Any
) -> Iterator[tuple[Answers, AsyncPool]]:
    answers = Answers()
    pools: list[AsyncPool] = []
    there = threading.Event()

    async def work() -> None:
        async with AsyncPool(addresses, timeout_s=20, health=QUICK, **options) as pool:
            pools.append(pool)
            there.set()
            await asyncio.gather(*[ask(pool, first) for first in range(1, TASKS + 1)])

    async def ask(pool: AsyncPool, number: int) -> None:
        while not answers.ended:
            answers.take(number, await pool.infer("abs", answers.row(number)))
            number += TASKS

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                runner.run(work())
        except BaseException as error:
            answers.fail(error)
        there.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert there.wait(60)
        answers.until(1)
        yield answers, pools[0]
    finally:
        answers.ended = True
        thread.join()
    answers.until(0)


LOADS: dict[str, Callable[..., Any]] = {
    "blocking": blocking_load,
    "asyncio": partial(async_load, asyncio.SelectorEventLoop),
    "uvloop": partial(async_load, uvloop.new_event_loop),
}
HEDGE = Hedge(percentile=90, share_max=0.2)


def until_ready(answers: Answers, pool: Pool | AsyncPool, expected: list[bool]) -> None:
    """Under load, until the pool takes these servers for ready."""
    for _ in range(1000):
        if [server.ready for server in pool.servers] == expected:
            return
        answers.until(20)
    raise AssertionError(f"expected {expected}, got {pool.servers}")


@pytest.mark.timeout(300)  # servers start four times in it
@pytest.mark.parametrize(
    ("kind", "hedge"), [("blocking", None), ("blocking", HEDGE), ("asyncio", HEDGE), ("uvloop", None)]
)
def test_servers_that_end_under_load_lose_nothing(group: Group, kind: str, hedge: Hedge | None) -> None:
    """Each in turn is killed, stops, or is held up, and comes back: it is asked again from then on."""
    with LOADS[kind](group.addresses, hedge=hedge) as (answers, pool):
        answers.until(200)
        for place, end in [(0, group.kill), (1, group.stop)]:
            end(place)
            until_ready(answers, pool, [place != 0, place != 1])
            answers.until(200)
            group.start_again(place)
            until_ready(answers, pool, [True, True])
        group.hold_up(0)
        until_ready(answers, pool, [False, True])
        answers.until(200)
        group.let_go(0)
        until_ready(answers, pool, [True, True])
        answers.until(200)
    assert [server.in_flight for server in pool.servers] in ([], [0, 0])


def test_a_held_up_server_costs_no_hedged_request_its_time(group: Group) -> None:
    """Before any ping could tell: the other server answers what the first one does not."""
    patient = Health(ping_after_s=1000, pong_s_max=1000)
    with Pool(group.addresses, hedge=Hedge(percentile=50, share_max=1), health=patient, timeout_s=60) as pool:
        for number in range(300):
            pool.infer("abs", np.full((1, 4), number, np.float32))
        group.hold_up(0)
        for number in range(20):
            assert pool.infer("abs", np.full((1, 4), number, np.float32))["y"][0, 0] == number
        group.let_go(0)


def test_refusals_are_the_callers(group: Group) -> None:
    with Pool(group.addresses) as pool:
        with pytest.raises(BadShapeError):
            pool.infer("abs", np.zeros((1, 5), np.float32))
        with pytest.raises(DeadlineError):
            pool.infer("abs", np.zeros((1, 4), np.float32), budget_ns=1)
        with pytest.raises(UnknownModelError, match="it serves: 'abs'"):
            pool.infer("sba", np.zeros((1, 4), np.float32))
        assert pool.model("abs").name == "abs"
        assert all(server.ready for server in pool.servers)


def test_servers_have_their_own_handles_and_models(tmp_path: Path) -> None:
    """The same name is another handle at the other server, and a model that only one has is found there."""
    with ExitStack() as stack:
        addresses = []
        for place, names in enumerate([["a", "b"], ["c", "b"]]):
            folder = tmp_path / f"{place}"
            folder.mkdir()
            files = [
                save(one_node("Abs" if name == "b" else "Neg", "float32", ["N", 4]), folder, f"{name}.onnx")
                for name in names
            ]
            order = files if place else files[::-1]
            addresses.append(stack.enter_context(serve(folder, [{"path": str(file)} for file in order])).address)
        with Client(addresses[0]) as one, Client(addresses[1]) as other:
            assert one.model("b").handle != other.model("b").handle
        x = np.arange(4, dtype=np.float32)[None]
        pool = stack.enter_context(Pool(addresses))
        for _ in range(40):
            np.testing.assert_array_equal(pool.infer("b", x)["y"], x)
            np.testing.assert_array_equal(pool.infer("a", x)["y"], -x)
            np.testing.assert_array_equal(pool.infer("c", x)["y"], -x)


def test_nobody_there() -> None:
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    with pytest.raises(ConnectError, match="of 2 servers none is there"):
        Pool(addresses).connect()
    with pytest.raises(ConnectError, match="of 2 servers none is there"):
        asyncio.run(AsyncPool(addresses).connect())
    with pytest.raises(ValueError, match="each once"):
        Pool([addresses[0], addresses[0]])
