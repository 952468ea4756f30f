"""What must hold of a model on a CUDA device, be it a GPU or the simulated driver: one set of checks for both."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tickpath.engines import Array, DeviceEngine, EngineSpec
from tickpath.graphs import PinnedArena
from tickpath.graphs.cuda import CudaEngine, CudaGraph

Expected = Callable[[Sequence[Array]], list[bytes]]
"""The bytes of the outputs for these inputs, from somewhere else than a captured graph."""


@dataclass(frozen=True)
class BoundSlot:
    """Buffers of one bucket in an arena, and the graph on them."""

    rows: int
    inputs: list[Array]
    outputs: list[Array]
    graph: CudaGraph

    def launch(self, arrays: Sequence[Array]) -> None:
        for buffer, array in zip(self.inputs, arrays, strict=True):
            buffer[...] = array
        self.graph.launch()

    def answer(self) -> list[bytes]:
        return [output.tobytes() for output in self.outputs]

    def __call__(self, arrays: Sequence[Array]) -> list[bytes]:
        self.launch(arrays)
        self.graph.wait()
        return self.answer()


def bind(engine: CudaEngine, rows: int) -> BoundSlot:
    """A slot as `graphs.Slot` makes it, whose graph can be launched and polled."""
    tensors = (*engine.spec.inputs, *engine.spec.outputs)
    arena = PinnedArena([tensor.bytes_at(rows) for tensor in tensors])
    arrays = [arena.array(i, tensor.dtype, tensor.shape_at(rows)) for i, tensor in enumerate(tensors)]
    inputs, outputs = arrays[: len(engine.spec.inputs)], arrays[len(engine.spec.inputs) :]
    return BoundSlot(rows, inputs, outputs, engine.capture(inputs, outputs))


def random_inputs(spec: EngineSpec, rows: int, random: np.random.Generator) -> list[Array]:
    """Small whole numbers, each time others: sums of their products are exact in any order."""
    return [random.integers(-8, 9, t.shape_at(rows)).astype(t.dtype) for t in spec.inputs]


def check_three_inputs_in_a_row(engine: CudaEngine, expected: Expected, rows: int) -> None:
    """A graph that kept an address or an input of its capture would answer the first one again."""
    slot, random = bind(engine, rows), np.random.default_rng(1)
    wanted = []
    for _ in range(3):
        arrays = random_inputs(engine.spec, rows, random)
        wanted.append(expected(arrays))
        assert slot(arrays) == wanted[-1]
    assert len({tuple(answer) for answer in wanted}) == 3, "inputs that answer alike show nothing"


def check_buckets_in_turn(engine: CudaEngine, expected: Expected, turns: Sequence[int] = (1, 8, 1, 8)) -> None:
    """Each bucket keeps its own context, shape and buffers."""
    slots = {rows: bind(engine, rows) for rows in sorted(set(turns), reverse=True)}
    random = np.random.default_rng(2)
    for rows in turns:
        arrays = random_inputs(engine.spec, rows, random)
        assert slots[rows](arrays) == expected(arrays), f"{rows} rows"


def check_pipelined(
    engine: CudaEngine,
    expected: Expected,
    buckets: Sequence[int],
    depth: int,
    requests: int,
    random: np.random.Generator,
) -> None:
    """Requests at random into `depth` slots of each bucket, polled, waited for and launched again in any order: every
    answer is right, so none is another request's."""
    slots = [bind(engine, rows) for rows in sorted(buckets, reverse=True) for _ in range(depth)]
    in_flight: dict[int, list[bytes]] = {}

    def finish(index: int) -> None:
        assert slots[index].answer() == in_flight.pop(index), f"slot {index} of {slots[index].rows} rows"

    for _ in range(requests):
        index = int(random.integers(len(slots)))
        if index in in_flight:
            slots[index].graph.wait()
            finish(index)
        arrays = random_inputs(engine.spec, slots[index].rows, random)
        slots[index].launch(arrays)
        in_flight[index] = expected(arrays)
        polled = list(in_flight)[int(random.integers(len(in_flight)))]
        if slots[polled].graph.done():
            finish(polled)
    for index in list(in_flight):
        slots[index].graph.wait()
        finish(index)


def check_reloads(
    make: Callable[[], DeviceEngine], expected: Expected, times: int, used_bytes: Callable[[], int], settle: int = 2
) -> None:
    """Load, answer and unload so many times; after the first few, which warm the libraries up, memory stays flat."""
    random = np.random.default_rng(3)
    used = []
    for _ in range(times):
        engine = CudaEngine(make())
        arrays = random_inputs(engine.spec, 2, random)
        assert bind(engine, 2)(arrays) == expected(arrays)
        engine.close()
        used.append(used_bytes())
    assert max(used[settle:]) <= used[settle], "device memory grows with each load"
