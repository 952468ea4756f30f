"""Runs a planted bug's program under many seeds in one process, on the simulated driver.

    LD_LIBRARY_PATH=$(python -m tests.sim.cuda.build) python -m tests.sim.cuda.campaign NAME VARIANT FIRST_SEED SEEDS

Prints a JSON object: for each seed that showed something, what. A seed's run is the same every time. The variants are
`guarded`, `bare`, and `fenced`: bare with pinned memory closed to the host while work uses it, and with every violation
ending the process.
"""

import json
import sys
from collections.abc import Callable

from tests.sim.cuda.calls import Bench
from tests.sim.cuda.planted import PLANTED
from tests.sim.cuda.simulator import Simulator

Program = Callable[[Simulator, Bench, bool], None]


def run_seed(sim: Simulator, program: Program, guarded: bool, seed: int) -> str:
    """What this seed showed: an error or a wrong answer, and a violation; an empty text where all was well."""
    sim.reset(seed)
    bench = Bench()
    shown = [_shown_by(lambda: program(sim, bench, guarded)), sim.violation()]
    if not any(shown):
        shown = [_shown_by(bench.close), sim.violation()]
    return "; ".join(filter(None, shown))


def _shown_by(act: Callable[[], None]) -> str:
    try:
        act()
    except Exception as error:  # whatever it is, its seed is to be told
        return f"{type(error).__name__}: {error}"
    return ""


def run_seeds(name: str, variant: str, seeds: range) -> dict[int, str]:
    """What each of the seeds showed, those that showed nothing left out."""
    sim = Simulator()
    sim.strict(variant == "fenced")
    sim.fence(variant != "bare")
    sim.check_leaks(True)
    guarded = variant == "guarded"
    return {seed: shown for seed in seeds if (shown := run_seed(sim, PLANTED[name], guarded, seed))}


def main() -> None:
    """The command."""
    name, variant, first, count = sys.argv[1:]
    shown = run_seeds(name, variant, range(int(first), int(first) + int(count)))
    sys.stdout.write(json.dumps(shown) + "\n")


if __name__ == "__main__":
    main()
