"""One server, with a door in front, for all tests that leave both as they are."""

from collections.abc import Iterator

import pytest
from tests.doors import write_models
from tests.serving import RunningServer, serve


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("door")
    with serve(folder, write_models(folder), oip_port=0, oip_grpc_port=0) as server:
        yield server
