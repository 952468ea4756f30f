"""What the CUDA layer must do whatever the driver does, case by case. They run where the simulated driver is loaded."""

import logging
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Final, TypeVar

import numpy as np
from cuda.bindings import driver
from tests import cuda_checks
from tests.cuda_checks import bind, random_inputs
from tests.sim.cuda.model import (
    COLUMNS,
    Fault,
    Model,
    ModelContext,
    allocate_in_capture,
    never,
    raise_in_capture,
    refuse_capture,
    synchronise_in_capture,
)
from tests.sim.cuda.simulator import STATS, Simulator
from tests.sim.cuda.standin import DriverError

from tickpath.engines import Array, DeviceLostError, EngineFailedError
from tickpath.graphs import PinnedArena
from tickpath.graphs.cuda import CudaEngine, CudaError, CudaOptions
from tickpath.graphs.cuda.resources import PAGE_BYTES, pin
from tickpath.server.admission import Refusal
from tickpath.server.lane import Answer, Lane
from tickpath.wire import Code, Infer, Result, decode_server_message

OPTIONS: Final = (
    CudaOptions("spin", "copied"),
    CudaOptions("block", "copied"),
    CudaOptions("spin", "mapped"),
    CudaOptions("block", "mapped"),
)
FUNCTIONS: Final = [name for name in dir(driver) if name.startswith("cu")]
INVALID_VALUE: Final = 1
OUT_OF_MEMORY: Final = 2
NOT_SUPPORTED: Final = 801
ILLEGAL_ADDRESS: Final = 700
LAUNCH_FAILED: Final = 719
ECC: Final = 214
# A failed call of one of these has given nothing back, which is not ours to mend.
RELEASES: Final = ("Destroy", "Free", "Unregister", "Release")


E = TypeVar("E", bound=Exception)


