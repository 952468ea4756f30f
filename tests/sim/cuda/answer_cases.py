"""What models on a device answer, whatever the order in which the device gets on. Run by graph_cases."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import numpy as np
from cuda.bindings import driver
from tests import cuda_checks
from tests.cuda_checks import bind, random_inputs
from tests.sim.cuda.model import (
    Model,
    ModelContext,
    allocate_in_capture,
    raise_in_capture,
    refuse_capture,
    synchronise_in_capture,
)
from tests.sim.cuda.on_device import OPTIONS, assert_clean, engine_of, expected_of, living, on_a_thread, raised
from tests.sim.cuda.simulator import Simulator

from tickpath.engines import EngineFailedError
from tickpath.graphs import DeviceOptions, PinnedArena
from tickpath.graphs.cuda import CudaEngine
from tickpath.graphs.cuda.resources import PAGE_BYTES, pin


def answers(simulator: Simulator, seed: int) -> None:
    """Random batches in pipelined slots, in all ways to wait and to place tensors."""
    random = np.random.default_rng(seed)
    expected = expected_of(simulator)
    with engine_of(simulator, OPTIONS[seed % len(OPTIONS)]) as engine:
        cuda_checks.check_three_inputs_in_a_row(engine, expected, 1 + seed % 8)
        cuda_checks.check_buckets_in_turn(engine, expected)
        buckets = sorted({int(rows) for rows in random.integers(1, 9, 3)})
        cuda_checks.check_pipelined(engine, expected, buckets, 1 + seed % 3, 25, random)
        assert engine.eager_buckets == ()
        assert engine.spec.runtime.endswith("graph: captured")


def eager_answers(simulator: Simulator, seed: int) -> None:
    """The same where the model can't be captured, in each of the ways there are."""
    faults = (refuse_capture, raise_in_capture, allocate_in_capture, synchronise_in_capture)
    random = np.random.default_rng(seed)
    expected = expected_of(simulator)
    with engine_of(simulator, OPTIONS[seed % len(OPTIONS)], faults[seed // len(OPTIONS) % len(faults)]) as engine:
        cuda_checks.check_three_inputs_in_a_row(engine, expected, 1 + seed % 8)
        cuda_checks.check_pipelined(engine, expected, (1, 4), 2, 15, random)
        assert len(engine.eager_buckets) == engine.graphs == 5
        assert engine.spec.runtime.endswith("graph: eager")


def strict_refuses(simulator: Simulator, _seed: int) -> None:
    """No graph, no service, and nothing left of the attempt; the engine itself goes on."""
    for fault in (refuse_capture, raise_in_capture, allocate_in_capture, synchronise_in_capture):
        with engine_of(simulator, DeviceOptions(strict=True), fault) as engine:
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


def others_go_on_while_a_slot_is_captured(simulator: Simulator, seed: int) -> None:
    """Another thread captures, serves and unloads a model in the midst of each capture; neither spoils the other. Only
    what waits for the whole device, as loading weights may, would: so models are read one at a time."""
    expected = expected_of(simulator)
    models = [Model(simulator) for _ in range(2)]

    def live_a_life() -> None:
        other = CudaEngine(models.pop())
        arrays = random_inputs(other.spec, 2, np.random.default_rng(seed))
        assert bind(other, 2)(arrays) == expected(arrays)
        assert other.eager_buckets == ()
        other.close()

    def fault(_context: ModelContext, capturing: bool) -> bool:
        if capturing:
            on_a_thread(live_a_life)
        return True

    with engine_of(simulator, OPTIONS[seed % len(OPTIONS)], fault) as engine:
        cuda_checks.check_buckets_in_turn(engine, expected)
        assert engine.eager_buckets == ()


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
    with engine_of(simulator, OPTIONS[seed % 2]) as engine, ExitStack() as stack:
        slot, gate, launched = bind(engine, 1), PinnedArena([4]), threading.Event()
        gate_address = gate.array(0, np.dtype(np.uint32), (1,)).ctypes.data
        pinned = pin(engine.device, stack, gate_address, PAGE_BYTES)
        engine.device.call(driver.cuStreamWaitValue32, engine.stream, pinned, 1, 0)

        def replay() -> None:
            slot.graph.launch()
            launched.set()
            slot.graph.wait()

        with ThreadPoolExecutor(1) as pool:
            replayed = pool.submit(replay)
            assert launched.wait(20)
            assert not replayed.done()
            gate.view(0)[:] = np.uint32(1).tobytes()
            replayed.result(timeout=20)
