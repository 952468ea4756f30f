"""Triton's sequences through the door, with tritonclient as it comes: each request is a tick of a feed, and answered
as the whole window, or the state that the last one left, has it; and its priorities."""

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
from tests.doors import KINDS, Triton, arrays, ask, door, request_of
from tests.feed_models import FEATURES, STEPS, Floats, Whole, rows, state_model, window_model
from tests.onnx_models import save, slow
from tests.reference import reference_session
from tests.serving import RunningServer, serve
from tritonclient.utils import InferenceServerException

from tickpath.client import BadValueError, Prediction
from tickpath.door.question import Question, SequenceStep
from tickpath.door.sequences import Sequences
from tickpath.door.upstream import Upstream

NAN_ROW = np.full((1, 1, FEATURES), np.nan, np.float32)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("sequences")
    window = {"path": str(save(window_model(), folder, "window.onnx")), "feed": {"warm_up": "pad"}}
    state = {"path": str(save(state_model(), folder, "state.onnx")), "feed": {"state": {"state": "state_out"}}}
    filling = {**window, "name": "filling", "feed": {}}
    with serve(folder, [window, filling, state], oip_port=0, oip_grpc_port=0) as running:
        yield running


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The window's model, asked directly."""
    return Whole(save(window_model(), tmp_path_factory.mktemp("whole")))


def windows(whole: Whole, ticks: Floats) -> list[bytes]:
    """What is answered to each tick."""
    return [whole.answer(ticks, last).tobytes() for last in range(len(ticks))]


def step_options(place: int, count: int, name: Any = 42) -> dict[str, Any]:
    return {"sequence_id": name, "sequence_start": place == 0, "sequence_end": place == count - 1}


