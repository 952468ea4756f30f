"""What the feeds of a model are, by its configuration, its file and its shapes."""

from typing import Any

import msgspec
import numpy as np
import pytest

from tickpath.engines import EngineSpec, FeedHint, ModelRefusedError, TensorSpec
from tickpath.server.config import ModelConfig
from tickpath.server.feed_spec import FeedSpec, find_feed

FLOAT = np.dtype(np.float32)
X = TensorSpec("x", FLOAT, (1, 8, 3), 0)
Y = TensorSpec("y", FLOAT, (1, 2), 0)
H = TensorSpec("h", FLOAT, (2, 1, 4), 1)
H_NEXT = TensorSpec("h_next", FLOAT, (2, 1, 4), 1)
ROW = TensorSpec("x", FLOAT, (1, 3), 0)
STEP = ((ROW, H), (Y, H_NEXT))


def found(
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...] = (Y,),
    hint: FeedHint | None = None,
    rows_fixed: int | None = None,
    **feed: Any,
) -> FeedSpec | None:
    config = msgspec.convert({"path": "m.onnx"} | ({"feed": feed} if feed else {}), ModelConfig)
    return find_feed(config, EngineSpec(inputs, outputs, "test", "float32", "", rows_fixed, feed=hint))


def test_one_input_of_steps_and_features_has_a_window() -> None:
    feed = found((X,))
    assert feed is not None
    assert (feed.mode, feed.window, feed.pads, feed.staggered) == ("window", 8, False, False)
    assert [(each.info.shape, each.window, each.stripes) for each in feed.inputs] == [((1, 1, 3), 8, 1)]
    assert feed.kept_bytes == 2 * 8 * 12


def test_a_model_of_one_row_has_a_window_too() -> None:
    feed = found((TensorSpec("x", FLOAT, (1, 8, 3)),))
    assert feed is not None
    assert (feed.window, feed.inputs[0].info.describe()) == (8, "float32[1,1,3]")


@pytest.mark.parametrize(
    "inputs",
    [
        (ROW,),
        (X, ROW),
        (TensorSpec("x", FLOAT, (1, 1, 3), 0),),
        (TensorSpec("x", FLOAT, (8, 1, 3), 1),),
    ],
)
def test_nobody_is_given_a_window_that_may_be_none(inputs: tuple[TensorSpec, ...]) -> None:
    assert found(inputs) is None


def test_what_has_no_time_is_sent_whole() -> None:
    feed = found((X, ROW, TensorSpec("o", FLOAT, (3,), None, np.zeros(3, np.float32))), window=8)
    assert feed is not None
    assert [(each.place, each.window) for each in feed.inputs] == [(0, 8), (1, 0)]


def test_time_may_be_any_axis() -> None:
    feed = found((TensorSpec("x", FLOAT, (1, 3, 8), 0),), axis=2)
    assert feed is not None
    assert (feed.inputs[0].info.shape, feed.inputs[0].stripes) == ((1, 3, 1), 3)


def test_a_state_runs_on() -> None:
    feed = found(*STEP, state={"h": "h_next"})
    assert feed is not None
    assert (feed.mode, feed.window) == ("carry", 0)
    assert [each.info.name for each in feed.inputs] == ["x"]
    assert [info.name for info in feed.outputs] == ["y"]
    assert feed.kept_bytes == H.row_bytes


def test_a_file_says_what_its_feeds_are_and_the_operator_chooses() -> None:
    hint = FeedHint(8, (("h", "h_next"),))
    window, carry = found(*STEP, hint), found(*STEP, hint, mode="carry")
    assert window is not None
    assert carry is not None
    assert (window.staggered, window.window) == (True, 8)
    assert (carry.staggered, carry.mode, carry.window) == (False, "carry", 0)


@pytest.mark.parametrize(
    ("inputs", "outputs", "feed", "says"),
    [
        ((X,), (Y,), {"mode": "carry"}, "needs the states"),
        ((X,), (Y,), {"window": 9}, "no input has a time axis 1 of 9 rows"),
        ((X,), (Y,), {"axis": 5}, "no input has a time axis 5"),
        ((X,), (Y,), {"axis": 0}, "no input has a time axis 0"),
        (*STEP, {"state": {"g": "h_next"}}, "names input 'g'; there are x, h"),
        (*STEP, {"state": {"h": "g"}}, "names output 'g'; there are y, h_next"),
        (*STEP, {"state": {"x": "h_next"}}, "must have one dtype, shape and batch axis"),
        (*STEP, {"state": {"h": "h_next"}, "mode": "window"}, "needs feed.window"),
        (*STEP, {"state": {"h": "h_next"}, "window": 1}, "of 2 rows or more"),
        (*STEP, {"state": {"h": "h_next"}, "window": 65538}, "feed.window is 65538, and 65537 is the most"),
        (
            (TensorSpec("x", FLOAT, (1, 3)), H),
            (Y, H_NEXT),
            {"state": {"h": "h_next"}, "window": 8},
            "every input needs an open batch axis; 'x' has none",
        ),
        ((X,), (Y,), {"together": 2}, "feed.together is for step models"),
        (*STEP, {"state": {"h": "h_next"}, "together": 2}, "feed.together is for step models"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_the_reason(
    inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], feed: dict[str, Any], says: str
) -> None:
    with pytest.raises(ModelRefusedError, match="its feeds can't be kept") as refused:
        found(inputs, outputs, **feed)
    assert says in str(refused.value)


def test_feeds_move_between_versions_that_step_other_numbers_together() -> None:
    hint = FeedHint(8, (("h", "h_next"),))
    one, four = found(*STEP, hint=hint), found(*STEP, hint=hint, together=4)
    assert one is not None
    assert four is not None
    assert (one == four, one.together, four.together) == (True, 1, 4)


def test_a_model_of_fixed_rows_has_no_feeds() -> None:
    assert found((X,), rows_fixed=8) is None
    with pytest.raises(ModelRefusedError, match="takes 8 rows at once"):
        found((X,), rows_fixed=8, window=8)
    assert found((X,), rows_fixed=1) is not None
