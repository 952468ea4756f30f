"""What the feeds of a model are: which of its inputs a window is kept of, and which states run on. Pure.

Words
- window: an input holds the last `window` rows along its time axis; a tick brings one row.
- carry: an output of one tick is an input of the next one, a state, which runs on from the feed's start.
- staggered: a step model with states, whose feeds answer as a window that begins with states of zeros: for each number
  of steps below the window's, the state after that many of the last rows is kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Literal

import msgspec

from tickpath.engines import EngineSpec, ModelRefusedError, TensorSpec
from tickpath.server.config import ROWS_MAX, FeedConfig, ModelConfig
from tickpath.wire import TensorInfo


@dataclass(frozen=True, slots=True)
class FeedInput:
    """One input that a tick brings. `place`: among the model's inputs. `window`: rows that are kept of it, 0: none;
    `stripes` as a Window's."""

    place: int
    info: TensorInfo
    window: int
    stripes: int = 1


@dataclass(frozen=True, slots=True)
class StatePair:
    """A state: the places of the input that takes it and of the output that gives it, and what it is at one row."""

    input: int
    output: int
    info: TensorInfo


@dataclass(frozen=True, slots=True)
class FeedSpec:
    """A model's feeds. `input_count`: of the model. `window` 0: they have none. A feed goes over to another version of
    its model where this is equal."""

    mode: Literal["window", "carry"]
    window: int
    pads: bool
    input_count: int
    inputs: tuple[FeedInput, ...]
    outputs: tuple[TensorInfo, ...]
    states: tuple[StatePair, ...]
    # How many feeds step together at most: it changes no answer.
    together: int = field(default=1, compare=False)

    @property
    def staggered(self) -> bool:
        return bool(self.states) and self.mode == "window"

    @property
    def tick_infos(self) -> tuple[TensorInfo, ...]:
        return tuple(each.info for each in self.inputs)

    @property
    def kept_bytes(self) -> int:
        """What one feed holds."""
        windows = sum(2 * each.window * each.info.bytes_at(1) for each in self.inputs)
        states = sum(pair.info.bytes_at(self.window if self.staggered else 1) for pair in self.states)
        return windows + states

    @property
    def snapshot_bytes(self) -> int:
        """The most that a snapshot of one feed takes."""
        windows = sum(each.window * each.info.bytes_at(1) for each in self.inputs)
        return 512 + (windows or self.kept_bytes) + 8 * (len(self.inputs) + len(self.states))


def find_feed(config: ModelConfig, spec: EngineSpec) -> FeedSpec | None:
    """The feeds of this model: as configured, as its file says, or by its one input of shape [N, steps, ...]. None: it
    keeps none. Raises ModelRefusedError where it can't keep those that were asked for."""
    wanted = _wanted(config, spec)
    if wanted is None:
        return None
    states = _states(config, spec, wanted)
    mode = wanted.mode or ("window" if wanted.window or not states else "carry")
    if mode == "carry" and not states:
        raise _refused(config, 'mode = "carry" needs the states that run on, such as state = { h = "hn" }')
    if wanted.together > 1 and not (states and mode == "window"):
        raise _refused(
            config, 'feed.together is for step models with mode = "window", which put work off: leave it out'
        )
    return _stepping(config, spec, wanted, states, mode) if states else _windowed(config, spec, wanted)


def _wanted(config: ModelConfig, spec: EngineSpec) -> FeedConfig | None:
    """What the feeds are to be; None: nobody asked, and nothing is to be found."""
    hints = spec.feed
    if config.feed is None and hints is None:
        return FeedConfig() if _found(spec) else None
    asked = config.feed or FeedConfig()
    if hints is None or asked.state:
        return asked
    return msgspec.structs.replace(asked, window=asked.window or hints.window, state=dict(hints.states))


def _found(spec: EngineSpec) -> bool:
    required = [tensor for tensor in spec.inputs if not tensor.optional]
    return (
        len(required) == 1
        and len(required[0].shape) == 3
        and required[0].batch_axis in (0, None)
        and required[0].shape[0] == 1
        and required[0].shape[1] > 1
        and spec.rows_fixed in (None, 1)
    )


