"""What is promised of too much load, of the policy alone: docs/adr/0007-scheduling.md has the curves."""

import pytest
from tests.sim.scheduling.overload import DRAWS, LOADS, Load, Overload

MEAN_NS = 300_000
BUDGET = 10


def ran(kind: str, rate: float, told: bool = True) -> Overload:
    return Overload(Load(rate, MEAN_NS, DRAWS[kind](MEAN_NS), (BUDGET,), told=told, requests=2_000), seed=1).run()


@pytest.mark.parametrize("kind", DRAWS)
def test_too_much_load_costs_little_of_what_is_answered_in_time(kind: str) -> None:
    by_load = {rate: ran(kind, rate) for rate in LOADS}
    most = max(each.goodput for each in by_load.values())
    assert by_load[2.0].goodput >= 0.9 * most
    assert all(each.p99 <= 1 for each in by_load.values()), "what is answered is answered in time"


def test_without_budgets_nothing_is_in_time() -> None:
    assert ran("steady", 2.0, told=False).goodput < 0.1 * ran("steady", 2.0).goodput
