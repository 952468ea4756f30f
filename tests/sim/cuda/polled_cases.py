"""What the server's polled executor makes of a device, whatever the order in which that gets on. Run by graph_cases."""

from collections.abc import Callable

import numpy as np
from tests.polled import BUCKETS, Asker, ask_polled
from tests.sim.cuda.model import never, refuse_capture
from tests.sim.cuda.on_device import OPTIONS, engine_of, expected_of, living, raised
from tests.sim.cuda.simulator import Simulator

from tickpath.engines import DeviceLostError, EngineFailedError
from tickpath.graphs import DeviceOptions
from tickpath.server.config import ModelConfig
from tickpath.server.device_lane import DeviceLane
from tickpath.wire import Code

REQUESTS = 30
LAUNCH_FAILED = 719
INVALID_VALUE = 1
OUT_OF_MEMORY = 2


def polled(simulator: Simulator, seed: int, before: Callable[[int], object]) -> tuple[Asker, list[DeviceLostError]]:
    """As `ask_polled`, in all the ways there are."""
    options = DeviceOptions("poll", ("copied", "mapped")[seed % 2])
    with engine_of(simulator, options, (never, refuse_capture)[seed // 3 % 2]) as engine:
        random = np.random.default_rng(seed)
        return ask_polled(engine, expected_of(simulator), random, 1 + seed % 3, REQUESTS, before)


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


def a_lane_gives_back_what_it_has(simulator: Simulator, seed: int) -> None:
    """Before its engine does: a lane that is closed, and one of which not all slots can be had."""
    config = ModelConfig("m.plan", device_wait="poll", device_slots=2)
    with engine_of(simulator, OPTIONS[seed % len(OPTIONS)]) as engine:
        before = living(simulator)
        DeviceLane(engine, config, BUCKETS).close()
        assert living(simulator) == before
        simulator.inject("cuMemHostRegister", 1 + seed % (2 * len(BUCKETS)), OUT_OF_MEMORY)
        raised(EngineFailedError, lambda: DeviceLane(engine, config, BUCKETS))
        assert living(simulator) == before
