"""A call put off, at most one at a time."""

import asyncio
from collections.abc import Callable


class Timer:
    """Calls once, later, unless stopped or started again before."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None

    @property
    def started(self) -> bool:
        return self._handle is not None

    def start(self, delay_s: float, call: Callable[[], None]) -> None:
        self.stop()
        self._handle = self._loop.call_later(delay_s, call)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
