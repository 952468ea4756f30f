"""KServe's client, Triton's newest, and gRPC's own of its health service. They ask for another protobuf than the rest
of the tests have, so they are in an environment of their own, which `make test-door` makes."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.doors import write_models
from tests.serving import RunningServer, serve

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("door")
    with serve(folder, write_models(folder), oip_port=0, oip_grpc_port=0) as server:
        yield server


@pytest.mark.parametrize("client", ["kserve", "triton", "health"])
def test_they_are_answered(server: RunningServer, client: str) -> None:
    command = [str(ROOT / "build/clients/bin/python"), str(ROOT / "tests/door/program.py"), client]
    command += [str(server.ready.oip), str(server.ready.oip_grpc)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
