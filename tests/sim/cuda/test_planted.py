"""The simulated driver catches planted bugs, and finds nothing where they are not. A failure prints its seeds."""

import json
from typing import Final

import pytest
from tests.sim.cuda.conftest import RunSimulated

SEEDS: Final = 1000  # of each program with its guard: some 15,000 in all, a millisecond each
BARE_SEEDS: Final = 200

# For each planted bug, the least share of seeds that must show it, and what they say. Most show under every seed, since
# what is checked is the order that the rules promise; what only the host sees depends on the order that came about.
BUGS: Final = {
    "missing_synchronise": (0.9, "WrongAnswerError"),
    "stale_pointer_after_rebind": (1, "not allocated|ILLEGAL_ADDRESS"),
    "slot_reused_in_flight": (0.5, "WrongAnswerError"),
    "leak": (1, "while this lives in it"),
    "capture_from_two_threads": (1, "STREAM_CAPTURE_INVALIDATED"),
    "refused_enqueue_swallowed": (1, "WrongAnswerError"),
    "use_after_free_in_graph": (1, "ILLEGAL_ADDRESS"),
    "missing_event_wait": (1, "race"),
    "one_context_in_two_graphs": (1, "race"),
    "freed_in_flight": (1, "was freed while"),
    "fork_not_joined": (1, "STREAM_CAPTURE_UNJOINED"),
    "copy_beyond_the_buffer": (1, "ILLEGAL_ADDRESS"),
    "output_never_written": (1, "nothing has written"),
}
# What ends the process, since the host's own access is what is wrong.
FATAL: Final = {
    "host_reads_device_pointer": "the host touched device memory",
    "missing_synchronise": "in use by unfinished work",
    "slot_reused_in_flight": "in use by unfinished work",
}


def shown(run_simulated: RunSimulated, name: str, variant: str, seeds: int) -> dict[str, str]:
    """What the seeds showed."""
    done = run_simulated("tests.sim.cuda.campaign", name, variant, "0", str(seeds))
    assert done.returncode == 0, done.stderr
    seen: dict[str, str] = json.loads(done.stdout)
    return seen


@pytest.mark.parametrize("name", [*BUGS, "host_reads_device_pointer"])
def test_a_guarded_program_is_clean_under_every_seed(run_simulated: RunSimulated, name: str) -> None:
    assert shown(run_simulated, name, "guarded", SEEDS) == {}


@pytest.mark.parametrize(("name", "least", "says"), [(name, *bug) for name, bug in BUGS.items()], ids=BUGS)
def test_a_planted_bug_is_caught(run_simulated: RunSimulated, name: str, least: float, says: str) -> None:
    seen = shown(run_simulated, name, "bare", BARE_SEEDS)
    assert len(seen) >= least * BARE_SEEDS
    assert {text for text in seen.values() if not any(word in text for word in says.split("|"))} == set()


@pytest.mark.parametrize(("name", "says"), FATAL.items(), ids=FATAL)
def test_a_forbidden_access_of_the_host_ends_the_process(run_simulated: RunSimulated, name: str, says: str) -> None:
    done = run_simulated("tests.sim.cuda.campaign", name, "fenced", "77", "1")
    assert done.returncode < 0
    assert done.stderr.startswith("ticksim: violation (seed 77): ")
    assert says in done.stderr


def test_a_seed_runs_the_same_way_every_time(run_simulated: RunSimulated) -> None:
    runs = [shown(run_simulated, "slot_reused_in_flight", "bare", BARE_SEEDS) for _ in range(2)]
    assert runs[0] == runs[1]
    assert 0 < len(runs[0]) < BARE_SEEDS, "early and late both come about"
