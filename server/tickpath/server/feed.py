"""A feed: a client's named sequence of ticks, and what the server keeps of it. No clock and no I/O.

Rules
- A tick is taken or it is not. It is taken when its form, its number and its values are right and there is room to run
  it; then its row is in the window whatever becomes of its answer, and its number is used up.
- Where states run on, ticks run in their order, and a taken one always runs: it can't be taken back, and a budget only
  decides whether its answer is still given. Over a plain window each has its own rows with it, and runs as a request.
- What is asked of the feed as a whole waits until the ticks before it have been answered; ticks behind it wait their
  turn by being refused.
- The loop's thread owns all of it; a state belongs to the lane while ticks are under way (see feed_state.py).
"""

from collections.abc import Callable
from typing import Final, Literal

import msgspec
import numpy as np

from tickpath.engines import Array
from tickpath.graphs import Window
from tickpath.server.admission import ModelRules, Refusal, model_rules, refuse_inputs, refuse_priority
from tickpath.server.catalogue import Route, key_of
from tickpath.server.feed_lane import FeedLane
from tickpath.server.feed_spec import FeedSpec
from tickpath.server.feed_state import CarriedState, FeedState, StaggeredState
from tickpath.server.lane import Answer
from tickpath.server.version import Version
from tickpath.wire import Code, Infer, Tick

SNAPSHOT_FORMAT: Final = 1
# A snapshot's next tick: any language's integer holds it, and no feed counts on from it to the end of the wire's.
SEQUENCE_MAX: Final = 2**63 - 1


class Snapshot(msgspec.Struct, array_like=True, frozen=True):
    """What a feed holds, as bytes for another server. `tensors` tell what `parts` are: the windows of a feed that has
    some, else its states."""

    format: int
    mode: Literal["window", "carry"]
    tensors: tuple[str, ...]
    next_sequence: int
    filled: int
    parts: tuple[bytes, ...]


class TakenTick(msgspec.Struct, frozen=True):
    """One tick that was taken."""

    feed: "Feed"
    next_sequence: int
    filled: int  # rows of the window, with its own
    ready: bool
    late_ns: int  # when an answer is too late, on the monotonic clock; 0: never, or others see to it
    budget_ns: int


class WarmUp(Refusal, frozen=True, gc=False):
    """What a tick is told that was taken, and whose feed's window is not full. It is expected at every feed's start, so
    it is counted apart."""


