"""`python -m bench.gpu`: what a request costs on this machine's GPU, step by step, beside the engine alone.

Prints a table and keeps it in bench/gpu/, named by the device, with versions.
"""

import platform
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from time import perf_counter_ns
from typing import Final

import numpy as np
from cuda.bindings import driver
from tests.cuda_checks import BoundSlot, bind, random_inputs
from tests.gpu.engines import CANDIDATES, MISSING, Candidate

from tickpath.engines import EngineFailedError
from tickpath.graphs import DeviceOptions, Slot
from tickpath.graphs.cuda import CudaEngine, Device
from tickpath.graphs.cuda.resources import make_memory, make_stream
from tickpath.graphs.device import Placement, Wait

FOLDER: Final = Path(__file__).parent
WARM: Final = 500
SAMPLES: Final = 10_000  # from here on a p99.9 is not thin
BUCKETS: Final = (1, 8)
OPTIONS: Final[tuple[tuple[Placement, Wait], ...]] = (("copied", "spin"), ("copied", "block"), ("mapped", "spin"))

Times = np.typing.NDArray[np.int64]


def times_ns(*steps: Callable[[], object]) -> list[Times]:
    """How long each of these took, in turn, for int64[SAMPLES] each."""
    marks = np.empty((WARM + SAMPLES, len(steps) + 1), np.int64)
    for row in marks:
        row[0] = perf_counter_ns()
        for place, step in enumerate(steps, 1):
            step()
            row[place] = perf_counter_ns()
    return list(np.diff(marks[WARM:], axis=1).T)


def engine_alone_ns(candidate: Candidate, rows: int) -> Times:
    """Enqueue and wait, on device memory, without a graph or a copy."""
    with ExitStack() as stack:
        device = Device()
        stack.callback(device.close)
        engine = candidate.make()
        stack.callback(engine.close)
        context = engine.context(rows)
        stack.callback(context.close)
        tensors = (*engine.spec.inputs, *engine.spec.outputs)
        addresses = [make_memory(device, stack, max(tensor.bytes_at(rows), 1)) for tensor in tensors]
        stream = make_stream(device, stack)
        for tensor, address in zip(tensors, addresses, strict=True):
            device.call(driver.cuMemsetD8Async, address, 0, tensor.bytes_at(rows), stream)
        context.bind(addresses)

        def run() -> None:
            assert context.enqueue(int(stream))
            device.call(driver.cuStreamSynchronize, stream)

        return times_ns(run)[0]


def request_ns(engine: CudaEngine, rows: int) -> dict[str, Times]:
    """The steps of a request as the server makes them, and launch and wait apart."""
    slot = Slot(engine, rows)
    random = np.random.default_rng(rows)
    data = [array.tobytes() for array in random_inputs(engine.spec, rows, random)]
    copies_in, replays, copies_out = times_ns(
        lambda: slot.fill(rows, data), slot.replay, lambda: [bytes(view) for view in slot.read(rows)]
    )
    launched: BoundSlot = bind(engine, rows)
    launches, waits = times_ns(launched.graph.launch, launched.graph.wait)
    return {
        "copy into the slot": copies_in,
        "launch": launches,
        "wait": waits,
        "copy out of the slot": copies_out,
        "whole request": copies_in + replays + copies_out,
    }


def row_of(name: str, times: Times) -> str:
    """One line of the table, in µs."""
    p50, p99, p999 = np.percentile(times / 1e3, [50, 99, 99.9])
    return f"| {name} | {p50:.1f} | {p99:.1f} | {p999:.1f} | {len(times):,} |"


def measure(candidate: Candidate) -> list[str]:
    """The lines of one engine's tables."""
    made = candidate.make()
    lines = ["", f"## {candidate.name}: {made.spec.runtime}, {made.spec.precision}"]
    made.close()
    for rows in BUCKETS:
        lines += [
            "",
            f"{candidate.name}, {rows} rows; µs",
            "",
            "| step | p50 | p99 | p99.9 | n |",
            "|---|---|---|---|---|",
        ]
        lines.append(row_of("engine alone: enqueue, synchronise", engine_alone_ns(candidate, rows)))
        for placement, wait in OPTIONS:
            engine = CudaEngine(candidate.make(), DeviceOptions(wait, placement, strict=True))
            for step, times in request_ns(engine, rows).items():
                lines.append(row_of(f"{placement}, {wait}: {step}", times))
            engine.close()
    return lines


def main() -> None:
    """Measure every engine that is here, print, and keep what was seen."""
    try:
        device = Device()
    except EngineFailedError as error:
        sys.exit(f"bench.gpu needs a machine with an NVIDIA GPU: {error}")
    capability, cuda = (".".join(map(str, pair)) for pair in (device.compute_capability, device.cuda_version))
    lines = [
        f"# {device.name}",
        "",
        f"Compute capability {capability}, driver for CUDA {cuda}, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, cuda-bindings {version('cuda-bindings')}. "
        "One request at a time, back to back, in process.",
    ]
    for name, why in MISSING.items():
        lines += ["", f"Not measured: {name}, since {why}."]
    for candidate in CANDIDATES:
        lines += measure(candidate)
    device.close()
    text = "\n".join(lines) + "\n"
    print(text, end="")
    (FOLDER / f"{re.sub(r'[^a-z0-9]+', '-', device.name.lower())}.md").write_text(text)


if __name__ == "__main__":
    main()
