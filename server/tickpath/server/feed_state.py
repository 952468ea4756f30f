"""What a feed's ticks leave behind in the model's own states, and how the next tick goes on from it.

Rules
- A state belongs to the lane's thread while ticks of its feed are under way, and to the loop while none is.
- One tick steps it once, or it is lost: then it says why, and no tick runs on it any more.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from tickpath.engines import Array, DeviceLostError, EngineFailedError
from tickpath.graphs import Slot
from tickpath.server.feed_spec import FeedSpec
from tickpath.wire import TensorInfo

Inputs = Sequence[memoryview | None]

LOST: Final = "its state was lost when a tick failed"


class FeedState(Protocol):
    """The states of one feed."""

    lost: str
    """Why no tick can run on it; empty while one can."""

    @property
    def unsettled(self) -> bool:
        """Whether work was put off until after the reply."""
        ...

    def inputs(self, inputs: Inputs) -> list[memoryview | None]:
        """All of the model's inputs for a tick that brings these."""
        ...

    def stepped(self, inputs: Inputs, outputs: Sequence[memoryview]) -> None:
        """A tick of these inputs has run, and the model gave `outputs`."""
        ...


class CarriedState:
    """States that run on from the feed's start."""

    unsettled: Final = False

    def __init__(self, spec: FeedSpec, parts: Sequence[memoryview] | None = None) -> None:
        """`parts`: the states to go on from; None: zeros."""
        self.lost = ""
        self._spec = spec
        self._states = [bytearray(pair.info.bytes_at(1)) for pair in spec.states]
        self._views = [memoryview(state) for state in self._states]
        for state, part in zip(self._states, parts or (), strict=parts is not None):
            state[:] = part

    @property
    def parts(self) -> list[bytes]:
        """The states, in the order of the spec."""
        return [bytes(state) for state in self._states]

    def inputs(self, inputs: Inputs) -> list[memoryview | None]:
        return _placed(self._spec, inputs, self._views)

    def stepped(self, inputs: Inputs, outputs: Sequence[memoryview]) -> None:
        for state, pair in zip(self._states, self._spec.states, strict=True):
            state[:] = outputs[pair.output]


class StaggeredState:
    """For each k below the window: the states after the last k rows, beginning with zeros.

    A tick steps the oldest, of `window - 1` rows, and its answer is that of the whole window. After the reply the
    others, and new zeros, step as one batch, each becoming the next older.
    """

    def __init__(self, spec: FeedSpec, initial: Sequence[Array], rows: Sequence[Sequence[bytes]]) -> None:
        """`initial`: the states when nothing but rows of zeros has come (see `states_of_zeros`). `rows`: what has come
        since, the newest last; they are stepped through as the first tick runs."""
        self.lost = ""
        self._spec = spec
        self._behind: list[Sequence[bytes]] = list(rows)
        self._states = [_Ages(state, pair.info) for state, pair in zip(initial, spec.states, strict=True)]
        self._oldest = [state.oldest for state in self._states]
        self._younger = [state.younger for state in self._states]

    @property
    def unsettled(self) -> bool:
        return bool(self._behind)

    def inputs(self, inputs: Inputs) -> list[memoryview | None]:
        return _placed(self._spec, inputs, self._oldest)

    def stepped(self, inputs: Inputs, outputs: Sequence[memoryview]) -> None:
        self._behind.append([bytes(data) for data in inputs if data is not None])

    def put_off(self) -> list[memoryview | None]:
        """All of the model's inputs for the oldest row that the younger states have not stepped: `window` - 1 rows."""
        count = self._spec.window - 1
        row = self._behind[0]
        repeated = [_repeat(data, each.info, count) for data, each in zip(row, self._spec.inputs, strict=True)]
        return _placed(self._spec, repeated, self._younger)

    def advanced(self, outputs: Sequence[memoryview]) -> None:
        """They have stepped it, and the model gave `outputs`."""
        for state, pair in zip(self._states, self._spec.states, strict=True):
            state.grow(outputs[pair.output])
        del self._behind[0]


