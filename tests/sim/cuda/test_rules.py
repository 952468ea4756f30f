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


@pytest.mark.parametrize(
    ("environment", "code", "says"),
    [
        pytest.param({}, 0, "", id="nothing"),
        pytest.param(
            {"TICKPATH_SIM_LEAKS": "1", "TICKPATH_SIM_SEED": "9"},
            -6,
            "ticksim: violation (seed 9): the context was destroyed while this lives in it",
            id="leaks",
        ),
        pytest.param({"TICKPATH_SIM_LEAKS": "1", "TICKPATH_SIM_STRICT": "0"}, 0, "", id="lenient"),
        pytest.param({"TICKPATH_SIM_INJECT": "cuCtxSynchronize:1:719"}, 1, "LAUNCH_FAILED", id="a-call-fails"),
        pytest.param({"TICKPATH_SIM_INJECT": "cuInit:2:3,work:1:700"}, 1, "ILLEGAL_ADDRESS", id="work-fails"),
    ],
)
def test_the_environment_says_how_it_runs(
    run_simulated: RunSimulated, environment: dict[str, str], code: int, says: str
) -> None:
    done = run_simulated("tests.sim.cuda.leaky_program", **environment)
    assert (done.returncode, says in done.stderr) == (code, True), done.stderr
