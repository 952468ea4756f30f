"""What runs a model: the specification, the Engine protocol, one file per runtime."""

from tickpath.engines.engine import Engine, EngineFailedError, Graph, ModelRefusedError
from tickpath.engines.spec import Array, EngineSpec, TensorSpec

__all__ = ["Array", "Engine", "EngineFailedError", "EngineSpec", "Graph", "ModelRefusedError", "TensorSpec"]
