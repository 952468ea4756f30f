"""Who changes what is served without the admin socket: SIGHUP."""

import asyncio

from tickpath.server.admin import on_reload_signal


def test_any_number_of_signals_ask_for_one_reload_after_the_one_that_goes_on() -> None:
    """A file may have come after that has looked; more than one more finds nothing new."""

    async def storm() -> list[str]:
        begun, may_end, done = asyncio.Event(), asyncio.Event(), list[str]()

        async def reload() -> None:
            begun.set()
            await may_end.wait()
            done.append("reloaded")

        handler = on_reload_signal(asyncio.get_running_loop(), reload)
        handler()
        await begun.wait()
        for _ in range(1000):
            handler()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        may_end.set()
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0)
        return done

    assert asyncio.run(storm()) == ["reloaded"] * 2
