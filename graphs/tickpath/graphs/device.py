"""How a model runs where it was loaded: on a CUDA device it needs memory, a stream and graphs around it."""

from dataclasses import dataclass
from typing import Literal

from tickpath.engines import DeviceEngine, Engine, EngineFailedError

Wait = Literal["spin", "block"]
Placement = Literal["copied", "mapped"]


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """`wait`: spin until the answer is there, or sleep and be woken. `placement`: tensors are copied to the device and
    back within the graph, or the device works on pinned host memory. `strict`: no graph, no service."""

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
