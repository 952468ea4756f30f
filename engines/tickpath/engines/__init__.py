"""What runs a model: the specification, the Engine protocol, one file per runtime."""

import os

# Before anything imports onnxruntime, which from 1.32 on tells its maker about each session: it keeps a database under
# the user's home, and two threads and connections that wake beside requests. A server does nothing it was not asked to.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

from tickpath.engines.device import DeviceEngine, ExecutionContext
from tickpath.engines.engine import DeviceLostError, Engine, EngineFailedError, Graph, ModelRefusedError
from tickpath.engines.spec import Array, EngineSpec, FeedHint, KnownModel, TensorSpec

__all__ = [
    "Array",
    "DeviceEngine",
    "DeviceLostError",
    "Engine",
    "EngineFailedError",
    "EngineSpec",
    "ExecutionContext",
    "FeedHint",
    "Graph",
    "KnownModel",
    "ModelRefusedError",
    "TensorSpec",
]
