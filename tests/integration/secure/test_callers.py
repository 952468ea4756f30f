"""Whose session the door closes to make room for another's."""

import asyncio

import pytest
from tests.secured import TOKENS, Secured

from tickpath.client import OverloadedError
from tickpath.door import callers
from tickpath.door.callers import Callers
from tickpath.door.repository import Repository
from tickpath.door.services import Services
from tickpath.door.tally import Tally
from tickpath.door.upstream import Upstream


def bearer(who: str) -> str:
    return f"Bearer {TOKENS[who]}"


def test_one_with_a_request_in_flight_keeps_its_session(shared: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "CALLERS_MAX", 2)

    def make(token: str) -> Services:
        return Services(Upstream(shared.server.uds, token), Repository(None), "0", Tally())

    async def once(known: Callers, who: str) -> Services:
        async with known.serving(bearer(who)) as services:
            await services.upstream.listing()
            return services

    async def come_and_go() -> None:
        known = Callers(make, bearer=True)
        async with known.serving(bearer("desk")) as desk:
            lab = await once(known, "lab")
            await once(known, "operator")  # desk has come first, lab is idle
            assert await once(known, "desk") is desk
            async with known.serving(bearer("lab")) as anew:
                assert anew is not lab
                with pytest.raises(OverloadedError, match="2 tokens have requests in flight"):
                    await once(known, "operator")
                assert await once(known, "lab") is anew
        await once(known, "operator")
        assert await once(known, "lab") is anew
        await known.close()

    asyncio.run(come_and_go())
