"""Bugs that the CUDA layer does not have, to be planted in it: each must be found by one of its cases."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final
from unittest.mock import patch

from cuda.bindings import driver

from tickpath.engines import EngineFailedError
from tickpath.graphs import Slot
from tickpath.graphs.cuda import engine, resources
from tickpath.graphs.cuda.buffers import Buffers
from tickpath.graphs.cuda.device import Device
from tickpath.graphs.cuda.engine import CudaEngine
from tickpath.graphs.cuda.graph import CudaGraph
from tickpath.server.device_lane import DeviceLane, Flight

Plant = Callable[[], Any]
"""Makes what breaks the layer while it is entered."""


def nothing(*_what: object) -> None:
    """What should be done is left out."""


def nobody_waits(graph: CudaGraph) -> None:
    """The answer is read while the device still writes it."""
    graph._in_flight = False


def nobody_holds(graph: CudaGraph, *made_of: Any, **options: Any) -> None:
    """The buffers go, and the device keeps their addresses."""
    original(graph, *made_of, **(options | {"held": None}))


def addresses_of_another(buffers: Buffers) -> list[int]:
    """Every context is bound as if its tensors lay at the front of the mirror."""
    first = buffers._held[0].ctypes.data + buffers._shift
    return [first for _ in buffers._held]


def no_plain_run(_engine: CudaEngine, _run: object, _stream: object, outputs: Any) -> list[bytes]:
    """What is allocated lazily is allocated while the stream captures."""
    return [output.tobytes() for output in outputs]


def refusal_swallowed(run: Any, stream: int) -> None:
    """What `enqueue` returns is not looked at."""
    run._context.enqueue(stream)


def lands_at_once(lane: DeviceLane, flight: Flight) -> Any:
    """An answer is taken for done when it is first looked at, and its slot for free."""
    return lane._given_back(flight, lane._answer(flight, flight.filled_ns))


def slot_kept(_lane: DeviceLane, _flight: object, outcome: Any) -> Any:
    """A slot is not given back: the lane runs out of them."""
    return outcome


def no_latch(_device: Device, result: Any, function: Callable[..., Any]) -> Exception:
    """Each failure is the first."""
    return EngineFailedError(f"{function.__name__}: {result}")


def memory_kept(device: Device, _stack: ExitStack, byte_count: int) -> int:
    """Device memory that nobody owns."""
    return int(device.call(driver.cuMemAlloc, byte_count))


original = CudaGraph.__init__

# For each: the case that finds it, and how many seeds it has to.
BUGS: Final[dict[str, tuple[Plant, str, int]]] = {
    "nobody waits": (lambda: patch.object(CudaGraph, "wait", nobody_waits), "answers", 20),
    "nobody holds the buffers": (lambda: patch.object(CudaGraph, "__init__", nobody_holds), "answers", 20),
    "addresses of another": (lambda: patch.object(Buffers, "addresses", property(addresses_of_another)), "answers", 1),
    "inputs are not captured": (lambda: patch.object(Buffers, "copy_in", nothing), "answers", 1),
    "no plain run": (lambda: patch.object(CudaEngine, "_plain_answer", no_plain_run), "answers", 1),
    "a refusal is swallowed": (
        lambda: patch.object(engine._Run, "_enqueue", refusal_swallowed),
        "enqueue_refused_while_serving",
        1,
    ),
    "a capture is not ended": (
        lambda: patch.object(resources, "_abandon_capture", nothing),
        "strict_refuses",
        4,
    ),
    "a capture in global mode": (
        lambda: patch.object(resources, "_CAPTURE_MODE", driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL),
        "others_go_on_while_a_slot_is_captured",
        1,
    ),
    "no latch": (lambda: patch.object(Device, "failed", no_latch), "a_lost_device_stays_lost", 1),
    "memory that nobody owns": (lambda: patch("tickpath.graphs.cuda.buffers.make_memory", memory_kept), "reloads", 1),
    "no context on the other thread": (
        lambda: patch.object(Device, "use_here", nothing),
        "a_lane_changes_threads",
        1,
    ),
    "a flight lands at once": (lambda: patch.object(DeviceLane, "land", lands_at_once), "polled_answers", 20),
    "a slot is kept": (lambda: patch.object(DeviceLane, "_given_back", slot_kept), "polled_answers", 1),
    "a closed slot keeps what it has": (
        lambda: patch.object(Slot, "close", nothing),
        "a_lane_gives_back_what_it_has",
        1,
    ),
    "nobody settles": (lambda: patch.object(CudaGraph, "_settle", nobody_waits), "what_is_not_sticky_passes", 20),
}
