"""What runs a model. One Engine per model version; one Graph per slot, bound for ever to that slot's host buffers."""

from collections.abc import Sequence
from typing import Protocol

from tickpath.engines.spec import Array, EngineSpec


class ModelRefusedError(Exception):
    """A model can't be served. The text names the file, the tensor or operator, and what to do about it."""


class EngineFailedError(Exception):
    """A replay failed: the request has no answer; the graph may be tried again."""


class DeviceLostError(Exception):
    """The device failed in a way that this process can't recover from: every further use of it fails too, for all
    models. Only a new process can help."""


class Graph(Protocol):
    """A model prepared for one bucket on fixed buffers."""

    def replay(self) -> None:
        """Run the model once: reads the bound input buffers, writes the bound output buffers, allocates nothing of
        ours. Raises EngineFailedError, DeviceLostError."""
        ...


class Engine(Protocol):
    """A loaded model."""

    @property
    def spec(self) -> EngineSpec: ...

    def capture(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Graph:
        """Bind a graph to C-contiguous host arrays of the shapes of one bucket. The graph keeps them alive.
        Raises ValueError where they do not fit; EngineFailedError, DeviceLostError."""
        ...

    def sample(self, rows: int) -> Sequence[Array]:
        """Inputs of `rows` rows on which the model runs, to warm up with: zeros are not right for every model, and can
        take another branch than data does. Raises ModelRefusedError where there are none."""
        ...

    def close(self) -> None:
        """Give back the runtime's memory. No graph of this engine may be replayed afterwards."""
        ...
