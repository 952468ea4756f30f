"""One server, with a door in front, for all tests that leave both as they are."""

import gc
from collections.abc import Iterator

import pytest
from tests.doors import write_models
from tests.serving import RunningServer, serve


@pytest.fixture(scope="module", autouse=True)
def ended_where_they_were_made() -> Iterator[None]:
    """Triton's HTTP clients close themselves as they are collected, and may only do so on the thread that made them:
    those that a failed call's traceback has kept are collected here, and not on another thread of a later test."""
    yield
    gc.collect()


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("door")
    with serve(folder, write_models(folder), oip_port=0, oip_grpc_port=0) as server:
        yield server
