"""The server's polled executor on a CUDA device, be it a GPU or the simulated driver: whoever asks it, and checks."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic_ns

import numpy as np
from tests.cuda_checks import Expected, random_inputs

from tickpath.engines import DeviceLostError
from tickpath.graphs.cuda import CudaEngine
from tickpath.server.admission import Refusal
from tickpath.server.config import ModelConfig
from tickpath.server.device_lane import DeviceLane
from tickpath.server.executor import Outcome
from tickpath.server.lane import Answer
from tickpath.server.polled_executor import PolledExecutor
from tickpath.wire import Infer, Result, decode_server_message

BUCKETS = (1, 2, 4)
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


def ask_polled(
    engine: CudaEngine,
    expected: Expected,
    random: np.random.Generator,
    slots: int,
    requests: int,
    before: Callable[[int], object] = lambda _: None,
) -> tuple[Asker, list[DeviceLostError]]:
    """Ask an executor of so many slots, and take some requests back, until all is answered; `before` is called with the
    number of each. Returns who asked, and what the lane told of its device."""
    config = ModelConfig("m.plan", device_wait="poll", device_slots=slots)
    lost: list[DeviceLostError] = []

    async def talk() -> Asker:
        lane = DeviceLane(engine, config, BUCKETS)
        lane.warm([[array.tobytes() for array in engine.sample(rows)] for rows in BUCKETS])
        lane.device_lost = lost.append
        executor = PolledExecutor(lane, asyncio.get_running_loop(), "model", 4 * requests)
        asker = Asker(executor, random)
        for number in range(1, requests + 1):
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

    return asyncio.run(talk()), lost
