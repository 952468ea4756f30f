"""A server that is given a plan it can't use says so in one line, or serves the source on the CPU, as configured."""

from pathlib import Path

import pytest
from tests.processes import serve_until_end
from tests.serving import serve, write_zoo

from tickpath.client import Client


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """Empty, with its source beside it."""
    write_zoo(tmp_path, "null")
    plan = tmp_path / "null.plan"
    plan.touch()
    return plan


def test_it_is_refused(plan: Path) -> None:
    code, lines = serve_until_end(str(plan), "--port", "0", "--no-observer")
    assert code == 3
    (line,) = lines
    assert "null.plan.json: the sidecar of null.plan is not there: compile the model again" in line


def test_its_source_runs_on_the_cpu(plan: Path) -> None:
    with serve(plan.parent, [{"path": str(plan), "on_bad_plan": "cpu"}]) as server:
        with Client(server.address) as client:
            assert client.model("null").buckets == (1, 2, 4, 8)
        assert "null.onnx runs on the CPU" in server.log.read_text()
