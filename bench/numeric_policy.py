"""What a model's numeric policy costs a request: a lane whose model takes no time, with each setting beside none.

    python -m bench.numeric_policy [ROUNDS]

All settings take turns in each round, so that a noisy machine disturbs all alike.
"""

import sys
from collections.abc import Sequence
from statistics import median
from time import perf_counter_ns
from typing import Any, Final

import numpy as np

from tickpath.engines import Array, EngineSpec, TensorSpec
from tickpath.server.config import ModelConfig
from tickpath.server.lane import Answer, Lane
from tickpath.wire import Infer

FLOATS: Final = (64, 4000)
REQUESTS: Final = 300
BOUNDS: Final = {"output_min": -1e9, "output_max": 1e9}
OFF: Final[dict[str, Any]] = {"non_finite": "pass"}
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "nothing is looked at": OFF,
    "inputs (the default)": {},
    "outputs": OFF | {"output_non_finite": "refuse"},
    "bounds": OFF | BOUNDS,
    "inputs, outputs and bounds": {"output_non_finite": "refuse", **BOUNDS},
}


class Instant:
    """An engine and its graph, whose outputs stay what they are: zeros."""

    def __init__(self, floats: int) -> None:
        x, y = (TensorSpec(name, np.dtype(np.float32), (1, floats), 0) for name in "xy")
        self.spec = EngineSpec((x,), (y,), "none", "float32", "0" * 64)

    def capture(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> "Instant":
        return self

    def sample(self, rows: int) -> Sequence[Array]:
        return [np.zeros(tensor.shape_at(rows), tensor.dtype) for tensor in self.spec.inputs]

    def replay(self) -> None:
        pass

    def close(self) -> None:
        pass


def measure(floats: int, rounds: int) -> dict[str, float]:
    """Nanoseconds a request takes in the lane: the median of the rounds, by setting."""
    lanes = {name: Lane(Instant(floats), ModelConfig("m.onnx", **given), (1,)) for name, given in SETTINGS.items()}
    values = np.random.default_rng(0).standard_normal((1, floats)).astype(np.float32)
    infer = Infer(1, 0, 1, [memoryview(values.tobytes())])
    times_ns: dict[str, list[float]] = {name: [] for name in lanes}
    for _ in range(rounds):
        for name, lane in lanes.items():
            assert isinstance(lane.run(infer, 1, 2), Answer)
            start_ns = perf_counter_ns()
            for _ in range(REQUESTS):
                lane.run(infer, 1, 2)
            times_ns[name].append((perf_counter_ns() - start_ns) / REQUESTS)
    return {name: median(each) for name, each in times_ns.items()}


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print(f"{rounds} rounds of {REQUESTS} requests each, one float32 tensor in and one out; ns a request, medians")
    print("| what is looked at | " + " | ".join(f"{floats:,} floats | more" for floats in FLOATS) + " |")
    print("|---|" + "---|---|" * len(FLOATS))
    found = [measure(floats, rounds) for floats in FLOATS]
    for name in SETTINGS:
        cells = [f"{each[name]:,.0f} | {each[name] - each[next(iter(SETTINGS))]:,.0f}" for each in found]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
