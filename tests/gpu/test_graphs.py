"""Captured graphs on a GPU: every answer is the right request's, and memory stays flat."""

from collections.abc import Iterator

import numpy as np
import pytest
from cuda.bindings import driver
from tests import cuda_checks
from tests.gpu.engines import CANDIDATES, MISSING, Candidate, Eager
from tests.gpu.ptx_engine import checked
from tests.polled import ask_polled

from tickpath.graphs import DeviceOptions, Slot
from tickpath.graphs.cuda import CudaEngine, Device
from tickpath.graphs.device import Placement, Wait

BUCKETS = range(1, 9)
# A TensorRT may take minutes to build a plan, with its first test.
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module", params=CANDIDATES, ids=lambda candidate: candidate.name)
def candidate(request: pytest.FixtureRequest) -> Candidate:
    chosen: Candidate = request.param
    return chosen


@pytest.fixture(scope="module")
def eager(candidate: Candidate) -> Iterator[Eager]:
    reference = Eager(candidate)
    yield reference
    reference.engine.close()


@pytest.fixture(params=[("copied", "spin"), ("copied", "block"), ("mapped", "spin")], ids="-".join)
def engine(request: pytest.FixtureRequest, candidate: Candidate) -> Iterator[CudaEngine]:
    placement: Placement
    wait: Wait
    placement, wait = request.param
    made = CudaEngine(candidate.make(), DeviceOptions(wait, placement, strict=True))
    yield made
    made.close()


def used_bytes() -> int:
    """Of the device's memory, by whomever."""
    free, total = checked_pair(driver.cuMemGetInfo())
    return total - free


def checked_pair(results: tuple[object, ...]) -> tuple[int, int]:
    result, free, total = results
    assert result == driver.CUresult.CUDA_SUCCESS
    assert isinstance(free, int)
    assert isinstance(total, int)
    return free, total


@pytest.mark.parametrize("name", ["tensorrt", "tensorrt-rtx", "torch"])
def test_what_is_not_proven_here_is_said(name: str) -> None:
    """`make test-gpu` installs torch itself; a TensorRT is the machine's."""
    if (why := MISSING.get(name)) and name == "torch":
        pytest.fail(why)
    elif why:
        pytest.skip(why)


def test_without_a_graph_the_answers_are_the_models_own(candidate: Candidate, eager: Eager) -> None:
    random = np.random.default_rng(0)
    for rows in BUCKETS:
        arrays = cuda_checks.random_inputs(eager.engine.spec, rows, random)
        answers = eager(arrays)
        assert candidate.expected is None or answers == candidate.expected(arrays)
    assert len(eager.engine.eager_buckets) == eager.engine.graphs == len(BUCKETS)
    assert eager.engine.spec.runtime.endswith("graph: eager")


@pytest.mark.parametrize("rows", [1, 8])
def test_three_inputs_in_a_row(engine: CudaEngine, eager: Eager, rows: int) -> None:
    cuda_checks.check_three_inputs_in_a_row(engine, eager, rows)


def test_buckets_in_turn(engine: CudaEngine, eager: Eager) -> None:
    cuda_checks.check_buckets_in_turn(engine, eager)


def test_random_batches_in_pipelined_slots(engine: CudaEngine, eager: Eager) -> None:
    """10,000 requests; what is used after the first thousand is all that is ever used."""
    random = np.random.default_rng(4)
    cuda_checks.check_pipelined(engine, eager, BUCKETS, 2, 1000, random)
    slots = {rows: Slot(engine, rows) for rows in (8, 4, 2, 1)}
    after_capture = used_bytes()
    for _ in range(9000):
        rows = int(random.choice(list(slots)))
        arrays = cuda_checks.random_inputs(engine.spec, rows, random)
        slots[rows].fill(rows, [array.tobytes() for array in arrays])
        slots[rows].replay()
        assert [bytes(view) for view in slots[rows].read(rows)] == eager(arrays)
    assert used_bytes() <= after_capture


def test_two_models_side_by_side(candidate: Candidate, eager: Eager) -> None:
    """On a stream each, of which neither waits for the other: what they work in is their own."""
    engines = [CudaEngine(candidate.make(), DeviceOptions(strict=True)) for _ in range(2)]
    try:
        slots, random = [cuda_checks.bind(engine, 8) for engine in engines], np.random.default_rng(5)
        questions = [cuda_checks.random_inputs(eager.engine.spec, 8, random) for _ in range(16)]
        answers = [eager(arrays) for arrays in questions]
        for number in range(1000):
            chosen = (number % 16, (7 * number + 3) % 16)
            for slot, which in zip(slots, chosen, strict=True):
                slot.launch(questions[which])
            for slot, which in zip(slots, chosen, strict=True):
                slot.graph.wait()
                assert slot.answer() == answers[which]
    finally:
        for engine in engines:
            engine.close()


def test_the_loop_launches_and_polls(candidate: Candidate, eager: Eager) -> None:
    """3,000 requests, a hundred at a time, of which two are on the device: each is answered once, with its own."""
    made = CudaEngine(candidate.make(), DeviceOptions("poll", strict=True))
    try:
        for seed in range(30):
            asker, lost = ask_polled(made, eager, np.random.default_rng(seed), slots=2, requests=100)
            assert (asker.check(), lost) == ([], [])
    finally:
        made.close()


def test_two_hundred_reloads_leave_device_memory_flat(candidate: Candidate, eager: Eager) -> None:
    holder = Device()  # the context outlives the engines, as it does in a server with a second model
    try:
        cuda_checks.check_reloads(candidate.make, eager, 200, used_bytes)
    finally:
        holder.close()


def test_the_driver_is_asked_where_it_is(gpu: str) -> None:
    """What docs and results name the machine by."""
    assert gpu
    assert checked(driver.cuDriverGetVersion()) >= 12000
