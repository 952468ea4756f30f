"""A model whose runtime really fails on some requests, and what stands in for its answers: beside other clients, on
threads, over hot reloads, and never in silence."""

import asyncio
import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.integration.observer.observing import Scrape
from tests.onnx_models import one_node, picky, save
from tests.operators import Operator, add_whole_version
from tests.serving import RunningServer, serve

from tickpath.client import AsyncClient, Client, EngineFailedError, Flag, Prediction
from tickpath.engines import Array

EXECUTORS = ("inline", "thread")
FAILING = 1000.0


def x(*values: float) -> Array:
    return np.array(values, np.float32).reshape(-1, 1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("fallback")
    path = str(save(picky(), folder, "picky.onnx"))
    log = str(save(one_node("Log", np.float32, ["N", 1]), folder, "log.onnx"))
    # An hour: how long a test takes decides nothing.
    last = {"fallback": "last", "fallback_age_max_s": 3600.0}
    models = [{"path": path, "name": f"last-{executor}", "executor": executor, **last} for executor in EXECUTORS]
    models += [
        {"path": path, "name": "none"},
        {"path": path, "name": "short", "fallback": "last", "fallback_age_max_s": 1e-9},
        {"path": log, "name": "refused", "output_non_finite": "refuse", **last},
        {"path": log, "name": "replaced", "output_non_finite": "refuse", "fallback_for_refused": True, **last},
        {"path": path, "name": "marked", "output_max": 100, "out_of_bounds": "flag", **last},
    ]
    with serve(folder, models, observer_port=0) as server:
        yield server


def scrape(server: RunningServer) -> Scrape:
    with Client(server.address) as client:
        client.ping()  # behind it, what was answered has been counted
    with urllib.request.urlopen(f"{server.ready.observer}/metrics", timeout=30) as response:
        return Scrape(response.read().decode())


def fallbacks(server: RunningServer, model: str) -> dict[str, float]:
    page = scrape(server)
    return {kind: page.value("tickpath_fallbacks_total", model=model, kind=kind) for kind in ("last", "cpu")}


def is_last(prediction: Prediction) -> bool:
    assert (prediction.age_ns > 0) is (prediction.flags == Flag.LAST_ANSWER)
    return prediction.flags == Flag.LAST_ANSWER


@pytest.mark.parametrize("executor", EXECUTORS)
def test_the_last_answer_stands_in(executor: str, server: RunningServer) -> None:
    name = f"last-{executor}"
    with Client(server.address) as client:
        before = fallbacks(server, name)
        with pytest.raises(EngineFailedError, match="no earlier answer of 1 row to stand in for it"):
            client.infer(name, x(FAILING))
        good = client.infer(name, x(3))
        assert (good["y"].tolist(), good.flags, good.age_ns) == ([[9]], 0, 0)
        ages = []
        for _ in range(3):  # what stands in is not a good answer: its age goes on
            answer = client.infer(name, x(FAILING))
            assert is_last(answer)
            assert answer["y"].tolist() == [[9]]
            assert list(answer.stamps) == sorted(answer.stamps)
            assert answer.stamps[0] > good.stamps[-1]
            assert answer.age_ns >= answer.stamps[0] - good.stamps[4]
            ages.append(answer.age_ns)
        assert ages == sorted(set(ages))
        assert client.infer(name, x(5))["y"].tolist() == [[25]]
        assert client.infer(name, x(FAILING))["y"].tolist() == [[25]]
        assert fallbacks(server, name) == before | {"last": before["last"] + 4}


def test_as_many_rows_or_none(server: RunningServer) -> None:
    with Client(server.uds) as client:
        client.infer("last-inline", x(1, 2, 3))
        with pytest.raises(EngineFailedError, match="no earlier answer of 2 rows"):
            client.infer("last-inline", x(FAILING, 1))
        assert client.infer("last-inline", x(1, 2, FAILING))["y"].tolist() == [[1], [4], [9]]
        assert client.infer("last-inline", x(7))["y"].tolist() == [[49]]
        with pytest.raises(EngineFailedError, match="no earlier answer of 3 rows"):
            client.infer("last-inline", x(1, 2, FAILING))


def test_without_a_fallback_and_past_its_age_a_failure_is_one(server: RunningServer) -> None:
    with Client(server.address) as client:
        for name, says in (("none", "out of data bounds"), ("short", "ns old, and may be 1")):
            client.infer(name, x(3))
            with pytest.raises(EngineFailedError, match=says):
                client.infer(name, x(FAILING))
            assert fallbacks(server, name) == {"last": 0, "cpu": 0}


def test_a_refused_output_stays_refused_unless_it_is_allowed(server: RunningServer) -> None:
    with Client(server.address) as client:
        for name in ("refused", "replaced"):
            assert client.infer(name, x(1))["y"].tolist() == [[0]]
        with pytest.raises(EngineFailedError, match="the answer is refused: output 'y'"):
            client.infer("refused", x(-1))
        answer = client.infer("replaced", x(-1))
        assert is_last(answer)
        assert answer["y"].tolist() == [[0]]
        assert scrape(server).value("tickpath_numeric_total", model="replaced", reason="output_non_finite") == 1


def test_a_flagged_answer_is_no_good_one(server: RunningServer) -> None:
    with Client(server.address) as client:
        assert client.infer("marked", x(10)).flags == 0
        assert client.infer("marked", x(11)).flags == Flag.OUTPUT_OUT_OF_BOUNDS
        assert client.infer("marked", x(FAILING))["y"].tolist() == [[100]]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_no_client_ever_gets_anothers_answer(executor: str, server: RunningServer) -> None:
    """Each has a number of its own, and each second request of all fails."""
    wrong: list[object] = []

    def ask(number: int) -> None:
        try:
            with Client(server.address) as client:
                for _ in range(100):
                    good, stand_in = (client.infer(f"last-{executor}", x(value)) for value in (number, FAILING))
                    if (good.flags, stand_in.flags) != (0, Flag.LAST_ANSWER):
                        wrong.append((good, stand_in))
                    if not good["y"] == stand_in["y"] == number**2:
                        wrong.append((number, good, stand_in))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("executor", EXECUTORS)
def test_pipelined_requests_of_one_session(executor: str, server: RunningServer) -> None:
    """Answered in their order, each failure by the good answer just before it."""

    async def ask() -> list[Prediction]:
        async with AsyncClient(server.uds) as client:
            values = [value for number in range(1, 11) for value in (float(number), FAILING)]
            return await asyncio.gather(*(client.infer(f"last-{executor}", x(value)) for value in values))

    answers = asyncio.run(ask())
    assert [answer["y"].item() for answer in answers[::2]] == [number**2 for number in range(1, 11)]
    assert [answer["y"].item() for answer in answers[1::2]] == [number**2 for number in range(1, 11)]
    assert [is_last(answer) for answer in answers] == [False, True] * 10


def test_a_fallback_names_the_version_that_answered_then(tmp_path: Path) -> None:
    """Over a hot reload the handle stays, and so does the last answer, until the new version has given one."""
    models = tmp_path / "models"
    add_whole_version(models, "squares", "1", picky())
    (models / "squares" / "model.toml").write_text('fallback = "last"\nfallback_age_max_s = 3600\n')
    admin = tmp_path / "admin"
    with serve(tmp_path, [], repository=str(models), admin=str(admin)) as server, Client(server.address) as client:
        assert client.infer("squares", x(3)).version == "1"
        add_whole_version(models, "squares", "2", picky(10))
        with Operator(admin) as operator:
            operator.done("reload", model="squares")
        old = client.infer("squares", x(FAILING))
        assert is_last(old)
        assert (old.version, old["y"].item()) == ("1", 9)
        new = client.infer("squares", x(3))
        assert (new.version, new["y"].item(), new.flags) == ("2", 90, 0)
        assert client.infer("squares", x(FAILING)).version == "2"
        with Client(server.address) as other, pytest.raises(EngineFailedError):
            other.infer("squares", x(FAILING))


def test_the_command_says_so(server: RunningServer, tmp_path: Path) -> None:
    """`tickpath call` repeats one question: its last answer is shown with its flags, for people and for programs."""
    np.save(tmp_path / "x.npy", x(11))
    command = [sys.executable, "-m", "tickpath.cli", "call", "marked", "--input", f"x={tmp_path}/x.npy"]
    command += ["--at", server.address]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert shown.startswith("OUTPUT_OUT_OF_BOUNDS\n")
    answer = json.loads(subprocess.run([*command, "--json"], capture_output=True, timeout=60, check=True).stdout)
    assert (answer["flags"], answer["age_ns"]) == (["OUTPUT_OUT_OF_BOUNDS"], 0)
