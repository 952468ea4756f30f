"""The door's life: listen, answer, end when told to or with the core that started it."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import grpc
import msgspec
import uvloop

from tickpath.client.token import Token, token_from
from tickpath.door.callers import Callers
from tickpath.door.connections import BoundedServer
from tickpath.door.http import Rest
from tickpath.door.repository import Repository
from tickpath.door.rpc import make_server
from tickpath.door.services import Services
from tickpath.door.settings import DoorReady, DoorSettings
from tickpath.door.tally import Tally
from tickpath.door.upstream import Upstream

# What is being answered at the end gets so long.
DRAIN_S: Final = 2.0
BACKLOG: Final = 1024


class DoorAddressError(Exception):
    """The address can't be listened on. The text names it."""


def run(settings: DoorSettings, ready: Callable[[DoorReady], None]) -> None:
    """Answer until SIGTERM, SIGINT or the end of the core. `ready` is told where, once it listens. Raises
    DoorAddressError."""
    uvloop.run(_serve(settings, ready))


def print_ready(ready: DoorReady) -> None:
    """As one JSON line, for whoever started this process."""
    os.write(sys.stdout.fileno(), msgspec.json.encode(ready) + b"\n")


async def _serve(settings: DoorSettings, ready: Callable[[DoorReady], None]) -> None:
    stop = asyncio.Event()
    callers = _make_callers(settings)
    with ExitStack() as stack:
        _stop_with(settings.core_pid, stop, stack)
        rest = BoundedServer(Rest(callers).answer)
        listener, http_address = await _listen_http(rest, settings)
        calls = make_server(callers, settings.message_bytes_max)
        grpc_address = _listen_grpc(calls, settings)
        await calls.start()
        ready(DoorReady(http_address, grpc_address))
        await stop.wait()
        if listener is not None:
            listener.close()
        await asyncio.gather(rest.shutdown(DRAIN_S), calls.stop(DRAIN_S))
        await callers.close()


def _make_callers(settings: DoorSettings) -> Callers:
    own: Token = ""
    if settings.token_file is not None or settings.core_pid is None:  # what the core was started with is its own
        own = token_from(settings.token_file)
    tally, version = Tally(), _version()

    def make(token: str) -> Services:
        upstream = Upstream(settings.core, token or own, settings.tls)
        return Services(upstream, Repository(settings.admin, token if settings.bearer else None), version, tally)

    return Callers(make, settings.bearer)


def _stop_with(core_pid: int | None, stop: asyncio.Event, stack: ExitStack) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if core_pid is None:
        return
    if os.getppid() != core_pid:  # it ended before we began
        stop.set()
        return
    pidfd = os.pidfd_open(core_pid)
    stack.callback(os.close, pidfd)
    loop.add_reader(pidfd, stop.set)
    stack.callback(loop.remove_reader, pidfd)


async def _listen_http(rest: BoundedServer, settings: DoorSettings) -> tuple[asyncio.Server | None, str | None]:
    if settings.http_port is None:
        return None, None
    loop = asyncio.get_running_loop()
    try:
        listener = await loop.create_server(rest, settings.host, settings.http_port, backlog=BACKLOG)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise DoorAddressError(f"can't listen on {settings.host}:{settings.http_port}: {reason}") from None
    return listener, f"http://{_told(settings.host, listener.sockets[0].getsockname()[1])}"


def _listen_grpc(calls: grpc.aio.Server, settings: DoorSettings) -> str | None:
    if settings.grpc_port is None:
        return None
    address = _told(settings.host, settings.grpc_port)
    try:
        port = calls.add_insecure_port(address)
    except RuntimeError:
        port = 0
    if not port:
        raise DoorAddressError(f"can't listen on {address}: it is in use, or no address of this machine")
    return _told(settings.host, port)


def _told(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _version() -> str:
    try:
        return version("tickpath")
    except PackageNotFoundError:
        return "0"
