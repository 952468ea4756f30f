"""TensorRT 10 and 11, and TensorRT-RTX, which has the same API: the only file that imports any of them.

What a release has is asked of it and not concluded from its number: 11 has neither precision flags nor a calibrator,
which are not used here at all; RTX builds for compute capabilities without a GPU, and keeps no timing cache. Networks
are strongly typed: what is computed in float16 says so in the graph.

The `tensorrt` package fetches its libraries from elsewhere when it is installed, and where it can't it is installed
without them: then importing it fails, which is told as not being installed.
"""

import importlib
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Protocol

import msgspec

from tickpath.engines.engine import ModelRefusedError

# What the packages are called where one imports them.
MODULES: Final[Mapping[str, str]] = {"tensorrt": "tensorrt", "tensorrt-rtx": "tensorrt_rtx"}

# Severities are numbered from internal errors, 0, to verbose, 4.
ERROR, WARNING = 1, 2

# Messages are kept for an error's text; a build writes thousands, and the last say why it failed.
MESSAGES_MAX: Final = 256
NOTE_CHARS_MAX: Final = 300

# A warning after which answers are wrong without a word: a constant that the parser cut to another type's range.
CUT: Final = re.compile(r"clamp|out of range|truncat", re.IGNORECASE)
# Warnings that every model of such inputs gets and nobody can act on.
USUAL: Final = re.compile(r"Make sure (in|out)put .* has Int64 binding")

Shape = tuple[int, ...]


class Watcher(Protocol):
    """Is told how a build goes. Phases nest; each has a number of steps."""

    def started(self, phase: str, parent: str | None, steps: int) -> None: ...

    def stepped(self, phase: str, step: int) -> bool:
        """Whether to go on."""
        ...

    def finished(self, phase: str) -> None: ...


class BuildSettings(msgspec.Struct, frozen=True):
    """How to build. `profiles`: one for each bucket, input name -> shape; `targets` as sm89."""

    profiles: tuple[dict[str, Shape], ...]
    tf32: bool
    targets: tuple[str, ...]
    optimization_level: int
    timing_iterations: int
    aux_streams: int


@dataclass(frozen=True, slots=True)
class Built:
    """A plan. `notes`: what was warned of; `timing_cache`: empty where the runtime keeps none."""

    plan: bytes
    timing_cache: bytes
    notes: tuple[str, ...]


class BuildStoppedError(Exception):
    """The watcher ended a build."""


class KeptLog:
    """The one logger of a process, as a mixin: warnings and worse are kept, the rest is not for people."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: deque[tuple[int, str]] = deque(maxlen=MESSAGES_MAX)

    def log(self, severity: Any, msg: str) -> None:
        """Called by TensorRT, from any of its threads."""
        if int(severity) <= WARNING:
            self._kept.append((int(severity), one_line(msg)))

    def take(self) -> list[tuple[int, str]]:
        """What came since it was last asked."""
        taken = []
        while self._kept:
            taken.append(self._kept.popleft())
        return taken


class WatchedMonitor:
    """An IProgressMonitor, as a mixin, in front of a Watcher. No exception may go up through TensorRT: what the watcher
    raises is kept, and the build told to end."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__()
        self._watcher = watcher
        self.error: BaseException | None = None
        self.stopped = False

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        """Called by TensorRT."""
        with self._kept():
            self._watcher.started(phase_name, parent_phase, num_steps)

    def phase_finish(self, phase_name: str) -> None:
        """Called by TensorRT."""
        with self._kept():
            self._watcher.finished(phase_name)

    def step_complete(self, phase_name: str, step: int) -> bool:
        """Called by TensorRT: False ends the build."""
        with self._kept():
            self.stopped = not self._watcher.stepped(phase_name, step)
        return self.error is None and not self.stopped

    @contextmanager
    def _kept(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:  # KeyboardInterrupt too: it is raised again when the build has ended
            self.error = self.error or error


class IExecutionContext(Protocol):
    """What is used of an IExecutionContext. False from any of these: refused, and the logger has the reason."""

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int, /) -> bool: ...

    def set_input_shape(self, name: str, shape: Shape, /) -> bool: ...

    def get_tensor_shape(self, name: str, /) -> Iterable[int]: ...

    def set_tensor_address(self, name: str, memory: int, /) -> bool: ...

    def execute_async_v3(self, stream_handle: int, /) -> bool: ...


class Named(Protocol):
    """A member of an enumeration."""

    @property
    def name(self) -> str: ...


