"""What the server's polled executor makes of a device, whatever the order in which that gets on. Run by graph_cases."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic_ns

import numpy as np
from tests.cuda_checks import Expected, random_inputs
from tests.sim.cuda.model import never, refuse_capture
from tests.sim.cuda.on_device import engine_of, expected_of
from tests.sim.cuda.simulator import Simulator

from tickpath.engines import DeviceLostError
from tickpath.graphs import DeviceOptions
from tickpath.graphs.cuda import CudaEngine
from tickpath.server.admission import Refusal
from tickpath.server.config import ModelConfig
from tickpath.server.device_lane import DeviceLane
from tickpath.server.executor import Outcome
from tickpath.server.lane import Answer
from tickpath.server.polled_executor import PolledExecutor
from tickpath.wire import Code, Infer, Result, decode_server_message

BUCKETS = (1, 2, 4)
REQUESTS = 30
LAUNCH_FAILED = 719
INVALID_VALUE = 1
BUDGET_NS = 10**12
"""Never over."""
TURNS_MAX = 100_000
"""Of the loop, until all is answered: an eager device needs some tens."""


@dataclass(eq=False)
class Asker:
    """Who asks, and what came of it. `wanted`: the bytes of the outputs, by request."""

    executor: PolledExecutor
    random: np.random.Generator
    wanted: dict[int, list[bytes]] = field(default_factory=dict)
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    taken_back: set[int] = field(default_factory=set)

    def ask(self, request_id: int, engine: CudaEngine, expected: Expected, **options: int) -> None:
        """The caller's bytes are his again as this returns."""
        arrays = random_inputs(engine.spec, int(self.random.integers(1, BUCKETS[-1] + 1)), self.random)
        self.wanted[request_id] = expected(arrays)
        data = [bytearray(array.tobytes()) for array in arrays]
        infer = Infer(request_id, 0, len(arrays[0]), [memoryview(each) for each in data], **options)
        now_ns = monotonic_ns()
        refusal = self.executor.submit(self, infer, now_ns, now_ns)
        for each in data:
            each[:] = bytes(len(each))
        assert refusal is None

    def take_back(self, request_id: int) -> None:
        if self.executor.take_back(self, request_id):
            self.taken_back.add(request_id)

    def finish(self, infer: Infer, outcome: Outcome, queued: int = 0) -> None:
        assert infer.id not in self.outcomes
        assert infer.id not in self.taken_back
        self.outcomes[infer.id] = outcome

    def check(self) -> list[Refusal]:
        """Each was finished once, or taken back; what was answered was answered right. Returns what was refused."""
        assert set(self.outcomes) | self.taken_back == set(self.wanted)
        for request_id, outcome in self.outcomes.items():
            if isinstance(outcome, Answer):
                result = decode_server_message(memoryview(outcome.frame)[4:])
                assert isinstance(result, Result)
                assert result.id == request_id
                assert [bytes(output) for output in result.outputs] == self.wanted[request_id]
                assert list(outcome.stamps) == sorted(outcome.stamps)
        return [outcome for outcome in self.outcomes.values() if isinstance(outcome, Refusal)]


def polled(simulator: Simulator, seed: int, before: Callable[[int], object]) -> tuple[Asker, list[DeviceLostError]]:
    """Ask a polled executor of one to three slots, until all is answered; `before` is called with the number of each
    request. Returns who asked, and what the lane told of its device."""
    random = np.random.default_rng(seed)
    config = ModelConfig("m.plan", device_wait="poll", device_slots=1 + seed % 3)
    options = DeviceOptions("poll", ("copied", "mapped")[seed % 2])
    expected = expected_of(simulator)
    lost: list[DeviceLostError] = []

    async def talk(engine: CudaEngine) -> Asker:
        lane = DeviceLane(engine, config, BUCKETS)
        lane.warm([[array.tobytes() for array in engine.sample(rows)] for rows in BUCKETS])
        lane.device_lost = lost.append
        executor = PolledExecutor(lane, asyncio.get_running_loop(), "model", 4 * REQUESTS)
        asker = Asker(executor, random)
        for number in range(1, REQUESTS + 1):
            before(number)
            asker.ask(number, engine, expected, budget_ns=BUDGET_NS * (number % 2))
            if random.integers(2):
                await asyncio.sleep(0)
            if not random.integers(6):
                asker.take_back(number)
        for _ in range(TURNS_MAX):
            if executor.idle():
                break
            await asyncio.sleep(0)
        executor.close()
        executor.join()
        lane.close()
        return asker

    with engine_of(simulator, options, (never, refuse_capture)[seed // 3 % 2]) as engine:
        return asyncio.run(talk(engine)), lost


def polled_answers(simulator: Simulator, seed: int) -> None:
    """Several in flight, some taken back: each is answered once, with its own."""
    asker, lost = polled(simulator, seed, lambda _: None)
    assert asker.check() == []
    assert lost == []


def a_launch_fails_under_a_polled_lane(simulator: Simulator, seed: int) -> None:
    """One request has no answer; those before and behind it have theirs."""
    failing = 1 + seed % REQUESTS

    def before(number: int) -> None:
        if number == failing:
            simulator.inject("cuEventRecord", 1, INVALID_VALUE)

    asker, lost = polled(simulator, seed, before)
    refused = asker.check()
    assert [refusal.code for refusal in refused] in ([Code.ENGINE_FAILED], [])  # it may have been taken back
    assert len(refused) == 1 or asker.taken_back
    assert lost == []


def a_polled_lane_tells_of_the_loss(simulator: Simulator, seed: int) -> None:
    """From some moment on all are refused NOT_READY; what was answered before was right."""
    lost_at = 1 + seed % REQUESTS

    def before(number: int) -> None:
        if number == lost_at:
            simulator.inject("work", 1, LAUNCH_FAILED)

    asker, lost = polled(simulator, seed, before)
    refused = asker.check()
    assert {refusal.code for refusal in refused} <= {Code.NOT_READY}
    assert len(refused) == len(lost)
    assert refused or asker.taken_back
