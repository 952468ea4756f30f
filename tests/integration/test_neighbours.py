"""Models of one server beside each other: one at work does not slow another, and ten at rest cost nothing."""

import threading
import time
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np
from tests.repositories import add_version, scale, slow_scale
from tests.serving import serve
from tests.traffic import Floats, Traffic

from tickpath.client import Client

X: Final = np.ones((1, 3), np.float32)
# 2 ms a row.
SLOW_STEPS: Final = 10_000
IDLE_S: Final = 3.0


def answering(_version: str, inputs: Floats) -> Floats:
    return inputs


def test_a_model_at_work_does_not_slow_another(tmp_path: Path) -> None:
    """A short model is asked a thousand times a second, and in every other window a long one without a pause. By the
    server's own stamps, which do not count what clients take of the processors."""
    add_version(tmp_path / "models", "fast", "1", scale(1))
    add_version(tmp_path / "models", "slow", "1", slow_scale(1, SLOW_STEPS))
    windows: dict[bool, list[float]] = {False: [], True: []}
    worked = 0
    with (
        serve(tmp_path, [], repository=str(tmp_path / "models")) as server,
        Traffic(server, "fast", answering, rate=1000) as traffic,
    ):
        for turn in range(6):
            beside, stop = turn % 2 == 1, threading.Event()
            first = len(traffic.answers)
            with Client(server.address) as client:
                worker = threading.Thread(target=_work, args=(client, stop))
                if beside:
                    worker.start()
                traffic.wait_for(500)
                stop.set()
                if beside:
                    worker.join()
                    worked += 1
            windows[beside].append(median(answer.server_ns for answer in traffic.answers[first:]))
    assert traffic.wrong == []
    assert worked == 3
    assert median(windows[True]) < 3 * median(windows[False]), windows


def _work(client: Client, stop: threading.Event) -> None:
    while not stop.is_set():
        client.infer_many("slow", [[X]] * 4, in_flight=4)


def test_ten_models_at_rest_cost_next_to_nothing(tmp_path: Path) -> None:
    """Short ones and long ones, each of which has answered: no pool spins, no thread polls."""
    for number in range(5):
        add_version(tmp_path / "models", f"fast-{number}", "1", scale(1))
        add_version(tmp_path / "models", f"slow-{number}", "1", slow_scale(1, SLOW_STEPS))
    with serve(tmp_path, [], repository=str(tmp_path / "models")) as server, Client(server.address) as client:
        for info in client.models():
            assert client.infer(info.name, [X]).version == "1"
        before_s, start_s = server.cpu_s(), time.monotonic()
        time.sleep(IDLE_S)  # what is asked is what happens when nothing does
        share = (server.cpu_s() - before_s) / (time.monotonic() - start_s)
    assert share < 0.03
