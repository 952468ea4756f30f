"""The simulated driver: built once, and used by programs of their own, since a process has one CUDA driver for life."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.sim.cuda.build import ROOT, build

if TYPE_CHECKING:
    from tests.sim.cuda.calls import Bench
    from tests.sim.cuda.simulator import Simulator

RunSimulated = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def simulated_driver() -> Path:
    """The folder that holds the simulated libcuda.so.1."""
    return build()


@pytest.fixture
def run_simulated(simulated_driver: Path) -> RunSimulated:
    """Runs `python -m` with these arguments on the simulated driver. Keyword arguments go into the environment."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        variables = os.environ | {"LD_LIBRARY_PATH": str(simulated_driver)} | environment
        command = [sys.executable, "-m", *arguments]
        return subprocess.run(
            command, env=variables, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100
        )

    return run


@pytest.fixture
def sim() -> "Simulator":
    """For programs on the simulated driver: its control surface, anew. Violations are kept, they end nothing."""
    from tests.sim.cuda.simulator import Simulator

    simulator = Simulator()
    simulator.reset(1)
    simulator.strict(False)
    return simulator


@pytest.fixture
def bench(sim: "Simulator") -> Iterator["Bench"]:
    """For programs on the simulated driver: a context to make things in. What is left in the end goes with `sim`."""
    from tests.sim.cuda.calls import Bench

    assert sim.seed == 1
    yield Bench()
    sim.reset(1)
