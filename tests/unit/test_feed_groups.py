"""Feeds that step together: how many, in which slots, and that nobody sees it in an answer."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.feed_models import STEPS, Floats, Whole, recurrent_model, rows, step_model

from tickpath.engines import Array, Engine, EngineFailedError
from tickpath.engines.load import load
from tickpath.graphs import Slot
from tickpath.server.config import ModelConfig
from tickpath.server.feed_groups import GROUP_NS_MAX, capture_groups, group_size, group_sizes, why_not
from tickpath.server.feed_lane import FeedLane
from tickpath.server.feed_spec import find_feed
from tickpath.server.feed_state import StaggeredState
from tickpath.server.lane import Answer
from tickpath.wire import PREFIX_BYTES, Infer, Result, decode_server_message

TOGETHER = 4


@pytest.mark.parametrize(
    ("together", "sizes"), [(1, ()), (2, (2,)), (3, (2, 3)), (4, (2, 4)), (6, (2, 4, 6)), (16, (2, 4, 8, 16))]
)
def test_slots_double_up_to_what_is_asked(together: int, sizes: tuple[int, ...]) -> None:
    assert group_sizes(together) == sizes


@pytest.mark.parametrize(("waiting", "size"), [(0, 1), (1, 1), (2, 2), (3, 2), (4, 4), (7, 4), (100, 4)])
def test_no_slot_is_run_half_full(waiting: int, size: int) -> None:
    assert group_size(waiting, (2, 4)) == size


def test_without_slots_each_steps_alone() -> None:
    assert group_size(8, ()) == 1


def test_a_slot_has_to_pay_and_nobody_waits_long_for_it() -> None:
    assert why_not(2, 10_000, 17_000) == ""
    assert "0.95 of what they take one by one" in why_not(2, 10_000, 19_000)
    assert "would wait" in why_not(2, GROUP_NS_MAX, GROUP_NS_MAX + 1)


class Harness:
    """A lane of the step model, and the whole windows' answers beside it."""

    def __init__(self, folder: Path) -> None:
        path = folder / "step.onnx"
        path.write_bytes(step_model().SerializeToString())
        (folder / "whole.onnx").write_bytes(recurrent_model().SerializeToString())
        self.whole = Whole(folder / "whole.onnx")
        self.config = msgspec.convert({"path": str(path), "feed": {"together": TOGETHER}}, ModelConfig)
        self.engine: Engine = load(path)
        feed = find_feed(self.config, self.engine.spec)
        assert feed is not None
        self.feed = feed
        self.lane = FeedLane(self.engine, self.config, (1, STEPS - 1))
        self.groups = self.capture()
        self.lane.keep_feeds(self.feed, self.groups)

    def capture(self) -> dict[int, Slot]:
        return capture_groups(self.engine, self.feed, self.lane.slots[-1], lambda _alone, _slot: "")

    def open(self, number: int, data: Floats) -> None:
        """A feed that has seen these rows, as after a restore or a reload."""
        self.lane.states[number] = StaggeredState(self.feed, self.lane.initial, [[row.tobytes()] for row in data])

    def tick(self, number: int, row: Floats) -> bytes:
        answer = self.lane.run(Infer(1, 1, 1, [memoryview(row.tobytes())], feed=-number), 1, 1)
        assert isinstance(answer, Answer), answer
        result = decode_server_message(memoryview(answer.frame)[PREFIX_BYTES:])
        assert isinstance(result, Result)
        return bytes(result.outputs[0])


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def test_thousands_of_ticks_are_answered_as_whole_windows(harness: Harness) -> None:
    """Several feeds in any order, that step together in groups of any size, alone, or only before their next tick; with
    feeds that begin anew, are made again from their rows, and end."""
    random = np.random.default_rng(0)
    data = {number: rows(600, number) for number in range(1, 8)}
    first = dict.fromkeys(data, 0)
    last = dict.fromkeys(data, 0)
    for number in data:
        harness.open(number, data[number][:0])
    for _ in range(3000):
        number = int(random.integers(1, 8))
        at = last[number] % 600
        if at == 0 or random.random() < 0.01:  # anew: nothing of before may show
            first[number] = at
            harness.open(number, data[number][:0])
        elif random.random() < 0.01:  # restored, or on other weights: its rows are stepped through
            harness.open(number, data[number][max(first[number], at - STEPS) : at])
        got = harness.tick(number, data[number][at])
        expected = harness.whole.answer(data[number][first[number] :], at - first[number])
        assert got == expected.tobytes(), (number, at)
        last[number] = at + 1
        while harness.lane.unsettled and random.random() < 0.3:
            harness.lane.settle()


def test_what_is_put_off_steps_in_the_largest_group_that_it_fills(harness: Harness) -> None:
    ran: list[int] = []
    for size, slot in harness.groups.items():
        _note_runs(slot, size, ran)
    _note_runs(harness.lane.slots[-1], 1, ran)
    for number in range(1, 8):
        harness.open(number, rows(0))
        harness.tick(number, rows(1, number)[0])
    assert ran == []
    while harness.lane.unsettled:
        harness.lane.settle()
    assert ran == [4, 2, 1]


def test_in_a_group_that_fails_each_steps_alone_and_only_the_culprit_is_lost(harness: Harness) -> None:
    data = {number: rows(20, number) for number in range(1, 5)}
    for number in data:
        harness.open(number, rows(0))
        harness.tick(number, data[number][0])

    def fail() -> None:
        raise EngineFailedError("one of these rows can't be stepped")

    alone = harness.lane.slots[-1]
    replay, left = alone.replay, iter((None, fail, None, None))
    harness.groups[4].replay = fail

    def replay_next() -> None:
        (next(left, None) or replay)()

    alone.replay = replay_next
    harness.lane.settle()
    assert not harness.lane.unsettled
    lost = [number for number in data if harness.lane.states[number].lost]
    assert lost == [2]
    assert "can't be stepped" in harness.lane.states[2].lost
    for number in (1, 3, 4):
        assert harness.tick(number, data[number][1]) == harness.whole.answer(data[number], 1).tobytes()


def test_a_slot_that_gives_other_bits_is_left_out(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    capture = harness.engine.capture

    def rounds_otherwise(inputs: list[Array], outputs: list[Array]) -> object:
        graph = capture(inputs, outputs)
        if len(inputs[0]) != 4 * (STEPS - 1):
            return graph
        replay = graph.replay

        class Off:
            def replay(self) -> None:
                replay()
                outputs[0][-1] = np.nextafter(outputs[0][-1], np.float32(9))

        return Off()

    monkeypatch.setattr(harness.engine, "capture", rounds_otherwise)
    assert list(harness.capture()) == [2]
    assert "4 feeds don't step together: 20 rows at once give other bits than 5" in caplog.text


def _note_runs(slot: Slot, size: int, ran: list[int]) -> None:
    replay = slot.replay

    def noted() -> None:
        ran.append(size)
        replay()

    slot.replay = noted
