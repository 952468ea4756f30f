"""What `make test-gpu` runs, on the simulated driver: so that on a machine with a GPU only the GPU is new.

python -m tests.sim.cuda.gpu_run tests | bench FOLDER
"""

import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.gpu import engines
from tests.sim.cuda.model import Model
from tests.sim.cuda.simulator import Simulator


def main() -> None:
    """With the stand-in in place of the engines that need a GPU."""
    simulator = Simulator()
    candidate = engines.Candidate("stand-in", lambda: Model(simulator), Model(simulator).expected)
    with patch.object(engines, "CANDIDATES", (candidate,)), patch.dict(engines.MISSING, clear=True):
        if sys.argv[1] == "tests":
            sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "tests/gpu/test_graphs.py"]))
        from bench.gpu import __main__ as bench

        with patch.object(bench, "FOLDER", Path(sys.argv[2])), patch.object(bench, "SAMPLES", 200):
            bench.main()


if __name__ == "__main__":
    main()
