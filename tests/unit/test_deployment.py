"""The end of a deployment: whatever fails on the way, all the rest ends too."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tickpath.engines import EngineFailedError
from tickpath.server.catalogue import Catalogue
from tickpath.server.config import ServerConfig
from tickpath.server.deployment import Deployment
from tickpath.server.loader import Loader
from tickpath.server.service import Service
from tickpath.server.shadow import ShadowRun


class Part:
    """One of those that end, and fail at it where `fails`. Each call is noted in `calls`."""

    def __init__(self, name: str, calls: list[str], fails: str) -> None:
        self._name, self._calls, self._fails = name, calls, fails

    def close(self) -> None:
        self._note("close")

    def join(self) -> None:
        self._note("join")

    def _note(self, what: str) -> None:
        self._calls.append(call := f"{self._name}.{what}")
        if call == self._fails:
            raise EngineFailedError(f"{call} fails")


class Two(Catalogue):
    """Two versions, of which no more is needed than what ends."""

    def __init__(self, versions: list[Any]) -> None:
        super().__init__()
        self._two = versions

    @property
    def versions(self) -> Any:
        return self._two


@pytest.mark.parametrize("fails", ["shadow.join", "executor-1.join", "engine-0.close", "engine-1.close", ""])
def test_what_fails_at_the_end_keeps_nothing_else_from_ending(fails: str) -> None:
    calls: list[str] = []

    def part(name: str) -> Any:
        return Part(name, calls, fails)

    versions = [SimpleNamespace(executor=part(f"executor-{n}"), engine=part(f"engine-{n}")) for n in range(2)]
    service = SimpleNamespace(config=ServerConfig(), catalogue=Two(versions), records=None)
    deployment = Deployment(
        cast(Service, service), cast(Any, None), cast(Loader, part("loader")), None, lambda _error: None
    )
    deployment._shadows.append(cast(ShadowRun, part("shadow")))
    if fails:
        with pytest.raises(EngineFailedError, match=fails):
            deployment.close()
    else:
        deployment.close()
    assert calls[:3] == ["loader.close", "shadow.close", "shadow.join"]
    assert sorted(calls[3:5]) == ["executor-0.close", "executor-1.close"]
    for number in range(2):
        assert calls.index(f"executor-{number}.join") + 1 == calls.index(f"engine-{number}.close")
    assert len(calls) == 9
