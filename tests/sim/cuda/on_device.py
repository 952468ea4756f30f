"""What the cases of the CUDA layer share: engines that leave nothing behind, and what there is to check."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeVar

from tests import cuda_checks
from tests.sim.cuda.model import (
    Fault,
    Model,
    never,
)
from tests.sim.cuda.simulator import STATS, Simulator

from tickpath.graphs import DeviceOptions
from tickpath.graphs.cuda import CudaEngine

OPTIONS: Final = (
    DeviceOptions("spin", "copied"),
    DeviceOptions("block", "copied"),
    DeviceOptions("spin", "mapped"),
    DeviceOptions("block", "mapped"),
)


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
def engine_of(simulator: Simulator, options: DeviceOptions | None = None, fault: Fault = never) -> Iterator[CudaEngine]:
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


def on_a_thread(call: Callable[[], object]) -> None:
    """Run it, and raise what it raises."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(call).result()
