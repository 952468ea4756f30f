"""How long a real loop was away."""

import asyncio
import time

import pytest
import uvloop

from tickpath.server.gap_watch import GapWatch

AWAY_S = 0.05


@pytest.mark.parametrize("turns_after", [True, False], ids=["before a beat", "until the end"])
def test_the_longest_time_away_is_told(turns_after: bool) -> None:
    async def main() -> int:
        watch = GapWatch(asyncio.get_running_loop())
        await asyncio.sleep(0.005)
        time.sleep(AWAY_S)
        if turns_after:
            await asyncio.sleep(0.005)
        return watch.stop()

    assert uvloop.run(main()) >= (AWAY_S - 0.001) * 1e9  # of which a beat's own millisecond is no delay


def test_a_loop_that_comes_round_is_not_away_and_who_has_stopped_notes_no_more() -> None:
    async def main() -> None:
        away, watch = GapWatch(asyncio.get_running_loop()), GapWatch(asyncio.get_running_loop())
        for _ in range(50):
            await asyncio.sleep(0.001)
        watch.stop()
        time.sleep(AWAY_S)
        await asyncio.sleep(0.005)
        assert watch.gap_ns < away.stop()

    uvloop.run(main())
