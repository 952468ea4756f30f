"""What the CUDA layer does when the driver, the runtime or the caller fails it. Run by graph_cases."""

from collections.abc import Sequence
from contextlib import suppress
from traceback import walk_tb
from typing import Final

import numpy as np
from cuda.bindings import driver
from tests.cuda_checks import bind, random_inputs
from tests.sim.cuda.calls import DriverError
from tests.sim.cuda.model import (
    COLUMNS,
    Model,
    ModelContext,
)
from tests.sim.cuda.on_device import OPTIONS, assert_clean, engine_of, expected_of, on_a_thread, raised
from tests.sim.cuda.simulator import Simulator

from tickpath.engines import Array, DeviceLostError, EngineFailedError
from tickpath.graphs import DeviceOptions
from tickpath.graphs.cuda import CudaEngine, CudaError
from tickpath.server.admission import Refusal
from tickpath.server.config import ModelConfig
from tickpath.server.lane import Answer, Lane
from tickpath.wire import Code, Infer, Result, decode_server_message

# Two go by other names in the driver: what the bindings call cuGraphInstantiate, and the stand-in's kernel.
FUNCTIONS: Final = [
    *(name for name in dir(driver) if name.startswith("cu")),
    *("cuGraphInstantiateWithFlags", "ticksim_launch"),
]
INVALID_VALUE: Final = 1
OUT_OF_MEMORY: Final = 2
NOT_SUPPORTED: Final = 801
ILLEGAL_ADDRESS: Final = 700
LAUNCH_FAILED: Final = 719
ECC: Final = 214
# A failed call of one of these has given nothing back, which is not ours to mend.
RELEASES: Final = ("Destroy", "Free", "Unregister", "Release")


def load_answer_unload(engine: Model, options: DeviceOptions) -> None:
    """The whole life of an engine on the device; it is closed whatever happens, and what it answers is right."""
    loaded = CudaEngine(engine, options)
    try:
        for rows in (2, 1):
            arrays: list[Array] = [np.full((rows, COLUMNS), 2, np.float32)]
            assert bind(loaded, rows)(arrays) == engine.expected(arrays)
    finally:
        loaded.close()


