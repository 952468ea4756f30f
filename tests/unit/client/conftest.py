"""Every client over every transport, and both pools."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.unit.client.callers import CALLERS, LOOPS, MakeCaller
from tests.unit.client.pools import AsyncPoolCaller, MakePool
from tests.unit.client.scripted import Script, ScriptedServer

from tickpath.client import Health, Pool

# Nobody is pinged: a script says what is said.
NEVER = Health(ping_after_s=1000, pong_s_max=1000)


@pytest.fixture(params=list(CALLERS))
def make_caller(request: pytest.FixtureRequest) -> MakeCaller:
    return CALLERS[request.param]


@pytest.fixture(params=["tcp", "unix"])
def make_server(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., ScriptedServer]:
    unix_path = tmp_path / "socket" if request.param == "unix" else None

    def make(*scripts: Script) -> ScriptedServer:
        return ScriptedServer(unix_path, *scripts)

    return make


@pytest.fixture(params=["blocking", *LOOPS])
def make_pool(request: pytest.FixtureRequest) -> MakePool:
    def make(*servers: ScriptedServer, **options: Any) -> Any:
        addresses = [server.address for server in servers]
        options.setdefault("health", NEVER)
        options.setdefault("timeout_s", 20.0)
        if request.param == "blocking":
            return Pool(addresses, **options)
        return AsyncPoolCaller(request.param, addresses, **options)

    return make


@pytest.fixture
def started() -> Iterator[Callable[..., ScriptedServer]]:
    """Servers, each with a script for each of its connections, whose errors are raised at the end."""
    with ExitStack() as stack:
        yield lambda *scripts: stack.enter_context(ScriptedServer(None, *scripts))
