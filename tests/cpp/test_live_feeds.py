"""Feeds of the C++ client on a real server: the Python client's answers bit for bit, gaps, snapshots between the two
languages, and a version that is not live. What a sanitizer finds ends the driver, and the test."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from tests.cpp.driver import Driver, Said, output
from tests.feed_models import STEPS, Floats, Whole, rows, state_model, step_model, window_model
from tests.integration.test_feeds_live_on import reseeded
from tests.repositories import add_version
from tests.serving import RunningServer, serve

from tickpath.client import Client, NotReadyError

DATA: Final = rows(60)
STATE: Final = {"state": {"state": "state_out"}}
MODELS: Final = ("window", "exact", "carry", "state")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Every kind of feed, and a model of two versions, of which "2" is live."""
    folder = tmp_path_factory.mktemp("feeds")
    files = {"window": window_model(), "step": step_model(), "state": state_model()}
    for name, model in files.items():
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    entries: list[dict[str, object]] = [
        {"path": str(folder / "window.onnx")},
        {"path": str(folder / "step.onnx"), "name": "exact"},
        {"path": str(folder / "step.onnx"), "name": "carry", "feed": {"mode": "carry"}},
        {"path": str(folder / "state.onnx"), "feed": STATE},
    ]
    repository = folder / "models"
    add_version(repository, "two", "1", window_model())
    add_version(repository, "two", "2", reseeded(window_model()))
    (repository / "two" / "model.toml").write_text('versions = ["1", "2"]\n')
    with serve(folder, entries, repository=str(repository)) as running:
        yield running


@pytest.fixture
def connected(client: Driver, server: RunningServer) -> Driver:
    assert client.connect(server.address)["status"] == "OK"
    return client


def tick(client: Driver, row: Floats) -> Said:
    return client.say("tick", f"float32:{row.tobytes().hex()}")


def test_ticks_give_what_python_gets(connected: Driver, server: RunningServer) -> None:
    with Client(server.address) as python:
        for model in MODELS:
            feed = python.open_feed(model, f"python {model}")
            opened = connected.say("open", model, f"cpp-{model}", 0)
            assert (opened["status"], opened["next_sequence"], opened["window"]) == ("OK", 1, feed.info.window)
            for place, row in enumerate(DATA):
                said = tick(connected, row)
                assert said["feed_next"] == place + 2
                try:
                    (expected,) = feed.tick(row).outputs.values()
                except NotReadyError:
                    assert (said["status"], said["next_sequence"]) == ("NOT_READY", place + 2)
                else:
                    assert said["status"] == "OK", said
                    assert output(said).tobytes() == expected.tobytes(), (model, place)
            assert connected.say("close_feed")["status"] == "OK"
            assert connected.say("open", model, f"cpp-{model}", 0)["next_sequence"] == 1, "it was forgotten"


def test_a_gap_says_what_comes_next_and_anew_empties(connected: Driver, server: RunningServer) -> None:
    assert connected.say("open", "window", "shared", 1)["status"] == "OK"
    for row in DATA[:STEPS]:
        tick(connected, row)
    with Client(server.address, name="driver") as python:  # the same name: it takes the feed over, and goes on
        feed = python.open_feed("window", "shared")
        assert feed.next_sequence == STEPS + 1
        feed.tick(DATA[STEPS])
        assert tick(connected, DATA[STEPS])["status"] == "FORBIDDEN"
        opened = connected.say("open", "window", "shared", 0)
        assert (opened["next_sequence"], opened["filled"]) == (STEPS + 2, STEPS)
    assert connected.say("seek", 3)["status"] == "OK"  # a repeat of what was taken long ago
    gap = tick(connected, DATA[2])
    assert (gap["status"], gap["next_sequence"], gap["feed_next"]) == ("FEED_GAP", STEPS + 2, STEPS + 2)
    assert tick(connected, DATA[STEPS + 1])["status"] == "OK"
    opened = connected.say("open", "window", "shared", 1)
    assert (opened["next_sequence"], opened["filled"]) == (1, 0)


@pytest.mark.parametrize("model", MODELS)
def test_a_snapshot_goes_on_in_the_other_language(connected: Driver, server: RunningServer, model: str) -> None:
    """From C++ to Python and back, under other keys: the answers are those of a feed that never moved."""
    with Client(server.address) as python:
        whole = python.open_feed(model, f"whole {model}")
        connected.say("open", model, f"first-{model}", 1)
        for row in DATA[:20]:
            tick(connected, row)
        taken = bytes.fromhex(connected.say("snapshot")["snapshot"])
        moved = python.open_feed(model, f"moved {model}", snapshot=taken)
        assert moved.next_sequence == 21
        expected = whole.tick_many(DATA)[20:]
        for row, outcome in zip(DATA[20:40], expected, strict=False):
            (answer,), (right,) = moved.tick(row).outputs.values(), outcome.outputs.values()  # type: ignore[union-attr]
            assert answer.tobytes() == right.tobytes()
        back = connected.say("open", model, f"back-{model}", 0, moved.snapshot().hex())
        assert back["next_sequence"] == 41
        for row, outcome in zip(DATA[40:], expected[20:], strict=True):
            (right,) = outcome.outputs.values()  # type: ignore[union-attr]
            assert output(tick(connected, row)).tobytes() == right.tobytes()


def test_a_snapshot_that_does_not_fit(connected: Driver) -> None:
    connected.say("open", "window", "cut", 1)
    taken = connected.say("snapshot")["snapshot"]
    assert connected.say("open", "state", "cut", 0, taken)["status"] == "BAD_VALUE"
    assert connected.say("open", "window", "cut", 0, taken[:-2] or "00")["status"] == "BAD_VALUE"
    assert connected.say("open", "window", "cut", 0, taken)["next_sequence"] == 1


def test_a_feed_of_a_version_that_is_not_live(connected: Driver, server: RunningServer, tmp_path: Path) -> None:
    answers: dict[str, bytes] = {}
    assert connected.say("models", "versions")["status"] == "OK"
    for name in ("two@1", "two@2"):
        assert connected.say("open", name, f"pinned-{name}", 1)["status"] == "OK"
        for row in DATA[:STEPS]:
            said = tick(connected, row)
        assert said["version"] == name[-1]
        answers[name] = output(said).tobytes()
    for name, model in {"two@1": window_model(), "two@2": reseeded(window_model())}.items():
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(model.SerializeToString())
        assert answers[name] == Whole(path).answer(DATA, STEPS - 1).tobytes()


def test_a_wrong_row_is_refused_here_and_takes_no_number(connected: Driver) -> None:
    connected.say("open", "window", "wrong", 1)
    for row in DATA[: STEPS - 1]:
        tick(connected, row)
    assert connected.say("tick", "float32:00000000")["status"] == "BAD_SHAPE"
    nan = tick(connected, np.full_like(DATA[0], np.nan))
    assert (nan["status"], nan["feed_next"]) == ("BAD_VALUE", STEPS)
    assert tick(connected, DATA[STEPS - 1])["status"] == "OK"
