"""The observer: reads the core's memory fifty times a second, answers HTTP, and ends when the core does.

The event loop's thread owns the tally and the sockets. One more thread renders, so that a page of many models (60 ms
for 64) delays no read, and never more than one page at a time.
"""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tickpath.observe.event_log import EventLog
from tickpath.observe.http import JSON, HttpServer, Request, Response, say
from tickpath.observe.metrics import Exposition
from tickpath.observe.page import page
from tickpath.observe.process import CoreProcess
from tickpath.observe.reader import LayoutError, RecordReader
from tickpath.observe.recent import Recent
from tickpath.observe.records import State
from tickpath.observe.scrapers import Scrapers
from tickpath.observe.settings import ObserverSettings
from tickpath.observe.slow import parse_slow_query
from tickpath.observe.status import CoreView
from tickpath.observe.tally import Tally
from tickpath.observe.watched import Watched

if TYPE_CHECKING:
    from tickpath.observe.tracing.tracer import Tracer

log = logging.getLogger(__name__)

# A fifth of what the ring holds at 80,000 requests a second; and 50 wake-ups a second cost next to nothing.
READ_S: Final = 0.02

EXIT_ADDRESS: Final = 4
"""The address can't be listened on. (2 is a command line that is not understood.)"""
EXIT_LAYOUT: Final = 5
"""The descriptor does not hold the memory this observer knows."""
EXIT_MISSING: Final = 1
"""What traces need is not installed."""

# A hundred heartbeats. Nothing that a core does takes so long; a restart is then better than waiting.
SILENT_NS_MAX: Final = 10_000_000_000

INDEX: Final = """\
tickpath observer of core {pid}

/metrics       for Prometheus, as text or OpenMetrics
/status.json   models, versions, sessions, counts, percentiles of the last minutes
/slow          the slowest requests of the last minutes, and why: ?count=20&model=NAME
/livez         200 while the core process lives and its loop turns
/readyz        200 while the core takes requests

A browser gets a live page here. In a terminal: tickpath top, tickpath slow.
"""


