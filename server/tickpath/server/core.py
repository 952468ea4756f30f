"""The core process, from start to exit: listen, load, warm, serve, drain.

Exit codes: 0 stopped as asked, 1 a fault of ours, 2 bad usage or configuration, 3 a model was refused, 4 an address
can't be listened on, 6 a device is lost to this process; the command has them.
"""

import asyncio
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Set
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from time import CLOCK_BOOTTIME, clock_gettime, monotonic
from typing import Final, NoReturn, TypeVar

import msgspec
import uvloop

from tickpath.engines import DeviceLostError
from tickpath.logs import logging_to_stderr
from tickpath.observe.records import GlobalCell, RecordWriter, State
from tickpath.server.access import Access, read
from tickpath.server.admin import LINE_BYTES_MAX, Admin, on_reload_signal
from tickpath.server.catalogue import Catalogue
from tickpath.server.child_process import ChildProcess
from tickpath.server.config import ConfigError, ServerConfig
from tickpath.server.deployment import Deployment
from tickpath.server.door_process import DoorProcess
from tickpath.server.gate import Closes, Gate
from tickpath.server.housekeeping import Housekeeping
from tickpath.server.lane import DeviceLost
from tickpath.server.listeners import (
    GROUP_TOO,
    OWNER_ALONE,
    address_of,
    listen_tcp,
    listen_unix,
    remove_file,
)
from tickpath.server.loader import Loader
from tickpath.server.observer_process import ObserverProcess
from tickpath.server.polling import Polling
from tickpath.server.ready import Ready
from tickpath.server.recorder_process import RecorderProcess
from tickpath.server.recording import Recording
from tickpath.server.sd_notify import ServiceManager
from tickpath.server.service import Service
from tickpath.server.source import ModelSource
from tickpath.server.tls import HANDSHAKES_MAX
from tickpath.server.warmup import warm_network_path
from tickpath.server.watch import watch

log = logging.getLogger(__name__)

EXIT_OK: Final = 0

Child = TypeVar("Child", bound=ChildProcess)

# Descriptors that are not sessions: listeners, loop, records, model files while they load, the pipes of the observer
# and of a model that is proven, admin connections, and some air.
DESCRIPTORS_RESERVED: Final = 60
# After Goodbye, clients get this long to see it and to have what they had already sent refused rather than reset.
GOODBYE_S: Final = 0.1


