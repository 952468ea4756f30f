"""A TensorRT without a device: strict in what it is asked and in which order, and it runs nothing. What TensorRT itself
makes of a plan only a GPU can tell; what we ask of it can be seen here.

It has the surface of `tensorrt` 11 and, with `rtx`, that of TensorRT-RTX where the two differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace
from typing import Any

from tickpath.engines.tensorrt import KeptLog, TensorRT

Shape = tuple[int, ...]


class Mode(Enum):
    """As TensorIOMode."""

    INPUT = 1
    OUTPUT = 2


class DataType(Enum):
    """As DataType, in part."""

    FLOAT = 0
    HALF = 1
    INT64 = 8


class Strategy(Enum):
    """As DynamicShapesKernelSpecializationStrategy."""

    LAZY = 0
    EAGER = 1


@dataclass
class Tensor:
    """What an engine knows of one: its shape at each profile."""

    mode: Mode
    dtype: DataType
    shapes: Sequence[Shape]


@dataclass
class StandInContext:
    """Takes calls in the order that TensorRT needs: profile, shapes, addresses, run."""

    tensors: dict[str, Tensor]
    refuse: str = ""
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    profile: int | None = None

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int, /) -> bool:
        self.profile = profile_index
        return self._did("profile", profile_index, stream_handle)

    def set_input_shape(self, name: str, shape: Shape, /) -> bool:
        assert self.profile is not None, "a profile comes first"
        assert self.tensors[name].mode is Mode.INPUT
        assert shape == self.tensors[name].shapes[self.profile], "outside the profile"
        return self._did("shape", name, shape)

    def get_tensor_shape(self, name: str, /) -> Sequence[int]:
        assert self.profile is not None
        return list(self.tensors[name].shapes[self.profile])

    def set_tensor_address(self, name: str, memory: int, /) -> bool:
        assert name in self.tensors
        assert memory % 256 == 0
        return self._did("address", name, memory)

    def execute_async_v3(self, stream_handle: int, /) -> bool:
        done = [call[0] for call in self.calls]
        assert done.count("address") == len(self.tensors), "every tensor has an address"
        return self._did("run", stream_handle)

    def _did(self, *call: Any) -> bool:
        if call[0] == self.refuse:
            return False
        self.calls.append(call)
        return True


@dataclass
class StandInEngine:
    """As ICudaEngine."""

    tensors: dict[str, Tensor]
    num_optimization_profiles: int = 2
    refuse: str = ""
    contexts: list[StandInContext] = field(default_factory=list)
    configs: list[Any] = field(default_factory=list)

    @property
    def num_io_tensors(self) -> int:
        return len(self.tensors)

    def get_tensor_name(self, index: int, /) -> str:
        return list(self.tensors)[index]

    def get_tensor_mode(self, name: str, /) -> Mode:
        return self.tensors[name].mode

    def get_tensor_dtype(self, name: str, /) -> DataType:
        return self.tensors[name].dtype

    def get_tensor_profile_shape(self, name: str, profile_index: int, /) -> Sequence[Sequence[int]]:
        return [list(self.tensors[name].shapes[profile_index])] * 3

    def create_runtime_config(self) -> Any:
        return SimpleNamespace(dynamic_shapes_kernel_specialization_strategy=Strategy.LAZY)

    def create_execution_context(self, config: Any = None, /) -> StandInContext | None:
        self.configs.append(config)
        if self.refuse == "context":
            return None
        self.contexts.append(StandInContext(self.tensors, self.refuse))
        return self.contexts[-1]


def fitting_engine(refuse: str = "") -> StandInEngine:
    """An engine that is what tests.plans.RECIPE says: x [N,4] -> y [N,3] at buckets 1 and 2."""
    x = Tensor(Mode.INPUT, DataType.FLOAT, [(1, 4), (2, 4)])
    y = Tensor(Mode.OUTPUT, DataType.FLOAT, [(1, 3), (2, 3)])
    return StandInEngine({"x": x, "y": y}, refuse=refuse)


def stand_in(engine: StandInEngine | None = None, *, rtx: bool = True) -> TensorRT:
    """The package; its runtime makes `engine` of any plan."""
    logger = KeptLog()

    class Runtime:
        def __init__(self, given: object) -> None:
            assert given is logger, "one logger in a process"

        def deserialize_cuda_engine(self, plan: bytes) -> StandInEngine | None:
            if engine is None:
                logger.log(1, "[runtime.cpp::deserialize::12] Error Code 1: the device has compute capability 7.5")
            return engine

    class Config:
        def create_timing_cache(self, content: bytes) -> None: ...

    module = SimpleNamespace(__version__="1.7.1.116" if rtx else "11.4.0.106", Runtime=Runtime, IBuilderConfig=Config)
    if rtx:
        module.DynamicShapesKernelSpecializationStrategy = Strategy
        module.ComputeCapability = SimpleNamespace(__members__={"NONE": 0, "SM89": 89, "SM120": 120})
        Config.set_compute_capability = lambda *_: True  # type: ignore[attr-defined]
    return TensorRT("tensorrt-rtx" if rtx else "tensorrt", module, logger)
