"""Feeds across reloads, restarts, idle times and full servers."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.feed_models import FEATURES, STEPS, Whole, recurrent_model, rows, state_model, weighed, window_model
from tests.integration.observer.observing import Scrape
from tests.integration.test_feeds import answers
from tests.reference import reference_session
from tests.repositories import add_version
from tests.serving import RunningServer, serve

from tickpath.client import Client, FeedGapError, OverloadedError, UnknownModelError
from tickpath.console.scrape import fetch
from tickpath.engines.passes import stream


def reload(admin: Path) -> None:
    command = [sys.executable, "-m", "tickpath.cli", "reload", "--admin", str(admin)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr + done.stdout


def reseeded(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with other weights."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    for tensor in other.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            values = onnx.numpy_helper.to_array(tensor) * 0.5
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    return other


@pytest.mark.parametrize("kind", ["window", "exact"])
def test_a_reload_keeps_the_window(tmp_path: Path, kind: str) -> None:
    """Also where states stand for it: those of the old weights are made again with the new ones."""
    repository, admin, data = tmp_path / "models", tmp_path / "admin", rows(40)
    wholes = []
    for label, model in (("1", window_model() if kind == "window" else recurrent_model()),):
        other = reseeded(model)
        served = [each if kind == "window" else stream(each).model for each in (model, other)]
        for number, each in enumerate((model, other)):
            path = tmp_path / f"whole{number}.onnx"
            path.write_bytes(each.SerializeToString())
            wholes.append(Whole(path))
        add_version(repository, "m", label, served[0])
    with serve(tmp_path, [], repository=str(repository), admin=str(admin)) as server, Client(server.address) as client:
        feed = client.open_feed("m", "kept")
        before = answers(feed, data[:20])
        assert before[-1] == wholes[0].answer(data, 19).tobytes()
        add_version(repository, "m", "2", served[1])
        reload(admin)
        for place in range(20, 40):
            answer = feed.tick(data[place])
            assert answer.version == "2"
            assert answer["y"].tobytes() == wholes[1].answer(data, place).tobytes(), place


def test_a_reload_keeps_a_state_that_runs_on(tmp_path: Path) -> None:
    """As it is: the new weights go on from what the old ones left."""
    repository, admin, data = tmp_path / "models", tmp_path / "admin", rows(40)
    versions = [state_model(), reseeded(state_model())]
    add_version(repository, "m", "1", versions[0])
    (repository / "m" / "model.toml").write_text('[feed]\nstate = { state = "state_out" }\n')
    state = np.zeros((1, 1, 5), np.float32)
    with serve(tmp_path, [], repository=str(repository), admin=str(admin)) as server, Client(server.address) as client:
        feed = client.open_feed("m", "kept")
        for number, model in enumerate(versions, 1):
            path = tmp_path / f"{number}.onnx"
            path.write_bytes(model.SerializeToString())
            session = reference_session(path)
            for row in data[20 * (number - 1) : 20 * number]:
                expected, state = session.run(None, {"data": row.reshape(1, 1, -1), "state": state})
                answer = feed.tick(row)
                assert answer.version == str(number)
                assert answer["predictions"].tobytes() == expected.tobytes()
            if number == 1:
                add_version(repository, "m", "2", versions[1])
                reload(admin)


def test_a_reload_with_other_tensors_ends_the_feed(tmp_path: Path) -> None:
    repository, admin = tmp_path / "models", tmp_path / "admin"
    add_version(repository, "m", "1", window_model())
    with serve(tmp_path, [], repository=str(repository), admin=str(admin)) as server, Client(server.address) as client:
        feed = client.open_feed("m", "ended")
        answers(feed, rows(STEPS))
        add_version(repository, "m", "2", weighed((STEPS + 1, FEATURES)))
        reload(admin)
        with pytest.raises(UnknownModelError, match="ask for Models again") as refused:
            feed.tick(rows(1)[0])
        assert refused.value.next_sequence == STEPS + 1


def test_a_reload_with_other_feeds_is_a_gap(tmp_path: Path) -> None:
    repository, admin = tmp_path / "models", tmp_path / "admin"
    add_version(repository, "m", "1", window_model())
    with serve(tmp_path, [], repository=str(repository), admin=str(admin)) as server, Client(server.address) as client:
        feed = client.open_feed("m", "ended")
        answers(feed, rows(STEPS))
        (repository / "m" / "model.toml").write_text('[feed]\nwarm_up = "pad"\n')
        add_version(repository, "m", "2", reseeded(window_model()))
        reload(admin)
        with pytest.raises(FeedGapError, match="keeps other feeds"):
            feed.tick(rows(1)[0])
        feed.reset()
        assert feed.tick(rows(1)[0]).version == "2"


@pytest.mark.parametrize("kind", ["window", "state"])
def test_a_snapshot_outlives_the_server(tmp_path: Path, kind: str) -> None:
    (tmp_path / "m.onnx").write_bytes((window_model() if kind == "window" else state_model()).SerializeToString())
    entry: dict[str, object] = {"path": str(tmp_path / "m.onnx")}
    if kind == "state":
        entry["feed"] = {"state": {"state": "state_out"}}
    data = rows(40)
    with serve(tmp_path, [entry]) as server, Client(server.address) as client:
        feed = client.open_feed("m", "moved")
        answers(feed, data[:20])
        snapshot = feed.snapshot()
        expected = answers(feed, data[20:])
    with (
        serve(tmp_path, [entry]) as server,
        Client(server.address) as client,
        client.open_feed("m", "moved", snapshot=snapshot) as feed,
    ):
        assert answers(feed, data[20:]) == expected


def test_a_feed_knows_that_its_server_is_another(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(window_model().SerializeToString())
    entry, socket = {"path": str(tmp_path / "m.onnx")}, tmp_path / "s"
    data = rows(20)
    with serve(tmp_path, [entry], port=False) as server:
        client = Client(f"unix:{socket}")
        feed = client.open_feed("m", "moved")
        answers(feed, data[:10])
        assert server.uds == f"unix:{socket}"
        client.close()
    with serve(tmp_path, [entry], port=False), client:
        with pytest.raises(FeedGapError, match="takes tick 1 next, this client is at 11"):
            feed.tick(data[10])
        assert answers(feed, data[:6])[-1] is not None


def test_idle_feeds_are_forgotten(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(window_model().SerializeToString())
    with (
        serve(tmp_path, [{"path": str(tmp_path / "m.onnx")}], feed_idle_s=0.2, observer_port=0) as server,
        Client(server.address) as client,
    ):
        feed = client.open_feed("m", "idle")
        answers(feed, rows(2))
        while metric(server, "tickpath_feeds_expired_total") == 0:
            time.sleep(0.01)
        assert metric(server, "tickpath_feeds") == 0
        with pytest.raises(FeedGapError, match="not open any more"):
            feed.tick(rows(1)[0])
        feed.resume()
        assert feed.next_sequence == 1


def metric(server: RunningServer, name: str) -> float:
    assert server.ready.observer is not None
    return Scrape("\n".join(fetch(server.ready.observer))).value(name)


def test_a_server_has_so_many_feeds_and_bytes(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(window_model().SerializeToString())
    entry = {"path": str(tmp_path / "m.onnx")}
    feed_bytes = 2 * STEPS * FEATURES * 4
    limits: tuple[dict[str, Any], ...] = ({"feeds_max": 3}, {"feed_bytes_max": 4 * feed_bytes - 1})
    for limit in limits:
        with serve(tmp_path, [entry], **limit) as server, Client(server.address) as client:
            feeds = [client.open_feed("m", str(number)) for number in range(3)]
            with pytest.raises(OverloadedError, match=next(iter(limit))):
                client.open_feed("m", "one more")
            feeds[0].close()
            client.open_feed("m", "one more")
