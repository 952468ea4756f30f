"""`tickpath serve` on the simulated driver: the stand-in takes the place of whatever model it is given.

python -m tests.sim.cuda.serve serve MODEL ...
"""

from pathlib import Path
from unittest.mock import patch

from tests.sim.cuda.model import Model
from tests.sim.cuda.simulator import Simulator

from tickpath import cli
from tickpath.engines import DeviceEngine


def load_stand_in(_path: Path, *_options: object) -> DeviceEngine:
    """What loading a model gives where a device runs it."""
    return Model(Simulator())


if __name__ == "__main__":
    with patch("tickpath.server.model.load", load_stand_in):
        cli.main()
