"""Feeds of a step model with convolutions in front of its recurrent part: answers are the window's, to rounding."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.feed_models import STEPS, Floats, Whole, convolved_model, rows
from tests.serving import RunningServer, serve

from tickpath.client import Client, Feed, FeedGapError, NotReadyError
from tickpath.console.stepping import TOLERANCE
from tickpath.engines.passes import stream

TICKS = 2_000


@pytest.fixture(scope="module", params=["inline", "thread"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("convolved")
    (folder / "whole.onnx").write_bytes(convolved_model().SerializeToString())
    (folder / "step.onnx").write_bytes(stream(convolved_model()).model.SerializeToString())
    feeds: dict[str, dict[str, Any]] = {
        "exact": {},
        "padded": {"warm_up": "pad"},
        "together": {"together": 4},
        "carry": {"mode": "carry"},
    }
    models = [
        {"path": str(folder / "step.onnx"), "name": name, "executor": request.param, "feed": feed}
        for name, feed in feeds.items()
    ]
    with serve(folder, models) as server:
        yield server


def assert_close(got: Floats, expected: Floats) -> None:
    """As `tickpath streaming` allows it, of answers up to 1."""
    np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCE)


def disturb(feed: Feed, chance: float, row: Floats) -> bool:
    """Something that may befall a feed between ticks; whether it began anew."""
    if chance < 0.01:
        feed.reset()
        return True
    if chance < 0.02:
        feed.restore(feed.snapshot())
    elif chance < 0.03:
        with pytest.raises(FeedGapError):
            feed.tick(row, sequence=feed.next_sequence + 1)
        feed.resume()
    return False


@pytest.mark.parametrize("name", ["exact", "padded", "together"])
def test_thousands_of_ticks_are_answered_as_the_whole_window(server: RunningServer, name: str) -> None:
    data, whole = rows(TICKS), Whole(server.log.parent / "whole.onnx")
    random, first = np.random.default_rng(1), 0
    with Client(server.address) as client, client.open_feed(name, "one") as feed:
        for place, row in enumerate(data):
            if disturb(feed, random.random(), row):
                first = place
            if name != "padded" and place - first < STEPS - 1:
                with pytest.raises(NotReadyError):
                    feed.tick(row)
            else:
                assert_close(feed.tick(row)["y"], whole.answer(data[first:], place - first))


def test_what_runs_on_begins_as_a_window_does(server: RunningServer) -> None:
    data, whole = rows(2 * STEPS), Whole(server.log.parent / "whole.onnx")
    with Client(server.address) as client, client.open_feed("carry", "one") as feed:
        answers = [feed.tick(row)["y"] for row in data]
    assert_close(answers[STEPS - 1], whole.answer(data, STEPS - 1))
    assert not np.allclose(answers[-1], whole.answer(data, len(data) - 1))