def run(config: ServerConfig, json_lines: bool = False) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code. Raises ModelRefusedError, AddressError, ChildError or
    ConfigError before anything is served, and DeviceLostError then or, after the clients were told, later.

    With `json_lines`, what happens is printed to stdout as one JSON object a line, for whoever started this process.
    """
    # The records outlive the loop: whatever it still runs as it ends may count in them.
    with (
        logging_to_stderr(config.log_format),
        closing(RecordWriter()) as records,
        closing(ServiceManager.of(os.environ)) as manager,
    ):
        return uvloop.run(_Core(config, json_lines, records, manager).serve())


class _Core:
    """One life of the process."""

    def __init__(self, config: ServerConfig, json_lines: bool, records: RecordWriter, manager: ServiceManager) -> None:
        self._config = config
        self._json_lines = json_lines
        self._records = records
        self._manager = manager
        self._stop = asyncio.Event()
        self._lost: DeviceLostError | None = None
        self._outlasting = ExitStack()  # what would outlast this process, were it to end without a word

    async def serve(self) -> int:
        config, records = self._config, self._records
        loop = asyncio.get_running_loop()
        _on_stop_signals(self._stop_starting)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nothing is read yet
        with ExitStack() as stack:
            listening = stack.enter_context(ExitStack())
            access = Access(config, read(config))
            listeners, admin = self._listen(listening), self._listen_admin(listening)
            poll_ns = _poll_ns(config)
            other_cpus = _pin(config.cpu)
            observer = self._start_observer(loop, listeners, other_cpus, stack)
            door = self._start_door(loop, listeners, other_cpus, stack)
            recording, recorder = self._start_recorder(loop, other_cpus, stack)
            service = Service(config, Catalogue(), records, loop, _sessions_max(config), Polling(loop, poll_ns))
            gate = Gate(service, access, recording)
            loader = Loader(loop, other_cpus, config.frame_bytes_max)
            deployment = Deployment(service, ModelSource(config), loader, other_cpus, self._device_lost(loop))
            stack.callback(deployment.close)
            # What has come since its files were read is loaded as soon as it serves.
            signal.signal(signal.SIGHUP, on_reload_signal(loop, self._reload(gate, deployment)))
            stack.callback(signal.signal, signal.SIGHUP, signal.SIG_IGN)
            deployment.start(config.models)
            await warm_network_path(service, service.catalogue.versions)
            for child in filter(None, (observer, door, recorder)):
                await child.ready()
            if recording is not None:
                recording.start(service, loop)
            housekeeping = Housekeeping(loop, records, deployment, self._manager)
            housekeeping.start()
            stack.callback(housekeeping.stop)
            service.polling.start()
            servers = [await gate.open(listener) for listener in listeners]
            await self._take_orders(deployment, gate, admin, stack)
            _on_stop_signals(lambda *_: self._stop.set())
            records.set_cell(GlobalCell.STATE, State.READY)
            self._announce([gate.address_of(listener) for listener in listeners], observer, door)
            await self._stop.wait()
            self._manager.stopping()
            # A socket's file goes while we still listen on it: afterwards it could be our successor's.
            listening.close()
            await self._drain(service, servers)
        log.info("stopped")
        _on_stop_signals(signal.SIG_IGN)
        if self._lost is not None:
            raise self._lost
        return EXIT_OK

    def _reload(self, gate: Gate, deployment: Deployment) -> Callable[[], Awaitable[None]]:
        """What SIGHUP asks for, as `systemctl reload` does: tokens and certificates are read again, then every model is
        reloaded; the one whatever comes of the other, which is in the log."""

        async def reload() -> None:
            with self._manager.reloading():
                with suppress(ConfigError):  # which is in the log
                    await gate.renew()
                await deployment.reload()

        return reload

    def _device_lost(self, loop: asyncio.AbstractEventLoop) -> DeviceLost:
        """What a lane tells on whichever thread it runs."""

        def device_lost(error: DeviceLostError) -> None:
            loop.call_soon_threadsafe(self._end_without_device, error)

        return device_lost

    def _end_without_device(self, error: DeviceLostError) -> None:
        """A device is gone, for all models on it and as long as this process lives: stop as if asked to, and say
        why."""
        if self._lost is None:
            self._lost = error
            log.error("a device is lost, so the server ends: %s", error)
        self._stop.set()

    def _stop_starting(self, _number: int, _frame: object) -> NoReturn:
        """Nobody is served yet: leave nothing behind, and end on the spot. An exception would be raised wherever the
        signal is noticed, and be lost in a callback, or break a library that is just being set up."""
        self._outlasting.close()
        os._exit(EXIT_OK)

    def _listen(self, stack: ExitStack) -> list[socket.socket]:
        """Bind before anything slow, so that a taken address is known at once; clients that come early wait in the
        backlog."""
        config = self._config
        listeners = []
        if config.port is not None:
            listeners.append(stack.enter_context(listen_tcp(config.host, config.port)))
        if config.uds is not None:
            mode = GROUP_TOO if config.uds_group else OWNER_ALONE
            mode = int(config.uds_mode, 8) if config.uds_mode else mode
            listeners.append(self._listen_unix(config.uds, "--uds", stack, mode, config.uds_group))
        if config.observer_port is not None:
            # The observer listens itself, later; that it can't is known now.
            listen_tcp(config.observer_host, config.observer_port, "observer_host", "--observer-port").close()
        for port, option in ((config.oip_port, "--oip"), (config.oip_grpc_port, "--oip-grpc")):
            if port is not None:
                listen_tcp(config.oip_host, port, "oip_host", option).close()
        return listeners

    def _listen_admin(self, stack: ExitStack) -> socket.socket | None:
        """For this user alone."""
        if self._config.admin is None:
            return None
        return self._listen_unix(self._config.admin, "--admin", stack)

    def _listen_unix(
        self, place: str, option: str, stack: ExitStack, mode: int = OWNER_ALONE, group: str | None = None
    ) -> socket.socket:
        path = Path(place)
        listener = stack.enter_context(listen_unix(path, option, mode, group))
        for end in (stack, self._outlasting):
            end.callback(remove_file, path, path.stat().st_ino)
        return listener

    async def _take_orders(
        self, deployment: Deployment, gate: Gate, admin: socket.socket | None, stack: ExitStack
    ) -> None:
        """From here on an operator may change what is served: by the admin socket, and by the repository."""
        loop = asyncio.get_running_loop()
        if admin is not None:
            talk = Admin(deployment, gate).talk
            server = await asyncio.start_unix_server(talk, sock=admin, limit=LINE_BYTES_MAX)
            stack.callback(server.close)
        if self._config.watch_s is not None:
            watching = loop.create_task(watch(deployment, self._config.watch_s))
            stack.callback(watching.cancel)

    def _start_observer(
        self,
        loop: asyncio.AbstractEventLoop,
        listeners: list[socket.socket],
        cpus: Set[int] | None,
        stack: ExitStack,
    ) -> ObserverProcess | None:
        if self._config.observer_port is None:
            return None
        name = f"{socket.gethostname()}/{address_of(listeners[0])}"
        observer = ObserverProcess(loop, self._records.fd, self._config, name, cpus)
        return self._started(observer, stack)

    def _start_door(
        self,
        loop: asyncio.AbstractEventLoop,
        listeners: list[socket.socket],
        cpus: Set[int] | None,
        stack: ExitStack,
    ) -> DoorProcess | None:
        config = self._config
        if config.oip_port is None and config.oip_grpc_port is None:
            return None
        address = address_of(listeners[-1])  # the Unix socket, where there is one: the shortest way
        return self._started(DoorProcess(loop, config, address, cpus), stack)

    def _start_recorder(
        self, loop: asyncio.AbstractEventLoop, cpus: Set[int] | None, stack: ExitStack
    ) -> tuple[Recording, RecorderProcess] | tuple[None, None]:
        if self._config.record is None:
            return None, None
        recording = Recording(self._config.record)
        stack.callback(recording.stop)
        return recording, self._started(RecorderProcess(loop, recording, self._config.log_format, cpus), stack)

    def _started(self, child: Child, stack: ExitStack) -> Child:
        self._outlasting.callback(child.kill)
        stack.callback(child.stop)
        child.start()
        return child

    def _announce(self, addresses: list[str], observer: ObserverProcess | None, door: DoorProcess | None) -> None:
        seconds = _age_s()
        url = observer.url if observer is not None else None
        oip = [address for address in (door.http, door.grpc) if address] if door is not None else []
        self._manager.ready(f"serving on {' and '.join(addresses)}")
        log.info(
            "ready after %.2f s on %s%s%s",
            seconds,
            " and ".join(addresses),
            f"; metrics at {url}/metrics" if url else "",
            f"; Open Inference Protocol at {' and '.join(oip)}" if oip else "",
        )
        if self._json_lines:
            # TCP comes first where there is a choice.
            uds = next((address for address in addresses if address.startswith("unix:")), None)
            ready = Ready(addresses[0], uds, url, os.getpid(), round(seconds, 3))
            if door is not None:
                ready = msgspec.structs.replace(ready, oip=door.http, oip_grpc=door.grpc)
            sys.stdout.write(msgspec.json.encode(ready).decode() + "\n")
            sys.stdout.flush()

    async def _drain(self, service: Service, servers: list[Closes]) -> None:
        """Accept nobody, take nothing new, answer what is in flight, in bounded time; refuse what has not begun by
        then."""
        log.info("draining: %d sessions", len(service.sessions))
        end_s = monotonic() + self._config.drain_s
        for server in servers:
            server.close()
        service.draining = True
        service.records.set_cell(GlobalCell.STATE, State.DRAINING)
        for session in tuple(service.sessions):
            session.say_goodbye()
        await asyncio.sleep(GOODBYE_S)
        for session in tuple(service.sessions):
            session.leave()
        await _ended(service, end_s)
        for version in service.catalogue.versions:
            version.executor.close()
        await _ended(service, end_s + GOODBYE_S)
        for session in tuple(service.sessions):
            session.abort()
        await asyncio.sleep(0)


async def _ended(service: Service, until_s: float) -> None:
    """Wait until all sessions have ended, or until then."""
    while service.sessions and monotonic() < until_s:
        await asyncio.sleep(0.005)


def _on_stop_signals(handler: Callable[[int, object], None] | signal.Handlers) -> None:
    """The system's handlers and not the loop's, whose end sets the default again: a second signal would then kill the
    process in its last moments, and change its exit code."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)


