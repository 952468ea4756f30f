"""`tickpath serve` on the simulated driver: the stand-in takes the place of whatever model it is given.

    python -m tests.sim.cuda.serve serve MODEL ...

The version of a repository that is named by a number has weights of its own, by that number. A line on stdin, NAME NTH
CODE, orders a fault (see Simulator.inject); to each line, an empty one too, the answer on stdout is what lives then,
and how often some functions have been called.
"""

import json
import sys
import threading
from pathlib import Path
from typing import Final
from unittest.mock import patch

from tests.sim.cuda.model import Model
from tests.sim.cuda.simulator import Simulator

from tickpath import cli
from tickpath.engines import DeviceEngine

COUNTED: Final = ("cuEventQuery", "cuEventSynchronize", "cuGraphLaunch", "cuMemcpyHtoDAsync")


def load_stand_in(path: Path, *_options: object) -> DeviceEngine:
    """What loading a model gives where a device runs it."""
    version = path.parent.name
    return Model(Simulator(), seed=int(version) if version.isdigit() else 0)


def obey() -> None:
    """Do as stdin says, until it ends."""
    simulator = Simulator()
    for line in sys.stdin:
        if line.strip():
            name, nth, code = line.split()
            simulator.inject(name, int(nth), int(code))
        calls = {name: simulator.calls(name) for name in COUNTED}
        print(json.dumps(simulator.stats() | calls), flush=True)  # noqa: T201


if __name__ == "__main__":
    threading.Thread(target=obey, daemon=True).start()
    with patch("tickpath.server.model.load", load_stand_in):
        cli.main()
