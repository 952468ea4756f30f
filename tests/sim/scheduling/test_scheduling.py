"""Many schedules of everything that can happen to a request that waits, each held against the reference.

A failure names its seed: `World(seed).run(STEPS)` is that schedule again. TICKPATH_SEEDS=1000 runs fewer.
"""

import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Final

import pytest
from tests.sim.scheduling.world import World

from tickpath.server import scheduling
from tickpath.server.dispatch import Dispatcher
from tickpath.server.scheduling import NEVER_NS, Queued, RequestQueue
from tickpath.wire import Code

# Half a millisecond each: 30 s on two cores, and up to ten times as long where others want them too.
SEEDS: Final = int(os.environ.get("TICKPATH_SEEDS", "100000"))
STEPS: Final = 20
CHUNK: Final = 1_000
# Of those below, each is found by the first few hundred seeds.
SEEDS_TO_FIND: Final = 1_000

ENDS: Final = {0, Code.DEADLINE, Code.SUPERSEDED, Code.OVERLOADED, Code.NOT_READY, Code.CANCELLED}


def run_seeds(first: int) -> tuple[Counter[int], str]:
    """How the requests of these seeds ended, and what went wrong, with which seed."""
    ended = Counter[int]()
    for seed in range(first, min(first + CHUNK, SEEDS)):
        world = World(seed)
        try:
            world.run(STEPS)
        except Exception as error:
            return ended, f"seed {seed}: {error!r}"
        ended.update(world.ended)
    return ended, ""


@pytest.mark.timeout(1200)
def test_every_schedule_gives_each_request_the_end_it_should_have() -> None:
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = list(pool.map(run_seeds, range(0, SEEDS, CHUNK)))
    assert [wrong for _, wrong in found if wrong] == []
    ended = sum((counts for counts, _ in found), Counter[int]())
    assert set(ended) == ENDS, "the schedules reach every end there is"
    assert min(ended.values()) > SEEDS / 10


def forgets_to_take_back(self: Dispatcher, is_it: Callable[..., bool]) -> None:
    """What lies ready stays there."""


def expires_nothing(self: RequestQueue, now_ns: int) -> list[Queued]:
    return []


def never_expires(self: RequestQueue) -> int:
    return NEVER_NS


def takes_anything(self: RequestQueue, request: Queued, elsewhere: int) -> None:
    """As if there were always room."""


def believes_in_luck(self: RequestQueue, request: Queued, ahead_ns: int, now_ns: int) -> None:
    """As if every budget could be kept."""


def has_no_turns(self: Any, turn_ns: int) -> Queued:
    """Whoever is first stays first."""
    first: Queued = self.turns[0].requests[0]
    self.turns[0].credit_ns = 10**9
    return first


def goes_behind(self: Any, older: Queued, newer: Queued) -> None:
    """The newer one has to wait from the start."""
    self.remove(older)
    self.add(newer, 0)


@pytest.mark.parametrize(
    ("where", "name", "fault"),
    [
        (Dispatcher, "_recall_from", forgets_to_take_back),
        (RequestQueue, "expired", expires_nothing),
        (RequestQueue, "first_expiry_ns", property(never_expires)),
        (RequestQueue, "_no_room", takes_anything),
        (RequestQueue, "_too_late", believes_in_luck),
        (scheduling._Level, "next", has_no_turns),
        (scheduling._Level, "replace", goes_behind),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_fault_is_found(monkeypatch: pytest.MonkeyPatch, where: type, name: str, fault: Any) -> None:
    monkeypatch.setattr(where, name, fault)
    for seed in range(SEEDS_TO_FIND):
        try:
            World(seed).run(STEPS)
        except Exception:
            return
    pytest.fail(f"{SEEDS_TO_FIND} schedules, and nobody noticed")