def raised(kind: type[E], call: Callable[[], object]) -> E:
    """What `call` raises, which must be of this kind."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"it was to raise {kind.__name__}, and did not")


def assert_clean(simulator: Simulator, leaks_max: int = 0, what: str = "") -> None:
    """No rule was broken, no guard damaged, and nothing lives."""
    assert simulator.violation() == "", what
    assert simulator.check_guards() == 0, what
    assert simulator.leaks().count("\n") <= leaks_max, f"{what}: {simulator.leaks()}"


def living(simulator: Simulator) -> list[int]:
    """How many of each kind of thing there are on the device, and their bytes."""
    stats = simulator.stats()
    return [stats[name] for name in STATS[: STATS.index("work_pending")]]


@contextmanager
def engine_of(simulator: Simulator, options: CudaOptions | None = None, fault: Fault = never) -> Iterator[CudaEngine]:
    """A stand-in on the device; nothing of it is left afterwards."""
    engine = CudaEngine(Model(simulator, fault), options)
    try:
        yield engine
    finally:
        engine.close()
    assert_clean(simulator)


def expected_of(simulator: Simulator) -> cuda_checks.Expected:
    """The arithmetic of every stand-in; they all have the same weights."""
    model = Model(simulator)
    model.close()
    return model.expected


def answers(simulator: Simulator, seed: int) -> None:
    """Random batches in pipelined slots, in all ways to wait and to place tensors."""
    random = np.random.default_rng(seed)
    expected = expected_of(simulator)
    with engine_of(simulator, OPTIONS[seed % len(OPTIONS)]) as engine:
        cuda_checks.check_three_inputs_in_a_row(engine, expected, 1 + seed % 8)
        cuda_checks.check_buckets_in_turn(engine, expected)
        buckets = sorted({int(rows) for rows in random.integers(1, 9, 3)})
        cuda_checks.check_pipelined(engine, expected, buckets, 1 + seed % 3, 25, random)
        assert engine.eager_graphs == 0
        assert engine.spec.runtime.endswith("graph: captured")


def eager_answers(simulator: Simulator, seed: int) -> None:
    """The same where the model can't be captured, in each of the ways there are."""
    faults = (refuse_capture, raise_in_capture, allocate_in_capture, synchronise_in_capture)
    random = np.random.default_rng(seed)
    expected = expected_of(simulator)
    with engine_of(simulator, OPTIONS[seed % len(OPTIONS)], faults[seed // len(OPTIONS) % len(faults)]) as engine:
        cuda_checks.check_three_inputs_in_a_row(engine, expected, 1 + seed % 8)
        cuda_checks.check_pipelined(engine, expected, (1, 4), 2, 15, random)
        assert engine.eager_graphs == engine.graphs == 5
        assert engine.spec.runtime.endswith("graph: eager")


def strict_refuses(simulator: Simulator, _seed: int) -> None:
    """No graph, no service, and nothing left of the attempt; the engine itself goes on."""
    for fault in (refuse_capture, raise_in_capture, allocate_in_capture, synchronise_in_capture):
        with engine_of(simulator, CudaOptions(strict=True), fault) as engine:
            before = living(simulator)
            error = raised(EngineFailedError, lambda engine=engine: bind(engine, 4))  # type: ignore[misc]
            assert "can't be captured" in str(error)
            assert "\n" not in str(error)
            assert living(simulator) == before


def two_engines(simulator: Simulator, seed: int) -> None:
    """Two models with a stream each: neither waits for the other, none answers for the other."""
    random = np.random.default_rng(seed)
    expected = expected_of(simulator)
    with engine_of_pair(simulator) as engines:
        slots = [bind(engine, rows) for engine in engines for rows in (4, 1)]
        in_flight: dict[int, list[bytes]] = {}
        for _ in range(30):
            index = int(random.integers(len(slots)))
            if index in in_flight:
                slots[index].graph.wait()
                assert slots[index].answer() == in_flight.pop(index)
            arrays = random_inputs(engines[0].spec, slots[index].rows, random)
            slots[index].launch(arrays)
            in_flight[index] = expected(arrays)
        engines[0].close()  # whatever it has in flight
        for index, wanted in in_flight.items():
            if index >= 2:
                slots[index].graph.wait()
                assert slots[index].answer() == wanted


@contextmanager
def engine_of_pair(simulator: Simulator) -> Iterator[tuple[CudaEngine, CudaEngine]]:
    one = CudaEngine(Model(simulator))
    other = CudaEngine(Model(simulator))
    try:
        yield one, other
    finally:
        one.close()
        other.close()
    assert_clean(simulator)


def reloads(simulator: Simulator, _seed: int) -> None:
    """200 cycles of load and unload: what lives is the same after each."""
    holder = Model(simulator)
    before = living(simulator)

    def used_bytes() -> int:
        assert living(simulator) == before
        return simulator.stats()["device_bytes"]

    cuda_checks.check_reloads(lambda: Model(simulator), holder.expected, 200, used_bytes)
    holder.close()
    assert_clean(simulator)


def load_answer_unload(engine: Model, options: CudaOptions) -> None:
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


def calls_of_a_life(simulator: Simulator, seed: int, options: CudaOptions) -> dict[str, int]:
    """How often each function is called between the load and the unload of an engine."""
    simulator.reset(seed)
    engine = Model(simulator)
    before = {name: simulator.calls(name) for name in FUNCTIONS}
    load_answer_unload(engine, options)
    counts = {name: simulator.calls(name) - before[name] for name in FUNCTIONS}
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


def a_lane_changes_threads(simulator: Simulator, seed: int) -> None:
    """Loaded on one thread, served by another, where the context was never made current."""
    expected = expected_of(simulator)
    with engine_of(simulator, OPTIONS[seed % len(OPTIONS)]) as engine:
        slot = bind(engine, 4)
        for turn in range(4):
            arrays = random_inputs(engine.spec, 4, np.random.default_rng(seed + turn))
            answer: list[list[bytes]] = []
            on_a_thread(lambda: answer.append(slot(arrays)))  # noqa: B023
            assert answer == [expected(arrays)]


def on_a_thread(call: Callable[[], object]) -> None:
    """Run it, and raise what it raises."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(call).result()


def a_slot_in_flight_is_not_launched(simulator: Simulator, _seed: int) -> None:
    """Two requests in one slot would share their buffers."""
    with engine_of(simulator) as engine:
        slot = bind(engine, 1)
        slot.graph.launch()
        raised(AssertionError, slot.graph.launch)
        slot.graph.wait()
        slot.graph.replay()


def a_slot_keeps_what_it_held(simulator: Simulator, _seed: int) -> None:
    """The sample that a capture runs on is gone afterwards: rows behind a request are zeros."""
    with engine_of(simulator) as engine:
        slot = bind(engine, 3)
        assert not slot.inputs[0].any()


def buffers_apart_are_refused(simulator: Simulator, _seed: int) -> None:
    """What lies between the tensors is copied and pinned too."""
    with engine_of(simulator) as engine:
        x, y = (np.zeros((1, size), np.float32) for size in (5, 3))
        raised(ValueError, lambda: engine.capture([x], [y]))
        arena = PinnedArena([20, 12])
        tensors = [arena.array(i, np.dtype(np.float32), (1, size)) for i, size in enumerate((5, 3))]
        raised(ValueError, lambda: engine.capture([tensors[0].reshape(5, 1)], tensors[1:]))
        engine.capture(tensors[:1], tensors[1:])


def waiting_holds_up_no_other_thread(simulator: Simulator, seed: int) -> None:
    """A thread waits for work that only this thread can release: both get on, spinning and blocked."""
    with engine_of(simulator, OPTIONS[seed % 2]) as engine:
        slot = bind(engine, 1)
        gate = PinnedArena([4])
        gate_address = gate.array(0, np.dtype(np.uint32), (1,)).ctypes.data
        with ExitStack() as stack:
            pinned = pin(engine.device, stack, gate_address, PAGE_BYTES)
            engine.device.call(driver.cuStreamWaitValue32, engine.stream, pinned, 1, 0)
            slot.graph.launch()
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(slot.graph.wait)
                assert not waiting.done()
                gate.view(0)[:] = np.uint32(1).tobytes()
                waiting.result(timeout=30)


def a_lane_serves_and_tells_of_the_loss(simulator: Simulator, seed: int) -> None:
    """The server's own way through slots: right answers, padding and all, and then NOT_READY."""
    expected, random = expected_of(simulator), np.random.default_rng(seed)
    lost: list[DeviceLostError] = []
    with engine_of(simulator, OPTIONS[seed % len(OPTIONS)]) as engine:
        lane = Lane(engine, "1", (1, 2, 4), True, lost.append)
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


def ask(lane: Lane, rows: int, arrays: list[Array]) -> Answer | Refusal:
    data = [memoryview(array.tobytes()) for array in arrays]
    return lane.run(Infer(1, 0, rows, data), data, 0, 0)


def main() -> None:
    """`python -m tests.sim.cuda.graph_cases CASE FIRST_SEED SEEDS`"""
    name, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    logging.disable(logging.WARNING)  # slots that run without a graph are what many cases are about
    simulator = Simulator()
    for seed in range(first, first + count):
        simulator.reset(seed)
        simulator.fence(seed % 2 == 1)
        try:
            globals()[name](simulator, seed)
        except BaseException:
            sys.stderr.write(f"{name}, seed {seed}:\n")
            raise


if __name__ == "__main__":
    main()
