"""Every client over every transport."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.client.callers import CALLERS, MakeCaller
from tests.unit.client.scripted import Script, ScriptedServer


@pytest.fixture(params=list(CALLERS))
def make_caller(request: pytest.FixtureRequest) -> MakeCaller:
    return CALLERS[request.param]


@pytest.fixture(params=["tcp", "unix"])
def make_server(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., ScriptedServer]:
    unix_path = tmp_path / "socket" if request.param == "unix" else None

    def make(*scripts: Script) -> ScriptedServer:
        return ScriptedServer(unix_path, *scripts)

    return make
