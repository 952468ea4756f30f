"""Two servers for all tests of this folder: one as it comes, one whose limits are near."""

from collections.abc import Iterator
from typing import Any, Final

import pytest
from tests.integration.hostile.arena import unharmed, write_models
from tests.serving import RunningServer, serve

# Seconds are short enough to wait for, and long enough for a client on a busy machine to keep every rule.
STRICT: Final[dict[str, Any]] = {
    "hello_s": 1.0,
    "frame_s": 1.0,
    "write_bytes_max": 256 * 1024,
    "write_stall_s": 1.0,
    "sessions_max": 8,
}


@pytest.fixture(scope="session")
def usual_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("usual")
    with serve(folder, write_models(folder), observer_port=0, in_flight_max=32) as server:
        yield server


@pytest.fixture(scope="session")
def strict_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("strict")
    with serve(folder, write_models(folder), observer_port=0, **STRICT) as server:
        yield server


@pytest.fixture
def usual(usual_server: RunningServer) -> Iterator[RunningServer]:
    """The defaults, but 32 in flight; a neighbour beside."""
    with unharmed(usual_server):
        yield usual_server


@pytest.fixture
def strict(strict_server: RunningServer) -> Iterator[RunningServer]:
    """The limits of `STRICT`; a neighbour beside, who takes two of the sessions."""
    with unharmed(strict_server):
        yield strict_server
