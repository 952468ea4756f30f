"""The core's own clients beside a flood at the door."""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.doors import ask, floats, oip
from tests.serving import RunningServer
from tests.waiting import wait_until

from tickpath.client import Client

ROUNDS: Final = 5
CALLS: Final = 200
FLOOD: Final = 100
"""What a round's flood has to get done before the round is over."""


def test_the_core_answers_beside_a_flood_at_the_door_nearly_as_without(server: RunningServer) -> None:
    """Calm and flood in turn and compared round by round, so that a busy machine is busy in both."""
    ratios = []
    with Client(server.address) as client:
        for _ in range(ROUNDS):
            calm_ns = statistics.median(taken_ns(client))
            with flood(server):
                beside_ns: list[int] = []
                before = asked(server)
                while asked(server) < before + FLOOD:
                    beside_ns += taken_ns(client)
            ratios.append(statistics.median(beside_ns) / calm_ns)
    assert statistics.median(ratios) < 3, ratios


def taken_ns(client: Client) -> list[int]:
    """How long each of a few calls took."""
    taken_ns = []
    for _ in range(CALLS):
        started_ns = time.perf_counter_ns()
        client.infer("float32", floats(1))
        taken_ns.append(time.perf_counter_ns() - started_ns)
    return taken_ns


@contextmanager
def flood(server: RunningServer) -> Iterator[None]:
    """16 connections that ask the door as fast as it answers."""
    command = [sys.executable, "-m", "tests.door_flood", oip(server), "16"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        before = asked(server)
        wait_until(lambda: asked(server) > before, "the flood has begun")
        yield
        answered, _ = process.communicate("")
    assert int(answered) > FLOOD


def asked(server: RunningServer) -> int:
    """Requests of the flooded model that the door has answered."""
    _, told = ask(server, "v2/models/float32/versions/1/stats")
    return int(told["model_stats"][0]["inference_stats"]["success"]["count"])
