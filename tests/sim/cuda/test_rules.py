"""The simulated driver's own rules: each rules_*.py in one process on it, and what ends a process in one of its own."""

from pathlib import Path
from typing import Final

import pytest
from tests.sim.cuda.conftest import RunSimulated

RULES: Final = sorted(Path(__file__).parent.glob("rules_*.py"))


@pytest.mark.parametrize("rules", RULES, ids=lambda file: file.stem)
def test_rules(run_simulated: RunSimulated, rules: Path) -> None:
    done = run_simulated("pytest", "-q", "-p", "no:cacheprovider", str(rules))
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