class ICudaEngine(Protocol):
    """What is used of an ICudaEngine."""

    @property
    def num_io_tensors(self) -> int: ...

    @property
    def num_optimization_profiles(self) -> int: ...

    def get_tensor_name(self, index: int, /) -> str: ...

    def get_tensor_mode(self, name: str, /) -> Named: ...

    def get_tensor_dtype(self, name: str, /) -> Named: ...

    def get_tensor_profile_shape(self, name: str, profile_index: int, /) -> Sequence[Iterable[int]]: ...

    def create_runtime_config(self) -> Any: ...

    def create_execution_context(self, config: Any = ..., /) -> IExecutionContext | None: ...


@dataclass(frozen=True, slots=True)
class TensorRT:
    """One of the packages, imported. `name` as in MODULES."""

    name: str
    module: Any
    logger: Any

    @property
    def runtime(self) -> str:
        """For people and sidecars: `tensorrt-rtx 1.7.1.116`. A plan runs on the release that built it."""
        return f"{self.name} {self.module.__version__}"

    @property
    def targets(self) -> tuple[str, ...]:
        """What it can build for without a GPU of that kind; nothing where it builds for the GPU at hand."""
        if not hasattr(self.module.IBuilderConfig, "set_compute_capability"):
            return ()
        return tuple(name.lower() for name in self.module.ComputeCapability.__members__ if name.startswith("SM"))

    @property
    def keeps_timing_cache(self) -> bool:
        """RTX has the calls, which do nothing but ask for a GPU."""
        return not self.targets and hasattr(self.module.IBuilderConfig, "create_timing_cache")

    def said(self) -> str:
        """The errors that were logged since it was last asked, in one line."""
        errors = [text for severity, text in self.logger.take() if severity <= ERROR]
        return "; ".join(dict.fromkeys(errors)) or "it does not say why"


@cache
def find_tensorrt(name: str) -> TensorRT:
    """The package of this name, imported once in a process, as TensorRT takes the first logger for all. Raises
    ModelRefusedError where it is not installed or its libraries are not there."""
    try:
        module = importlib.import_module(MODULES[name])
        logger = type("Logger", (KeptLog, module.ILogger), {})()
    except (ImportError, OSError, AttributeError) as error:
        raise ModelRefusedError(
            f"{name} can't be used here ({one_line(str(error))}): pip install 'tickpath[{name}]'"
        ) from None
    return TensorRT(name, module, logger)


def one_line(text: str) -> str:
    """A message of TensorRT's without its source positions."""
    text = " ".join(text.split())
    text = re.sub(r"^\[?\w+\.cpp:[\w:]*\]?:? | ?\bIn \w+ at /\S+", "", text)
    return text[:NOTE_CHARS_MAX]


def build(
    tensorrt: TensorRT, model: bytes, settings: BuildSettings, watcher: Watcher, timing_cache: bytes = b""
) -> Built:
    """The plan of an ONNX model whose weights are in it. Raises ModelRefusedError, BuildStoppedError, and what the
    watcher raised."""
    parsed = parse(tensorrt, model)
    _check_inputs(parsed.network, settings)
    config = _configure(tensorrt, parsed, settings)
    cached = _give_timing_cache(tensorrt, config, timing_cache)
    monitor = type("Monitor", (WatchedMonitor, tensorrt.module.IProgressMonitor), {})(watcher)
    config.progress_monitor = monitor
    plan = parsed.builder.build_serialized_network(parsed.network, config)
    if monitor.error is not None:
        raise monitor.error
    if monitor.stopped:
        raise BuildStoppedError
    if plan is None:
        raise ModelRefusedError(f"{tensorrt.runtime} builds no plan of this model: {tensorrt.said()}")
    notes = (*parsed.notes, *_warnings(tensorrt))
    return Built(bytes(plan), _take_timing_cache(config) if cached else b"", tuple(dict.fromkeys(notes)))


@dataclass(frozen=True, slots=True)
class Parsed:
    """A network, the builder it belongs to, and what the parser warned of."""

    builder: Any
    network: Any
    notes: tuple[str, ...]


def parse(tensorrt: TensorRT, model: bytes) -> Parsed:
    """The network of an ONNX model whose weights are in it. Raises ModelRefusedError naming the operator."""
    trt = tensorrt.module
    tensorrt.logger.take()
    builder = trt.Builder(tensorrt.logger)
    network = builder.create_network(_network_flags(trt))
    parser = trt.OnnxParser(network, tensorrt.logger)
    if not parser.parse(model):
        errors = [_parser_error(parser.get_error(index)) for index in range(parser.num_errors)]
        raise ModelRefusedError(f"{tensorrt.runtime} can't take this model: {errors[0] if errors else tensorrt.said()}")
    warnings = _warnings(tensorrt)
    for warning in warnings:
        if CUT.search(warning):
            raise ModelRefusedError(
                f"{tensorrt.runtime} would change a constant of this model ({warning}): export it within range"
            )
    return Parsed(builder, network, tuple(warnings))