def every_call_fails_once(simulator: Simulator, seed: int) -> None:
    """Each call of the driver in turn fails, from the first of a load to the last of an unload: it is told, or the
    layer does without; what lives afterwards is at most the one thing that could not be given back."""
    options = OPTIONS[seed % len(OPTIONS)]
    code = (OUT_OF_MEMORY, INVALID_VALUE, NOT_SUPPORTED)[seed // len(OPTIONS) % 3]
    for name, count in calls_of_a_life(simulator, seed, options).items():
        for nth in range(1, count + 1):
            simulator.reset(seed)
            engine = Model(simulator)
            simulator.inject(name, nth, code)
            with suppress(EngineFailedError, DriverError):
                load_answer_unload(engine, options)
            assert_clean(simulator, leaks_max=1 if name.endswith(RELEASES) else 0, what=f"{name}, {nth} of {count}")


def calls_of_a_life(simulator: Simulator, seed: int, options: DeviceOptions) -> dict[str, int]:
    """How often each function is called between the load and the unload of an engine."""
    simulator.reset(seed)
    engine = Model(simulator)
    before = {name: simulator.calls(name) for name in (*FUNCTIONS, "*")}
    load_answer_unload(engine, options)
    counts = {name: simulator.calls(name) - before[name] for name in FUNCTIONS}
    assert sum(counts.values()) == simulator.calls("*") - before["*"], "a function that is not in FUNCTIONS was called"
    assert_clean(simulator)
    return {name: count for name, count in counts.items() if count}


def a_lost_device_stays_lost(simulator: Simulator, seed: int) -> None:
    """After one sticky failure every use raises the same exception, and the driver is not asked any more; closing is
    silent and complete."""
    options = OPTIONS[seed % len(OPTIONS)]
    with engine_of(simulator, options) as engine:
        slots = [bind(engine, rows) for rows in (4, 2)]
        arrays = [random_inputs(engine.spec, slot.rows, np.random.default_rng(seed)) for slot in slots]
        simulator.inject("work", 1 + seed // 4 % 3, (ILLEGAL_ADDRESS, LAUNCH_FAILED, ECC)[seed % 3])
        first = raised(DeviceLostError, lambda: [slots[0](arrays[0]) for _ in range(3)])
        calls = simulator.calls("*")
        assert raised(DeviceLostError, lambda: slots[0](arrays[0])) is first
        assert raised(DeviceLostError, lambda: slots[1](arrays[1])) is first
        assert raised(DeviceLostError, slots[1].graph.launch) is first
        assert raised(DeviceLostError, lambda: bind(engine, 1)) is first
        assert simulator.calls("*") == calls
        depth = len(list(walk_tb(first.__traceback__)))
        for _ in range(5):
            raised(DeviceLostError, slots[1].graph.launch)
        assert len(list(walk_tb(first.__traceback__))) <= depth, "it grows with every request"
        assert engine.device.lost


def what_is_not_sticky_passes(simulator: Simulator, seed: int) -> None:
    """A launch that fails costs that request its answer, and the next one has its own."""
    with engine_of(simulator, OPTIONS[seed % len(OPTIONS)]) as engine:
        slot, random = bind(engine, 3), np.random.default_rng(seed)
        expected = expected_of(simulator)
        wait = "cuEventSynchronize" if seed % 2 else "cuEventQuery"
        for name in ("cuGraphLaunch", "cuEventRecord", wait):
            simulator.inject(name, 1, INVALID_VALUE)
            error = raised(CudaError, lambda: slot(random_inputs(engine.spec, 3, random)))
            assert simulator.stats()["work_unobserved"] == 0, "the buffers are the slot's again"
            assert (error.name, error.code, error.call) == ("CUDA_ERROR_INVALID_VALUE", INVALID_VALUE, name)
            arrays = random_inputs(engine.spec, 3, random)
            assert slot(arrays) == expected(arrays)


def what_cannot_be_settled_is_lost(simulator: Simulator, _seed: int) -> None:
    """Where neither the event nor the stream says what has become of a launch, its buffers can't be used again."""
    with engine_of(simulator) as engine:
        slot = bind(engine, 1)
        simulator.inject("cuEventQuery", 1, INVALID_VALUE)
        simulator.inject("cuStreamSynchronize", 1, INVALID_VALUE)
        raised(DeviceLostError, lambda: slot(random_inputs(engine.spec, 1, np.random.default_rng(0))))
        assert engine.device.lost


def enqueue_refused_while_serving(simulator: Simulator, _seed: int) -> None:
    """Without a graph the model is enqueued at each request, and a refusal is that request's failure."""
    refusing = False

    def fault(_context: ModelContext, capturing: bool) -> bool:
        return not (capturing or refusing)

    with engine_of(simulator, fault=fault) as engine:
        slot, random, expected = bind(engine, 2), np.random.default_rng(1), expected_of(simulator)
        refusing = True
        error = raised(EngineFailedError, lambda: slot(random_inputs(engine.spec, 2, random)))
        assert "refused to enqueue" in str(error)
        refusing = False
        arrays = random_inputs(engine.spec, 2, random)
        assert slot(arrays) == expected(arrays)


def closing_in_any_state(simulator: Simulator, seed: int) -> None:
    """With launches in flight, after failures, twice, from another thread: all is given back, and what is closed says
    so."""
    random = np.random.default_rng(seed)
    with engine_of(simulator, OPTIONS[seed % len(OPTIONS)]) as engine:
        slots = [bind(engine, int(rows)) for rows in random.integers(1, 5, 3)]
        for slot in slots[: seed % 4]:
            slot.launch(random_inputs(engine.spec, slot.rows, random))
        if seed % 5 == 0:
            simulator.inject("cuMemAlloc", 1, OUT_OF_MEMORY)
            raised(EngineFailedError, lambda: bind(engine, 8))
        if seed % 3 == 0:
            on_a_thread(engine.close)
        engine.close()
        raised(EngineFailedError, slots[0].graph.launch)
        raised(ValueError, lambda: bind(engine, 1))
        assert slots[0].graph.done()


def a_lane_serves_and_tells_of_the_loss(simulator: Simulator, seed: int) -> None:
    """The server's own way through slots: right answers, padding and all, and then NOT_READY."""
    expected, random = expected_of(simulator), np.random.default_rng(seed)
    lost: list[DeviceLostError] = []
    with engine_of(simulator, OPTIONS[seed % len(OPTIONS)]) as engine:
        lane = Lane(engine, ModelConfig("m.plan"), (1, 2, 4))
        lane.device_lost = lost.append
        lane.warm([[array.tobytes() for array in engine.sample(rows)] for rows in (1, 2, 4)])
        for _ in range(20):
            rows = int(random.integers(1, 5))
            arrays = random_inputs(engine.spec, rows, random)
            answer = ask(lane, rows, arrays)
            assert isinstance(answer, Answer)
            result = decode_server_message(memoryview(answer.frame)[4:])
            assert isinstance(result, Result)
            assert [bytes(output) for output in result.outputs] == expected(arrays)
        simulator.inject("work", 1, LAUNCH_FAILED)
        for _ in range(2):
            refusal = ask(lane, 1, random_inputs(engine.spec, 1, random))
            assert isinstance(refusal, Refusal)
            assert refusal.code is Code.NOT_READY
    assert len(lost) == 2
    assert lost[0] is lost[1]


def ask(lane: Lane, rows: int, arrays: Sequence[Array]) -> Answer | Refusal:
    data = [memoryview(array.tobytes()) for array in arrays]
    return lane.run(Infer(1, 0, rows, list(data)), 0, 0)
