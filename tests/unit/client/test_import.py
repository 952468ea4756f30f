"""`import tickpath.client` is light: who only asks for predictions pays for nothing else."""

import subprocess
import sys
from importlib.resources import files

import pytest

SCRIPT = """
import sys

import msgspec  # it takes typing_extensions along where that is installed
import numpy

before = set(sys.modules)
from tickpath.client import Client

def roots():
    return {name.partition(".")[0] for name in set(sys.modules) - before}

third_party = {root for root in roots() if root not in sys.stdlib_module_names and root != "tickpath"}
ours = {name for name in sys.modules if name.startswith("tickpath.") and name.count(".") == 1}
assert third_party <= {"msgspec", "numpy"}, third_party
assert ours == {"tickpath.client", "tickpath.wire"}, ours
assert "asyncio" not in sys.modules
assert "tickpath.client.pool" not in sys.modules
from tickpath.client import Hedge, Pool
assert "asyncio" not in sys.modules
assert roots() - third_party <= sys.stdlib_module_names | {"tickpath"}, roots()
from tickpath.client import AsyncClient
assert "asyncio" in sys.modules
assert "uvloop" not in sys.modules
"""


def test_the_client_needs_msgspec_and_numpy_only() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("package", ["tickpath.client", "tickpath.wire"])
def test_type_checkers_are_told_that_there_are_types(package: str) -> None:
    assert files(package).joinpath("py.typed").is_file()
