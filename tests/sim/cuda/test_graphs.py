"""The CUDA layer on the simulated driver: thousands of seeds, each another order in which the device may get on. A
failure prints its seed."""

import signal
from typing import Final

import pytest
from tests.sim.cuda.conftest import RunSimulated
from tests.sim.cuda.layer_bugs import BUGS

# How many seeds of each case: the more there is to vary, the more.
CASES: Final = {
    "answers": 1000,
    "eager_answers": 300,
    "strict_refuses": 10,
    "two_engines": 300,
    "others_go_on_while_a_slot_is_captured": 40,
    "reloads": 1,
    "every_call_fails_once": 12,  # each way to wait and place, with each of three codes
    "a_lost_device_stays_lost": 300,
    "what_is_not_sticky_passes": 100,
    "what_cannot_be_settled_is_lost": 4,
    "enqueue_refused_while_serving": 20,
    "closing_in_any_state": 300,
    "a_lane_changes_threads": 50,
    "a_lane_serves_and_tells_of_the_loss": 200,
    "polled_answers": 200,
    "a_launch_fails_under_a_polled_lane": 60,
    "a_polled_lane_tells_of_the_loss": 60,
    "a_lane_gives_back_what_it_has": 50,
    "a_slot_in_flight_is_not_launched": 4,
    "a_slot_keeps_what_it_held": 4,
    "buffers_apart_are_refused": 4,
    "waiting_holds_up_no_other_thread": 10,
}


@pytest.mark.parametrize(("case", "seeds"), CASES.items(), ids=CASES)
def test_whatever_the_driver_does(run_simulated: RunSimulated, case: str, seeds: int) -> None:
    done = run_simulated("tests.sim.cuda.graph_cases", case, "0", str(seeds))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(run_simulated: RunSimulated, bug: str) -> None:
    _, case, seeds = BUGS[bug]
    done = run_simulated("tests.sim.cuda.graph_cases", case, "0", str(seeds), bug)
    assert done.returncode != 0
    # The case fails, and not what runs it; or the fence around pinned memory has ended it.
    assert "seed" in done.stderr or done.returncode == -signal.SIGSEGV
