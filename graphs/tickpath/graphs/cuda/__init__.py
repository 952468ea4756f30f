"""Models on a CUDA device: pinned slots, device memory, one stream, captured graphs. Nothing else of ours imports
`cuda`, and only the driver's API is used."""

from tickpath.graphs.cuda.device import Device
from tickpath.graphs.cuda.engine import CudaEngine
from tickpath.graphs.cuda.errors import CudaError, CudaLostError
from tickpath.graphs.cuda.graph import CudaGraph

__all__ = ["CudaEngine", "CudaError", "CudaGraph", "CudaLostError", "Device"]