@pytest.mark.parametrize("name", [7, "BTCUSDT"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_is_a_feed(kind: str, name: Any, server: RunningServer, whole: Whole) -> None:
    triton, ticks = Triton(server, kind), rows(STEPS + 3)
    answers = []
    for place, row in enumerate(ticks):
        options = step_options(place, len(ticks), name)
        answers.append(triton.infer("window", {"x": row.reshape(1, 1, FEATURES)}, **options)["y"])
    assert [answer.tobytes() for answer in answers] == windows(whole, ticks)
    _, told = triton.refusal("window", {"x": ticks[0].reshape(1, 1, FEATURES)}, sequence_id=name)
    assert "has not begun" in told


def test_sequences_side_by_side_do_not_mix(server: RunningServer, whole: Whole) -> None:
    """Over one stream each, from one client after the other."""

    async def sequence(client: Any, number: int) -> list[bytes]:
        ticks = rows(10, seed=number)

        async def requests() -> Any:
            for place, row in enumerate(ticks):
                tensor = tritonclient.grpc.InferInput("x", [1, 1, FEATURES], "FP32")
                tensor.set_data_from_numpy(row.reshape(1, 1, FEATURES))
                yield {"model_name": "window", "inputs": [tensor], **step_options(place, 10, 100 + number)}

        answers = [(result, error) async for result, error in client.stream_infer(requests())]
        assert [str(error) for _, error in answers if error] == []
        return [arrays(result)["y"].tobytes() for result, _ in answers]

    async def all_sequences() -> list[list[bytes]]:
        async with tritonclient.grpc.aio.InferenceServerClient(server.ready.oip_grpc) as client:
            return list(await asyncio.gather(*(sequence(client, number) for number in range(5))))

    expected = [windows(whole, rows(10, seed=number)) for number in range(5)]
    assert asyncio.run(all_sequences()) == expected


def test_a_stream_of_the_blocking_client(server: RunningServer, whole: Whole) -> None:
    """A refusal in the middle takes no row, and the sequence goes on."""
    answers: list[Any] = []
    all_there = threading.Semaphore(0)

    def answered(result: Any, error: Any) -> None:
        answers.append(error or arrays(result)["y"].tobytes())
        all_there.release()

    ticks = list(rows(4))
    sent = [ticks[0], ticks[1], np.zeros(FEATURES + 1, np.float32), ticks[2], ticks[3]]
    with tritonclient.grpc.InferenceServerClient(server.ready.oip_grpc) as client:
        client.start_stream(answered)
        for place, row in enumerate(sent):
            tensor = tritonclient.grpc.InferInput("x", [1, 1, row.size], "FP32")
            tensor.set_data_from_numpy(row.reshape(1, 1, -1))
            client.async_stream_infer("window", [tensor], **step_options(place, len(sent), 9))
        for _ in sent:
            assert all_there.acquire(timeout=30)
        client.stop_stream()
    assert isinstance(answers[2], InferenceServerException)
    assert "expected float32[" in str(answers.pop(2))
    assert answers == windows(whole, np.array(ticks))


def test_a_sequence_that_begins_again_begins_anew(server: RunningServer, whole: Whole) -> None:
    triton, ticks = Triton(server, "http"), rows(3)
    for _ in range(2):
        for place, row in enumerate(ticks):
            answer = triton.infer("window", {"x": row.reshape(1, 1, -1)}, sequence_id=3, sequence_start=place == 0)["y"]
            assert answer.tobytes() == whole.answer(ticks, place).tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_that_was_not_taken_may_come_again(kind: str, server: RunningServer, whole: Whole) -> None:
    """However often it is refused, by the core or by the door, and as the first one, too."""
    triton, ticks = Triton(server, kind), rows(STEPS + 1)
    answers = []
    for place, row in enumerate(ticks):
        options = {"sequence_id": 5, "sequence_start": place == 0}
        if place % 2 == 0:
            for wrong in (NAN_ROW, NAN_ROW, NAN_ROW[..., 1:]):
                _, told = triton.refusal("window", {"x": wrong}, **options)
                assert "NaN" in told or "expected float32[" in told
                options["sequence_start"] = False
        answers.append(triton.infer("window", {"x": row.reshape(1, 1, FEATURES)}, **options)["y"])
    assert [answer.tobytes() for answer in answers] == windows(whole, ticks)


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_a_refusal_says_that_a_row_is_taken(kind: str, server: RunningServer, whole: Whole) -> None:
    triton, ticks = Triton(server, kind), rows(STEPS)
    for place, row in enumerate(ticks[:-1]):
        options = {"sequence_id": 6, "sequence_start": place == 0}
        _, told = triton.refusal("filling", {"x": row.reshape(1, 1, FEATURES)}, **options)
        assert told.endswith("its row is taken: send the next one")
        _, told = triton.refusal("filling", {"x": NAN_ROW}, sequence_id=6)
        assert "holds a NaN" in told
        assert "is taken" not in told
    answer = triton.infer("filling", {"x": ticks[-1].reshape(1, 1, FEATURES)}, sequence_id=6, sequence_end=True)["y"]
    assert answer.tobytes() == windows(whole, ticks)[-1]


def test_a_late_end_leaves_what_has_begun_anew(server: RunningServer, whole: Whole) -> None:
    """Two callers begin at once: the end of the one comes when the other's sequence is open under the same id."""

    async def late_and_anew() -> list[Any]:
        upstream = Upstream(server.address)
        sequences, model = Sequences(upstream), await upstream.model("window", "")

        async def step(row: Floats, start: bool = False, end: bool = False) -> Prediction:
            question = Question(model, "", {"x": row.reshape(1, 1, FEATURES)})
            return (await sequences.step(question, SequenceStep("late", start, end)))[0]

        try:
            await step(ticks[0], start=True, end=True)  # from here on neither has to ask for more than its feed
            begun = await asyncio.gather(
                step(NAN_ROW, start=True, end=True), step(ticks[0], start=True), return_exceptions=True
            )
            return [*begun, await step(ticks[1]), await step(ticks[2], end=True)]
        finally:
            await upstream.close()

    ticks = rows(3)
    late, *answers = asyncio.run(late_and_anew())
    assert isinstance(late, BadValueError), late
    assert [answer["y"].tobytes() for answer in answers] == windows(whole, ticks)


def test_a_sequence_does_not_outlive_its_core(tmp_path: Path) -> None:
    """What goes on from nothing would look like an answer."""
    model = {"path": str(save(window_model(), tmp_path, "window.onnx")), "feed": {"warm_up": "pad"}}
    ticks = rows(4)

    def send(url: str, place: int, **more: Any) -> tuple[int, Any]:
        parameters = {"sequence_id": 7, **more}
        row = request_of(ticks[place].reshape(1, 1, FEATURES)) | {"parameters": parameters}
        return ask(url, "v2/models/window/infer", row)

    with door("--at", f"unix:{tmp_path / 's'}", "--http", "0") as (_, ready):
        assert ready.http is not None
        with serve(tmp_path, [model]):
            assert send(ready.http, 0, sequence_start=True)[0] == 200
            assert send(ready.http, 1)[0] == 200
        with serve(tmp_path, [model]):
            status, told = send(ready.http, 2)
            assert (status, "begin it anew with sequence_start" in told["error"]) == (409, True)
            for _ in range(2):
                status, told = send(ready.http, 3)
                assert (status, "has not begun" in told["error"]) == (400, True)
            assert send(ready.http, 0, sequence_start=True)[0] == 200
            assert send(ready.http, 1)[0] == 200


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_a_state_is_kept(kind: str, server: RunningServer, tmp_path: Path) -> None:
    """Only the data is sent, and the state is not told."""
    session = reference_session(save(state_model(), tmp_path))
    state = np.zeros((1, 1, 5), np.float32)
    ticks = rows(5)
    for place, row in enumerate(ticks):
        data = row.reshape(1, 1, FEATURES)
        expected, state = session.run(["predictions", "state_out"], {"data": data, "state": state})
        answer = Triton(server, kind).infer("state", {"data": data}, **step_options(place, len(ticks)))
        assert list(answer) == ["predictions"]
        assert answer["predictions"].tobytes() == expected.tobytes()


def test_no_more_than_are_kept(server: RunningServer) -> None:
    """Of one door; and whoever ends one makes room."""
    x = np.zeros((1, 1, FEATURES), np.float32)

    def begin(name: int, **more: Any) -> tuple[int, Any]:
        parameters = {"sequence_id": name, "sequence_start": True, **more}
        return ask(server, "v2/models/window/infer", request_of(x) | {"parameters": parameters})

    statuses = [begin(1000 + number)[0] for number in range(520)]
    assert set(statuses) == {200, 503}
    begun = statuses.count(200)
    assert statuses[:begun] == [200] * begun
    status, told = begin(5000)
    assert status == 503
    assert "sequences are open" in told["error"] or "feeds" in told["error"]
    for number in range(begun):
        assert begin(1000 + number, sequence_end=True)[0] == 200
    assert begin(5000, sequence_end=True)[0] == 200


def test_priorities_order_those_that_wait(tmp_path: Path) -> None:
    """Triton's 1 goes before its 4, though it came later; 0 is as 1."""
    entry = {"path": str(save(slow(200_000), tmp_path, "slow.onnx")), "executor": "thread", "buckets": [1]}
    order: list[int] = []
    done = threading.Semaphore(0)

    def answered(priority: int, result: Any, error: Any) -> None:
        order.append(priority if error is None and result is not None else -1)
        done.release()

    tensor = tritonclient.grpc.InferInput("x", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.zeros((1, 1), np.float32))
    sent = [4, 4, 4, 4, 1, 1, 0]
    with (
        serve(tmp_path, [entry], oip_port=0, oip_grpc_port=0) as server,
        tritonclient.grpc.InferenceServerClient(server.ready.oip_grpc) as client,
    ):
        for priority in sent:
            client.async_infer("slow", [tensor], partial(answered, priority), priority=priority)
        for _ in sent:
            assert done.acquire(timeout=60)
    assert -1 not in order
    # One may be under way before the others come, and so long that they all do.
    assert order[-2:] == [4, 4], order