def _network_flags(trt: Any) -> int:
    """Strongly typed, which needs no flag where there is nothing else."""
    typed = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    return 0 if typed is None else 1 << int(typed)


def _parser_error(error: Any) -> str:
    description = one_line(str(error.desc()).replace("Assertion failed: ", ""))
    if "Plugin not found" in description:
        description = "it has no such operator"
    if error.node() < 0 or not error.node_operator():
        return description
    name = f" ({error.node_name()})" if error.node_name() else ""
    return f"operator {error.node_operator()!r}{name}: {description}"


def _warnings(tensorrt: TensorRT) -> list[str]:
    return [text for severity, text in tensorrt.logger.take() if severity == WARNING and not USUAL.search(text)]


def _check_inputs(network: Any, settings: BuildSettings) -> None:
    names = [network.get_input(index).name for index in range(network.num_inputs)]
    expected = list(settings.profiles[0])
    if sorted(names) != sorted(expected):
        raise ModelRefusedError(f"the parser found the inputs {', '.join(names)}, the model has {', '.join(expected)}")
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        if tensor.is_shape_tensor:
            raise ModelRefusedError(
                f"the values of input {tensor.name!r} decide a shape, and a captured graph has one shape: export the "
                "model with that input fixed"
            )


def _configure(tensorrt: TensorRT, parsed: Parsed, settings: BuildSettings) -> Any:
    config = parsed.builder.create_builder_config()
    config.builder_optimization_level = settings.optimization_level
    config.avg_timing_iterations = settings.timing_iterations
    config.max_aux_streams = settings.aux_streams
    flags = tensorrt.module.BuilderFlag
    (config.set_flag if settings.tf32 else config.clear_flag)(flags.TF32)  # it is set by default
    if hasattr(flags, "REQUIRE_USER_ALLOCATION"):  # memory that the runtime takes by itself can't be captured
        config.set_flag(flags.REQUIRE_USER_ALLOCATION)
    for shapes in settings.profiles if parsed.network.num_inputs else ():
        profile = parsed.builder.create_optimization_profile()
        for name, shape in shapes.items():
            profile.set_shape(name, shape, shape, shape)
        config.add_optimization_profile(profile)
    if settings.targets:
        config.num_compute_capabilities = len(settings.targets)
    for index, target in enumerate(settings.targets):
        config.set_compute_capability(tensorrt.module.ComputeCapability.__members__[target.upper()], index)
    return config


def _give_timing_cache(tensorrt: TensorRT, config: Any, content: bytes) -> bool:
    """Whether the config has a cache now: the one given, or a new one where the runtime does not take it."""
    if not tensorrt.keeps_timing_cache:
        return False
    for attempt in (content, b""):
        cache_ = config.create_timing_cache(attempt)
        if cache_ is not None and config.set_timing_cache(cache_, ignore_mismatch=False):
            return True
    return False


def _take_timing_cache(config: Any) -> bytes:
    return bytes(config.get_timing_cache().serialize())


def deserialise(tensorrt: TensorRT, plan: bytes) -> ICudaEngine:
    """The ICudaEngine in a plan that was checked against its sidecar. Raises ModelRefusedError with the runtime's own
    reason, of another GPU or release."""
    tensorrt.logger.take()
    runtime = tensorrt.module.Runtime(tensorrt.logger)
    engine: ICudaEngine | None = runtime.deserialize_cuda_engine(plan)
    if engine is None:
        raise ModelRefusedError(f"{tensorrt.runtime} does not take this plan: {tensorrt.said()}")
    return engine


def new_context(tensorrt: TensorRT, engine: ICudaEngine) -> IExecutionContext | None:
    """An execution context with device memory of its own; None where there is not enough.

    RTX makes the kernels for a shape at run time: by itself it does that beside the first requests, which run on slower
    kernels meanwhile, and a graph captured then would keep those for ever. Here it does it before the first run.
    """
    strategy = getattr(tensorrt.module, "DynamicShapesKernelSpecializationStrategy", None)
    if strategy is None:
        return engine.create_execution_context()
    config = engine.create_runtime_config()
    config.dynamic_shapes_kernel_specialization_strategy = strategy.EAGER
    return engine.create_execution_context(config)
