"""The lane of a model with states: it also runs the ticks of feeds, each on from the state that the last one left."""

from collections.abc import Mapping, Sequence
from itertools import islice

import msgspec

from tickpath.engines import Array, DeviceLostError, EngineFailedError
from tickpath.graphs import Slot
from tickpath.server.admission import Refusal
from tickpath.server.feed_groups import group_size
from tickpath.server.feed_spec import FeedSpec
from tickpath.server.feed_state import FeedState, StaggeredState, advance, settle, states_of_zeros
from tickpath.server.lane import Answer, Lane
from tickpath.wire import PREFIX_BYTES, Code, Infer, Result, decode_server_message, encode_frame


class FeedLane(Lane):
    """As a Lane. `states`: those of each open feed, by number; a feed enters and leaves while no tick of it runs."""

    feed: FeedSpec
    initial: Sequence[Array] = ()
    """Of a staggered feed to which nothing has come."""

    def keep_feeds(self, feed: FeedSpec, groups: Mapping[int, Slot]) -> None:
        """Once its slots are warm. `groups`: further slots, in which so many feeds step together. Raises
        EngineFailedError, DeviceLostError."""
        self.feed = feed
        self.states: dict[int, FeedState] = {}
        self._put_off: dict[StaggeredState, None] = {}  # in the order of their ticks
        self._groups = dict(groups)
        self._given = [pair.output for pair in feed.states]
        if feed.staggered:
            self.initial = states_of_zeros(feed, self.slots)

    def run(self, infer: Infer, first_byte_ns: int, received_ns: int) -> Answer | Refusal:
        """As a Lane's; a tick of a feed (`infer.feed` below 0) has what FeedOpened lists as its inputs."""
        if infer.feed >= 0:
            return super().run(infer, first_byte_ns, received_ns)
        state = self.states[-infer.feed]
        if isinstance(state, StaggeredState) and state.unsettled:  # alone: its reply waits
            self._put_off.pop(state, None)
            self._settle(state)
        if state.lost:
            return Refusal(Code.FEED_GAP, f"{state.lost}: open the feed anew, or with a snapshot")
        whole = msgspec.structs.replace(infer, inputs=state.inputs(infer.inputs), feed=0)
        answer = super().run(whole, first_byte_ns, received_ns)
        if isinstance(answer, Refusal):
            state.lost = f"its state was lost when a tick failed ({answer.code.name})"
            return answer
        state.stepped(infer.inputs, self.slots[0].read(1))
        if isinstance(state, StaggeredState):
            self._put_off[state] = None
        return msgspec.structs.replace(answer, frame=self._without_states(answer.frame))

    @property
    def unsettled(self) -> bool:
        return bool(self._put_off)

    def at_rest(self, infer: Infer) -> bool:
        return infer.feed < 0 and not self._put_off and not self.states[-infer.feed].unsettled

    def settle(self) -> None:
        group = list(islice(self._put_off, group_size(len(self._put_off), tuple(self._groups))))
        for state in group:
            del self._put_off[state]
        if len(group) < 2 or not self._advanced_together(group):
            for state in group:
                self._settle(state)

    def close(self) -> None:
        self._put_off.clear()
        self._groups.clear()
        super().close()

    def _advanced_together(self, group: Sequence[StaggeredState]) -> bool:
        """False: none has stepped, and each by itself will say what is the matter with it."""
        try:
            advance(group, self._groups[len(group)])
        except (EngineFailedError, DeviceLostError):
            return False
        return True

    def _settle(self, state: StaggeredState) -> None:
        if (lost := settle(state, self.slots[-1])) is not None:
            self.device_lost(lost)

    def _without_states(self, frame: bytes) -> bytes:
        """The reply without what stays here."""
        result = decode_server_message(memoryview(frame)[PREFIX_BYTES:])
        assert isinstance(result, Result)
        outputs = [data for place, data in enumerate(result.outputs) if place not in self._given]
        return encode_frame(msgspec.structs.replace(result, outputs=outputs))
