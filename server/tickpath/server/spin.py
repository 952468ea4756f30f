"""--spin: the loop polls instead of sleeping. A core is spent; the wake-up from epoll is saved."""

import asyncio


def spin(loop: asyncio.AbstractEventLoop) -> None:
    """Keep the loop from ever sleeping. A callback that schedules itself makes the loop poll its sockets once between
    two turns."""

    def turn() -> None:
        loop.call_soon(turn)

    turn()
