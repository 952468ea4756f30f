"""Runs the cases of the CUDA layer, where the simulated driver is loaded.

python -m tests.sim.cuda.graph_cases CASE FIRST_SEED SEEDS
"""

import logging
import sys

from tests.sim.cuda import answer_cases, fault_cases
from tests.sim.cuda.simulator import Simulator


def main() -> None:
    """`python -m tests.sim.cuda.graph_cases CASE FIRST_SEED SEEDS`"""
    name, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    logging.disable(logging.WARNING)  # slots that run without a graph are what many cases are about
    case = getattr(answer_cases, name, None) or getattr(fault_cases, name)
    simulator = Simulator()
    for seed in range(first, first + count):
        simulator.reset(seed)
        simulator.fence(seed % 2 == 1)
        try:
            case(simulator, seed)
        except BaseException:
            sys.stderr.write(f"{name}, seed {seed}:\n")
            raise


if __name__ == "__main__":
    main()