def _windowed(config: ModelConfig, spec: EngineSpec, wanted: FeedConfig) -> FeedSpec:
    if spec.rows_fixed not in (None, 1):
        raise _refused(config, f"it takes {spec.rows_fixed} rows at once, a feed asks for one")
    required = [(place, tensor) for place, tensor in enumerate(spec.inputs) if not tensor.optional]
    sizes = {tensor.shape[wanted.axis] for _, tensor in required if len(tensor.shape) > wanted.axis}
    window = wanted.window or (sizes.pop() if len(sizes) == 1 else 0)
    inputs = tuple(_window_input(place, tensor, window, wanted.axis) for place, tensor in required)
    if not any(each.window for each in inputs):
        shapes = ", ".join(f"{tensor.name} {tensor.describe()}" for _, tensor in required)
        raise _refused(
            config,
            f"no input has a time axis {wanted.axis} of {window or 'one known size'} rows ({shapes}): give the right "
            "feed.axis and feed.window",
        )
    outputs = tuple(map(_row_info, spec.outputs))
    return FeedSpec("window", window, wanted.warm_up == "pad", len(spec.inputs), inputs, outputs, ())


def _window_input(place: int, tensor: TensorSpec, window: int, axis: int) -> FeedInput:
    info = _row_info(tensor)
    if len(tensor.shape) <= axis or tensor.shape[axis] != window or window < 2 or tensor.batch_axis == axis:
        return FeedInput(place, info, 0)
    row = TensorInfo(info.name, info.dtype, (*info.shape[:axis], 1, *info.shape[axis + 1 :]), info.batch_axis)
    return FeedInput(place, row, window, prod(tensor.shape[:axis]))


def _states(config: ModelConfig, spec: EngineSpec, wanted: FeedConfig) -> tuple[StatePair, ...]:
    inputs = {tensor.name: place for place, tensor in enumerate(spec.inputs)}
    outputs = {tensor.name: place for place, tensor in enumerate(spec.outputs)}
    if len(set(wanted.state.values())) < len(wanted.state):
        raise _refused(config, f"feed.state names an output twice: {dict(wanted.state)}")
    return tuple(_state(config, spec, inputs, outputs, pair) for pair in wanted.state.items())


def _state(
    config: ModelConfig,
    spec: EngineSpec,
    inputs: Mapping[str, int],
    outputs: Mapping[str, int],
    pair: tuple[str, str],
) -> StatePair:
    taken, given = pair
    for name, places, what in ((taken, inputs, "input"), (given, outputs, "output")):
        if name not in places:
            raise _refused(config, f"feed.state names {what} {name!r}; there are {', '.join(places)}")
    one, other = spec.inputs[inputs[taken]], spec.outputs[outputs[given]]
    if (one.dtype, one.shape, one.batch_axis) != (other.dtype, other.shape, other.batch_axis):
        raise _refused(
            config,
            f"feed.state: input {taken!r} is {one.describe()} and output {given!r} {other.describe()}: what runs on "
            "must have one dtype, shape and batch axis",
        )
    return StatePair(inputs[taken], outputs[given], _row_info(one))


def _stepping(
    config: ModelConfig,
    spec: EngineSpec,
    wanted: FeedConfig,
    states: tuple[StatePair, ...],
    mode: Literal["window", "carry"],
) -> FeedSpec:
    if spec.rows_fixed not in (None, 1):
        raise _refused(config, f"it takes {spec.rows_fixed} rows at once, a feed asks for one")
    window = (wanted.window or 0) if mode == "window" else 0
    if mode == "window":
        _check_staggered(config, spec, window)
    carried, given = {pair.input for pair in states}, {pair.output for pair in states}
    inputs = tuple(
        FeedInput(place, _row_info(tensor), window)
        for place, tensor in enumerate(spec.inputs)
        if place not in carried and not (tensor.optional and window)
    )
    outputs = tuple(_row_info(tensor) for place, tensor in enumerate(spec.outputs) if place not in given)
    return FeedSpec(mode, window, wanted.warm_up == "pad", len(spec.inputs), inputs, outputs, states, wanted.together)


def _check_staggered(config: ModelConfig, spec: EngineSpec, window: int) -> None:
    if window < 2:
        raise _refused(config, 'mode = "window" of a model with states needs feed.window, of 2 rows or more')
    if window - 1 > ROWS_MAX:
        raise _refused(config, f"feed.window is {window}, and {ROWS_MAX + 1} is the most: its states run as one bucket")
    unbatched = [tensor.name for tensor in spec.inputs if tensor.batch_axis is None and not tensor.optional]
    if spec.rows_fixed is not None or unbatched:
        raise _refused(
            config,
            f'mode = "window" runs {window - 1} states at once, so every input needs an open batch axis; '
            f'{", ".join(map(repr, unbatched)) or "this model"} has none: leave it open, or choose "carry"',
        )


def _row_info(tensor: TensorSpec) -> TensorInfo:
    axis = -1 if tensor.batch_axis is None else tensor.batch_axis
    return TensorInfo(tensor.name, tensor.dtype.name, tensor.shape, axis, tensor.optional)


def _refused(config: ModelConfig, why: str) -> ModelRefusedError:
    return ModelRefusedError(f"{config.path}: its feeds can't be kept: {why}")
