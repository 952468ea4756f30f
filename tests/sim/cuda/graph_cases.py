"""Runs the cases of the CUDA layer, where the simulated driver is loaded.

    python -m tests.sim.cuda.graph_cases CASE FIRST_SEED SEEDS [BUG]

BUG is one of layer_bugs, planted first: then the case is to fail.
"""

import logging
import sys
from contextlib import ExitStack

from tests.sim.cuda import answer_cases, fault_cases, polled_cases
from tests.sim.cuda.layer_bugs import BUGS
from tests.sim.cuda.simulator import Simulator


def main() -> None:
    """Run one case under so many seeds."""
    name, first, count, *bugs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]
    with ExitStack() as stack:
        for bug in bugs:
            stack.enter_context(BUGS[bug][0]())
        run(name, range(first, first + count))


def run(name: str, seeds: range) -> None:
    """A failure says under which seed."""
    logging.disable(logging.WARNING)  # slots that run without a graph are what many cases are about
    (case,) = (getattr(cases, name) for cases in (answer_cases, fault_cases, polled_cases) if hasattr(cases, name))
    simulator = Simulator()
    for seed in seeds:
        simulator.reset(seed)
        simulator.fence(seed % 2 == 1)
        try:
            case(simulator, seed)
        except BaseException:
            sys.stderr.write(f"{name}, seed {seed}:\n")
            raise


if __name__ == "__main__":
    main()