def _age_s() -> float:
    """Seconds since this process began, its imports included."""
    # Field 22 of stat, counted behind the command's closing parenthesis, which may hold anything.
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return clock_gettime(CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _pin(cpu: int | None) -> Set[int] | None:
    """Put the loop's thread on `cpu`. Returns the other processors, for threads that must not compete with it; None:
    anywhere."""
    if cpu is None:
        return None
    allowed = os.sched_getaffinity(0)
    if cpu not in allowed:
        raise ConfigError(f"--cpu {cpu}: this process may use {sorted(allowed)}")
    os.sched_setaffinity(0, {cpu})
    return allowed - {cpu} or None


def _poll_ns(config: ServerConfig) -> int | None:
    """How long the loop stays awake after a request; None: for ever. With one processor, only as long as it must:
    whoever sends the next request needs that processor."""
    if config.spin:
        return None
    return config.poll_us * 1000 if len(os.sched_getaffinity(0)) > 1 else 0


def _sessions_max(config: ServerConfig) -> int:
    """As many sessions as configured, or as the descriptor limit holds: refusing politely needs a descriptor to do it
    with."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    room = max(1, hard - DESCRIPTORS_RESERVED - (HANDSHAKES_MAX if config.tls else 0))
    if room < config.sessions_max:
        log.warning(
            "sessions_max lowered from %d to %d: the limit of open files is %d (ulimit -n)",
            config.sessions_max,
            room,
            hard,
        )
    return min(config.sessions_max, room)