class Feed:
    """One feed of one model. `owner` is the client's name; `session` its connection, None while there is none."""

    def __init__(self, number: int, key: str, owner: str, route: Route, version: Version, spec: FeedSpec) -> None:
        self.number = number
        self.key = key
        self.way = key_of(key)
        """By which a canary takes it or does not, whoever holds it."""
        self.owner = owner
        self.route = route
        self.session: object | None = None
        self.used_s = 0.0
        self.in_flight = 0
        self._waiting: list[Callable[[], None]] = []
        self.begin(version, spec)

    def begin(self, version: Version, spec: FeedSpec) -> None:
        """Start anew, on this version."""
        self.spec = spec
        self.next_sequence = 1
        self.filled = 0
        self.lost = ""
        self._rules = model_rules(version.name, 1, spec.tick_infos)
        self._windows = [
            Window(each.window, each.info.bytes_at(1), each.stripes) if each.window else None for each in spec.inputs
        ]
        self._state: FeedState | None = None
        self._version = version
        self._bind(version)

    @property
    def ready(self) -> bool:
        """Whether the window is full, or need not be."""
        return self.filled >= self.spec.window or self.spec.pads

    @property
    def rules(self) -> ModelRules:
        return self._rules

    def end(self) -> None:
        """Give back what lanes hold of it."""
        if isinstance(self._version.lane, FeedLane):
            self._version.lane.states.pop(self.number, None)

    # -- which version answers --

    def version(self, picked: Version) -> Version:
        """The version that runs the next tick: the one that was picked; with states, the one that runs now until no
        tick is under way."""
        return self._version if self._state is not None and self.in_flight else picked

    def moved(self, version: Version) -> str:
        """Go over to this version, if it is another than before. Returns why the feed can't; empty where it can."""
        if version is self._version:
            return ""
        if version.feed != self.spec:
            return f"version {version.label} of model {version.name!r} keeps other feeds"
        self._bind(version)
        return ""

    def recover(self) -> None:
        """Go on after a failure, where what is kept allows it."""
        if self.lost and self.spec.staggered:
            self.lost = ""
            self._bind(self._version)

    def _bind(self, version: Version) -> None:
        self.end()
        self._version = version
        if not self.spec.states:
            return
        lane = version.lane
        assert isinstance(lane, FeedLane), "a model with states has a lane for them"
        if self.spec.staggered:
            self._state = StaggeredState(self.spec, lane.initial, self._rows())
        elif self._state is None:
            self._state = CarriedState(self.spec)
        lane.states[self.number] = self._state

    def _rows(self) -> list[list[bytes]]:
        """The rows that have come, the oldest first."""
        window = self.spec.window
        return [
            [kept.row(place) for kept in self._windows if kept is not None]
            for place in range(window - self.filled, window)
        ]

    # -- ticks --

    def refuse(self, tick: Tick, priority_levels: int) -> Refusal | None:
        """The refusal of a tick that is not taken, or None."""
        return self._out_of_turn(tick) or self._unfit_tick(tick, priority_levels)

    def _out_of_turn(self, tick: Tick) -> Refusal | None:
        if self.lost:
            return Refusal(Code.FEED_GAP, f"feed {self.key!r}: {self.lost}: open it anew, or with a snapshot")
        if self._waiting:
            return Refusal(Code.NOT_READY, f"feed {self.key!r} is being opened, closed or copied: wait for that answer")
        if tick.sequence != self.next_sequence:
            return Refusal(Code.FEED_GAP, self._gap(tick.sequence))
        return None

    def _unfit_tick(self, tick: Tick, priority_levels: int) -> Refusal | None:
        refusal = refuse_inputs(tick.inputs, 1, self._rules) or refuse_priority(tick.priority, priority_levels)
        if refusal is not None or not self._version.refuses_non_finite:
            return refusal
        if (name := self._bad_value(tick)) is None:
            return None
        return Refusal(
            Code.BAD_VALUE,
            f"input {name!r} holds a NaN or an infinity (or a bool other than 0 and 1), which would stay in feed "
            f'{self.key!r}: send finite values, or serve the model with non_finite = "pass"',
        )

    def take(self, tick: Tick, received_ns: int) -> tuple[Infer, TakenTick]:
        """The tick as what the model is asked. Its inputs are good until the next tick is taken."""
        self.next_sequence += 1
        self.in_flight += 1
        if self._state is not None:
            # No client can send a feed below 0: that this is a tick of an open feed needs no further proof.
            infer = Infer(tick.id, self.route.handle, 1, tick.inputs, 0, 0, -self.number, tick.event_time_ns)
            filled = min(self.filled + 1, self.spec.window)
            ready = self.spec.pads or filled == self.spec.window
            late_ns = received_ns + tick.budget_ns if tick.budget_ns else 0
            return infer, TakenTick(self, self.next_sequence, filled, ready, late_ns, tick.budget_ns)
        self._put(tick)
        data: list[memoryview | None] = [None] * self.spec.input_count
        for each, value, window in zip(self.spec.inputs, tick.inputs, self._windows, strict=True):
            data[each.place] = value if window is None else window.view()
        infer = Infer(tick.id, self.route.handle, 1, data, tick.budget_ns, tick.priority, 0, tick.event_time_ns)
        return infer, TakenTick(self, self.next_sequence, self.filled, self.ready, 0, 0)

    def keep(self, tick: Tick) -> None:
        """The tick runs, or has run: where a state stands for the window, the row is kept beside it."""
        if self._state is not None:
            self._put(tick)

    def _put(self, tick: Tick) -> None:
        for window, row in zip(self._windows, tick.inputs, strict=True):
            if window is not None:
                assert row is not None, "an input with a window is required"
                window.put(row)
        self.filled = min(self.filled + 1, self.spec.window)

    @property
    def must_run(self) -> bool:
        """Whether a tick has to run even where nobody gets its answer."""
        return self._state is not None

    def turned_away(self, taken: TakenTick, refusal: Refusal) -> Refusal:
        """There was no room for a tick after all. It is taken back where it would have to run."""
        if self._state is None:
            return msgspec.structs.replace(refusal, next_sequence=self._over(taken))
        self.next_sequence -= 1
        self._over(taken)
        return msgspec.structs.replace(refusal, next_sequence=self.next_sequence)

    def ended(self, taken: TakenTick, outcome: Answer | Refusal, now_ns: int) -> Answer | Refusal:
        """A tick that was taken is over. Returns what its client is told; `take_up` comes once it has been told."""
        if type(outcome) is not Answer:
            if self._state is not None:
                self.lost = self._state.lost
            outcome = msgspec.structs.replace(outcome, next_sequence=taken.next_sequence)
        elif not taken.ready:
            outcome = self.warming(taken)
        elif taken.late_ns and now_ns > taken.late_ns:
            outcome = Refusal(
                Code.DEADLINE,
                f"the answer came {now_ns - taken.late_ns} ns after the budget of {taken.budget_ns} ns; feed "
                f"{self.key!r} has taken the tick",
                next_sequence=taken.next_sequence,
            )
        self._over(taken)
        return outcome

    def _over(self, taken: TakenTick) -> int:
        """A tick is not under way any more. Returns what comes behind it."""
        self.in_flight -= 1
        return taken.next_sequence

    def warming(self, taken: TakenTick) -> WarmUp:
        """What a tick is told whose row is taken and whose window is not full."""
        return WarmUp(
            Code.NOT_READY,
            f"feed {self.key!r} has taken the row; its window holds {taken.filled} of "
            f"{self.spec.window} rows, and answers come from the last on",
            next_sequence=taken.next_sequence,
        )

    def _gap(self, came: int) -> str:
        what = "came before" if came < self.next_sequence else "leaves a gap"
        return (
            f"feed {self.key!r}: tick {self.next_sequence} is next, {came} {what}: send that one, or open the feed anew"
        )

    def _bad_value(self, tick: Tick) -> str | None:
        for each, data in zip(self.spec.inputs, tick.inputs, strict=True):
            if data is not None and not _allowed(np.frombuffer(data, each.info.dtype)):
                return each.info.name
        return None

    # -- the feed as a whole --

    def when_idle(self, call: Callable[[], None]) -> None:
        """Call, once every tick before has been answered."""
        self._waiting.append(call)
        self.take_up()

    def take_up(self) -> None:
        """Do what has waited for ticks, if none is under way any more."""
        while self._waiting and not self.in_flight:
            self._waiting.pop(0)()

    def snapshot(self) -> bytes:
        """What it holds. Only while no tick is under way."""
        parts = [bytes(window.view()) for window in self._windows if window is not None]
        if isinstance(self._state, CarriedState):
            parts = self._state.parts
        return msgspec.msgpack.encode(
            Snapshot(
                SNAPSHOT_FORMAT, self.spec.mode, _tensors(self.spec), self.next_sequence, self.filled, tuple(parts)
            )
        )

    def restore(self, data: memoryview) -> str:
        """Take what a snapshot says. Only while no tick is under way. Returns why it can't be taken, and then nothing
        has changed; empty where it was."""
        try:
            snapshot = msgspec.msgpack.decode(data, type=Snapshot)
        except (msgspec.DecodeError, RecursionError) as error:
            return f"it is none of this server's: {error}"
        if why := self._unfit(snapshot):
            return why
        self.next_sequence, self.filled, self.lost = snapshot.next_sequence, snapshot.filled, ""
        parts = [memoryview(part) for part in snapshot.parts]
        if self.spec.window:
            for window, part in zip([kept for kept in self._windows if kept is not None], parts, strict=True):
                window.fill(part)
        else:
            self._state = CarriedState(self.spec, parts)
        self._bind(self._version)
        return ""

    def _unfit(self, snapshot: Snapshot) -> str:
        mine = (SNAPSHOT_FORMAT, self.spec.mode, _tensors(self.spec))
        if (snapshot.format, snapshot.mode, snapshot.tensors) != mine:
            return (
                f"it is {snapshot.mode} of {', '.join(snapshot.tensors)}, this feed {mine[1]} of {', '.join(mine[2])}"
            )
        sizes = _sizes(self.spec)
        came = [len(part) for part in snapshot.parts]
        if came != sizes or not 0 <= snapshot.filled <= self.spec.window:
            return f"it is damaged: parts of {sizes} bytes are expected, {came} came"
        if not 1 <= snapshot.next_sequence <= SEQUENCE_MAX:
            return f"it is damaged: its next tick can be 1 to {SEQUENCE_MAX}, {snapshot.next_sequence} came"
        return ""


def _tensors(spec: FeedSpec) -> tuple[str, ...]:
    if not spec.window:
        return tuple(f"{pair.info.name} {pair.info.describe()}" for pair in spec.states)
    return tuple(f"{each.info.name} {each.info.describe()} x {each.window}" for each in spec.inputs if each.window)


def _sizes(spec: FeedSpec) -> list[int]:
    if not spec.window:
        return [pair.info.bytes_at(1) for pair in spec.states]
    return [each.window * each.info.bytes_at(1) for each in spec.inputs if each.window]


def _allowed(values: Array) -> bool:
    if values.dtype.kind == "f":
        return bool(np.isfinite(values).all())
    return values.dtype.kind != "b" or values.size == 0 or int(values.view(np.uint8).max()) <= 1
