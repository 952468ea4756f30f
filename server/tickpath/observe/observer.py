"""The observer: reads the core's memory fifty times a second, answers HTTP, and ends when the core does.

The event loop's thread owns the tally and the sockets. One more thread renders, so that a page of many models (150 ms
for 64) delays no read, and never more than one page at a time.
"""

import asyncio
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http import HTTPStatus
from typing import Final

import msgspec

from tickpath.observe.http import HttpServer, Request, Response, say
from tickpath.observe.metrics import Exposition
from tickpath.observe.process import CoreProcess
from tickpath.observe.reader import LayoutError, RecordReader
from tickpath.observe.records import State
from tickpath.observe.tally import Tally
from tickpath.observe.watched import Watched

# A fifth of what the ring holds at 80,000 requests a second; and 50 wake-ups a second cost next to nothing.
READ_S: Final = 0.02

EXIT_ADDRESS: Final = 4
"""The address can't be listened on. (2 is a command line that is not understood.)"""
EXIT_LAYOUT: Final = 5
"""The descriptor does not hold the memory this observer knows."""

# A hundred heartbeats. Nothing that a core does takes so long; a restart is then better than waiting.
SILENT_NS_MAX: Final = 10_000_000_000

PAGES: Final = ("/", "/metrics", "/livez", "/readyz")
INDEX: Final = """\
tickpath observer of core {pid}

/metrics   for Prometheus, as text or OpenMetrics
/livez     200 while the core process lives and its loop turns
/readyz    200 while the core takes requests
"""


class Observer:
    """Answers for one core."""

    def __init__(self, reader: RecordReader, core: CoreProcess) -> None:
        self._tally = Tally(reader)
        self._core = core
        self._watched = Watched(core)
        self._exposition = Exposition(core.pid)
        self._renderer = ThreadPoolExecutor(1)

    async def read_for_ever(self) -> None:
        while True:
            self._read()
            await asyncio.sleep(READ_S)

    def _read(self) -> None:
        now_ns = time.monotonic_ns()
        self._tally.read(now_ns)
        self._watched.jitter.sample(now_ns)

    async def answer(self, request: Request) -> Response:
        if request.path not in PAGES:
            return say(HTTPStatus.NOT_FOUND, "not found: / lists what is here")
        if request.method not in ("GET", "HEAD"):
            return say(HTTPStatus.METHOD_NOT_ALLOWED, "GET or HEAD expected", "Allow: GET, HEAD")
        match request.path:
            case "/metrics":
                return await self._metrics(request.accept)
            case "/livez":
                return self._live()
            case "/readyz":
                return self._ready()
        return self._index()

    async def _metrics(self, accept: str) -> Response:
        self._read()
        loop = asyncio.get_running_loop()
        content_type, body = await loop.run_in_executor(
            self._renderer, self._exposition.render, self._tally.snapshot(), self._watched.seen(), accept
        )
        return Response(HTTPStatus.OK, body, content_type)

    def _index(self) -> Response:
        return Response(HTTPStatus.OK, INDEX.format(pid=self._core.pid).encode())

    def _live(self) -> Response:
        return self._dead() or say(HTTPStatus.OK, "alive")

    def _dead(self) -> Response | None:
        """Why nothing can be expected of the core."""
        if not self._core.alive():
            return say(HTTPStatus.SERVICE_UNAVAILABLE, f"the core, process {self._core.pid}, has ended")
        silent_ns = self._tally.silent_ns(time.monotonic_ns())
        if silent_ns > SILENT_NS_MAX:
            return say(HTTPStatus.SERVICE_UNAVAILABLE, f"the core's loop has stood still for {silent_ns / 1e9:.0f} s")
        return None

    def _ready(self) -> Response:
        state = self._tally.state
        if state is State.READY:
            return self._dead() or say(HTTPStatus.OK, "ready")
        return say(HTTPStatus.SERVICE_UNAVAILABLE, state.name.lower())


def run(records_fd: int, host: str, port: int) -> int:
    """Observe until the core ends or a signal comes. Returns the exit status."""
    try:
        reader = RecordReader(records_fd)
        core = CoreProcess(reader.description().pid)
        return asyncio.run(_observe(reader, core, host, port))
    except ProcessLookupError:
        return 0  # the core ended before we began
    except LayoutError as error:
        return _fail(str(error), EXIT_LAYOUT)


async def _observe(reader: RecordReader, core: CoreProcess, host: str, port: int) -> int:
    observer = Observer(reader, core)
    server = HttpServer(observer.answer)
    try:
        url = await server.listen(host, port)
    except OSError as error:
        # asyncio's own text repeats the address. An unknown host has a number below 0, and a text of its own.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        return _fail(f"can't listen on {host}:{port}: {reason}; give it another address", EXIT_ADDRESS)
    loop = asyncio.get_running_loop()
    reading = asyncio.create_task(observer.read_for_ever())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, reading.cancel)
    loop.add_reader(core.pidfd, reading.cancel)
    with suppress(asyncio.CancelledError, BrokenPipeError):  # the core has ended, in the middle of its start perhaps
        os.write(sys.stdout.fileno(), msgspec.json.encode({"observer": url}) + b"\n")
        await reading
    server.close()
    return 0


def _fail(line: str, status: int) -> int:
    sys.stderr.write(f"tickpath observer: {line}\n")
    return status
