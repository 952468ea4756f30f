"""How a model runs where it was loaded: on a CUDA device it needs memory, a stream and graphs around it."""

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from tickpath.engines import DeviceEngine, Engine, EngineFailedError, Graph

Wait = Literal["spin", "block", "poll"]
Placement = Literal["copied", "mapped"]


@runtime_checkable
class DeviceGraph(Graph, Protocol):
    """A graph whose run need not be waited for: `replay` is `launch` and `wait`."""

    def launch(self) -> None:
        """Start a run on what the input buffers hold; they are the device's until it is done. Raises EngineFailedError,
        DeviceLostError."""
        ...

    def done(self) -> bool:
        """Whether the answer of the last launch is in the output buffers; does not wait. Raises as `launch`."""
        ...

    def wait(self) -> None:
        """Wait for the answer of the last launch. Raises as `launch`."""
        ...

    def close(self) -> None:
        """Give back what it holds on the device, before its engine does. It can't be launched any more."""
        ...


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """`wait`: what `Graph.replay` does until the answer is there: spin, or sleep and be woken. poll spins, too, and is
    for whoever launches, and looks later whether it is `done`. `placement`: tensors are copied to the device and back
    within the graph, or the device works on pinned host memory. `strict`: no graph, no service."""

    wait: Wait = "spin"
    placement: Placement = "copied"
    strict: bool = False


def on_device(engine: Engine | DeviceEngine, options: DeviceOptions) -> Engine:
    """The engine as slots take it; one that runs on the host is that already. Owns a DeviceEngine from here on. Raises
    EngineFailedError, DeviceLostError."""
    if not isinstance(engine, DeviceEngine):
        return engine
    try:
        from tickpath.graphs.cuda import CudaEngine  # the driver is opened only for a model that needs it
    except ModuleNotFoundError:
        engine.close()
        raise EngineFailedError("a model on a CUDA device needs cuda-bindings: pip install 'tickpath[cuda]'") from None
    return CudaEngine(engine, options)
