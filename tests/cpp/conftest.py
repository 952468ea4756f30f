"""The C++ programs, built once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cpp.building import build_programs
from tests.cpp.driver import Driver, running


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build_programs(tmp_path_factory.mktemp("cpp"))


@pytest.fixture
def client(programs: dict[str, Path]) -> Iterator[Driver]:
    """A client that has not connected."""
    with running(programs["driver"]) as driver:
        yield driver