class Observer:
    """Answers for one core."""

    def __init__(self, tally: Tally, core: CoreProcess, settings: ObserverSettings) -> None:
        self._tally = tally
        self._scrapers = None if settings.token_file is None else Scrapers(Path(settings.token_file))
        self._core = core
        self._watched = Watched(core, tally.kept.counters)
        self._exposition = Exposition(core.pid, settings.server_name, settings.triton_names)
        self._recent = Recent(EventLog(self._watched.jitter.between, tally.events))
        self._tracer = self._make_tracer(settings)
        self._renderer = ThreadPoolExecutor(1)
        self._pages: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/": self._index,
            "/metrics": self._metrics,
            "/status.json": self._status,
            "/slow": self._slow,
            "/livez": self._live,
            "/readyz": self._ready,
        }

    async def read_for_ever(self) -> None:
        while True:
            self._read()
            await asyncio.sleep(READ_S)

    def _read(self) -> int:
        """Take what there is. Returns the moment, in ns of the monotonic clock."""
        now_ns = time.monotonic_ns()
        records = self._tally.read(now_ns)
        self._watched.jitter.sample(now_ns)
        self._recent.read(self._tally.core.versions, records, now_ns)
        if self._tracer is not None:
            self._tracer.read(records, now_ns)
        return now_ns

    def close(self) -> None:
        """Take what there still is, and send what traces there are."""
        if self._tracer is not None:
            self._tracer.close(self._read())

    def _make_tracer(self, settings: ObserverSettings) -> "Tracer | None":
        if settings.trace is None:
            return None
        from tickpath.observe.tracing.tracer import Tracer

        counters = self._tally.kept.counters
        return Tracer(settings.trace, settings.server_name, self._core.pid, self._recent, counters)

    async def answer(self, request: Request) -> Response:
        page_of = self._pages.get(request.path)
        if page_of is None:
            return say(HTTPStatus.NOT_FOUND, "not found: / lists what is here")
        if request.method not in ("GET", "HEAD"):
            return say(HTTPStatus.METHOD_NOT_ALLOWED, "GET or HEAD expected", "Allow: GET, HEAD")
        return await page_of(request)

    async def _metrics(self, request: Request) -> Response:
        if stranger := self._stranger(request):
            return stranger
        self._read()
        loop = asyncio.get_running_loop()
        content_type, body = await loop.run_in_executor(
            self._renderer, self._exposition.render, self._tally.snapshot(), self._watched.seen(), request.accept
        )
        return Response(HTTPStatus.OK, body, content_type)

    def _stranger(self, request: Request) -> Response | None:
        """What is said to who should bring a token and does not. Health, the index and the
        page, which holds nothing yet, are anybody's."""
        if self._scrapers is None or self._scrapers.may(request.authorization):
            return None
        return say(
            HTTPStatus.UNAUTHORIZED,
            "a token is asked for here, as Authorization: Bearer TOKEN",
            "WWW-Authenticate: Bearer",
        )

    async def _status(self, request: Request) -> Response:
        if stranger := self._stranger(request):
            return stranger
        now_ns = self._read()
        core = CoreView(self._core.alive(), self._tally.silent_ns(now_ns), self._watched.seen().switches)
        return await self._rendered(self._recent.status(self._tally.snapshot(), core, now_ns))

    async def _slow(self, request: Request) -> Response:
        if request.for_people:
            return page()
        if stranger := self._stranger(request):
            return stranger
        try:
            asked = parse_slow_query(request.query)
        except ValueError as error:
            return say(HTTPStatus.BAD_REQUEST, str(error))
        return await self._rendered(self._recent.slow(asked, self._read()))

    async def _rendered(self, make: Callable[[], msgspec.Struct]) -> Response:
        body = await asyncio.get_running_loop().run_in_executor(self._renderer, lambda: msgspec.json.encode(make()))
        return Response(HTTPStatus.OK, body, JSON, ("Cache-Control: no-store",))

    async def _index(self, request: Request) -> Response:
        if request.for_people:
            return page()
        return Response(HTTPStatus.OK, INDEX.format(pid=self._core.pid).encode())

    async def _live(self, _request: Request) -> Response:
        return self._dead() or say(HTTPStatus.OK, "alive")

    def _dead(self) -> Response | None:
        """Why nothing can be expected of the core."""
        if not self._core.alive():
            return say(HTTPStatus.SERVICE_UNAVAILABLE, f"the core, process {self._core.pid}, has ended")
        silent_ns = self._tally.silent_ns(time.monotonic_ns())
        if silent_ns > SILENT_NS_MAX:
            return say(HTTPStatus.SERVICE_UNAVAILABLE, f"the core's loop has stood still for {silent_ns / 1e9:.0f} s")
        return None

    async def _ready(self, _request: Request) -> Response:
        state = self._tally.state
        if state is State.READY:
            return self._dead() or say(HTTPStatus.OK, "ready")
        return say(HTTPStatus.SERVICE_UNAVAILABLE, state.name.lower())


def run(settings: ObserverSettings) -> int:
    """Observe until the core ends or a signal comes. Returns the exit status."""
    tally_fd = os.memfd_create("tickpath-tally") if settings.tally_fd is None else settings.tally_fd
    try:
        reader = RecordReader(settings.records_fd)
        core = CoreProcess(reader.description().pid)
        tally = Tally(reader, tally_fd)
        if tally.kept.problem:
            log.warning("the observer's histograms begin anew: %s", tally.kept.problem)
        observer = Observer(tally, core, settings)
        return asyncio.run(_observe(observer, core, settings.host, settings.port))
    except ProcessLookupError:
        return 0  # the core ended before we began
    except LayoutError as error:
        return _fail(str(error), EXIT_LAYOUT)
    except ModuleNotFoundError as missing:
        return _fail(f"{missing.name} is not there: pip install 'tickpath[tracing]', or have no traces", EXIT_MISSING)


async def _observe(observer: Observer, core: CoreProcess, host: str, port: int) -> int:
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
    observer.close()
    return 0


def _fail(line: str, status: int) -> int:
    log.error("the observer: %s", line)
    return status