class _Ages:
    """One state by age. `oldest`: that of one row less than the window; `younger`: all others, the first of zeros."""

    def __init__(self, state: Array, info: TensorInfo) -> None:
        count = state.shape[info.batch_axis] // info.shape[info.batch_axis] - 1
        self._first, self._last = _along(info, slice(0, count - 1)), _along(info, slice(count - 1, count))
        self._second = _along(info, slice(1, count))
        self._younger = np.array(state[_along(info, slice(0, count))], order="C")
        self._oldest = np.array(state[_along(info, slice(count, count + 1))], order="C")
        self.younger, self.oldest = self._younger.data.cast("B"), self._oldest.data.cast("B")

    def grow(self, stepped: memoryview) -> None:
        """Each is a row older: `stepped` is what became of the younger ones."""
        new = np.frombuffer(stepped, self._younger.dtype).reshape(self._younger.shape)
        self._oldest[...] = new[self._last]
        self._younger[self._second] = new[self._first]


def states_of_zeros(spec: FeedSpec, slots: Sequence[Slot]) -> list[Array]:
    """The states of a staggered feed to which nothing but rows of zeros came, by age: at k those after k rows. One
    place is one row along the batch axis. Raises EngineFailedError, DeviceLostError."""
    states = [np.zeros(pair.info.shape_at(spec.window), pair.info.dtype) for pair in spec.states]
    zeros = [memoryview(bytes(each.info.bytes_at(1))) for each in spec.inputs]
    slot = slots[0]
    for age in range(1, spec.window):
        before = slice(age - 1, age)
        slot.fill(
            1, _placed(spec, zeros, [_piece(s, p.info, before) for s, p in zip(states, spec.states, strict=True)])
        )
        slot.replay()
        outputs = slot.read(1)
        for state, pair in zip(states, spec.states, strict=True):
            stepped = np.frombuffer(outputs[pair.output], state.dtype).reshape(pair.info.shape)
            state[_along(pair.info, slice(age, age + 1))] = stepped
    return states


def advance(states: Sequence[StaggeredState], slot: Slot) -> None:
    """Step one row that each of these has put off, in one run that fills the slot. Raises EngineFailedError,
    DeviceLostError, and then none has stepped."""
    count = slot.bucket // len(states)
    slot.fill_together([(count, state.put_off()) for state in states])
    slot.replay()
    for place, state in enumerate(states):
        state.advanced(slot.read_from(place * count, count))


def settle(state: StaggeredState, slot: Slot) -> DeviceLostError | None:
    """Do all that a state has put off, alone; it is lost where that fails. Returns the device's end, if it was that."""
    try:
        while state.unsettled:
            advance([state], slot)
    except (EngineFailedError, DeviceLostError) as error:
        state.lost = f"{LOST}: {error}"
        return error if isinstance(error, DeviceLostError) else None
    return None


def _placed(spec: FeedSpec, inputs: Inputs, states: Sequence[memoryview]) -> list[memoryview | None]:
    """Inputs and states at their places among the model's inputs; what is left is optional."""
    placed: list[memoryview | None] = [None] * spec.input_count
    for each, data in zip(spec.inputs, inputs, strict=True):
        placed[each.place] = data
    for pair, state in zip(spec.states, states, strict=True):
        placed[pair.input] = state
    return placed


def _along(info: TensorInfo, places: slice) -> tuple[slice, ...]:
    """An index of rows, of which each takes one or more places along the batch axis."""
    per_row = info.shape[info.batch_axis]
    start, stop = (None if end is None else end * per_row for end in (places.start, places.stop))
    return (*(slice(None),) * info.batch_axis, slice(start, stop))


def _piece(state: Array, info: TensorInfo, rows: slice) -> memoryview:
    """Some rows of a state, in C order."""
    return np.ascontiguousarray(state[_along(info, rows)]).data.cast("B")


def _repeat(data: bytes, info: TensorInfo, count: int) -> memoryview:
    """One row, `count` times along its batch axis."""
    row = np.frombuffer(data, info.dtype).reshape(info.shape)
    return np.concatenate([row] * count, info.batch_axis).data.cast("B")
