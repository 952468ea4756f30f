"""The admin socket: what an operator asks of a running server, one JSON object a line each way.

It is a Unix socket that only this server's user may open: the file's permissions are its authentication.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Annotated, Final

import msgspec

from tickpath.server.config import Name
from tickpath.server.deployment import REFUSALS, Deployment
from tickpath.server.gate import Gate
from tickpath.server.status import ModelStatus
from tickpath.wire.messages import TOKEN_CHARS_MAX

log = logging.getLogger(__name__)

# A request names a model and a version, and may bring a token.
LINE_BYTES_MAX: Final = 4096
# Operators and their scripts; each holds a descriptor.
CONNECTIONS_MAX: Final = 4
# And those of clients who gave up, whose change goes on or waits: they must not keep out whoever wants to roll back.
GONE_MAX: Final = 12
# Between two requests of one connection, and for one who asks and does not read.
IDLE_S: Final = 60.0


# The token of whoever the door asks for; None: whoever may open this socket asks for himself.
Token = Annotated[str, msgspec.Meta(max_length=TOKEN_CHARS_MAX)] | None


class Asked(msgspec.Struct, frozen=True, tag_field="do", forbid_unknown_fields=True):
    """Base of what can be asked."""


class Reload(Asked, frozen=True, tag="reload"):
    """Serve what the files now hold; of every model, where none is named."""

    model: Name | None = None
    token: Token = None


class Load(Asked, frozen=True, tag="load"):
    """Load a version beside the live one."""

    model: Name
    version: Name


class Unload(Asked, frozen=True, tag="unload"):
    """Unload a version, or a whole model."""

    model: Name
    version: Name | None = None
    token: Token = None


class Rollback(Asked, frozen=True, tag="rollback"):
    """Make the version that was live before live again."""

    model: Name


class SetCanary(Asked, frozen=True, tag="canary"):
    """Have a version answer a share of the clients; without one, the live version answers all."""

    model: Name
    version: Name | None = None
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0


class SetShadow(Asked, frozen=True, tag="shadow"):
    """Have a version compute what is answered; without one, none does."""

    model: Name
    version: Name | None = None


class SetQuiet(Asked, frozen=True, tag="quiet"):
    """Load and unload nothing (true), or whatever the hour (false); None: as the configured hours say."""

    quiet: bool | None = None


class Renew(Asked, frozen=True, tag="renew"):
    """Read tokens and certificates again, and leave the models alone."""


class AskStatus(Asked, frozen=True, tag="status"):
    """What is served."""


Request = Reload | Load | Unload | Rollback | SetCanary | SetShadow | SetQuiet | Renew | AskStatus


class Reply(msgspec.Struct, frozen=True):
    """What came of it. `done` false: nothing was changed, and `text` says why and what to do. `changing`: something is
    being loaded or unloaded."""

    done: bool
    text: tuple[str, ...]
    quiet: bool
    changing: bool
    models: tuple[ModelStatus, ...]


class Admin:
    """Answers on the admin socket."""

    def __init__(self, deployment: Deployment, gate: Gate) -> None:
        self._deployment = deployment
        self._gate = gate
        self._decoder = msgspec.json.Decoder(Request)
        self._readers: set[asyncio.StreamReader] = set()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end."""
        self._readers.add(reader)
        try:
            await self._talk(reader, writer)
        except (TimeoutError, ConnectionError, asyncio.CancelledError):  # cancelled: the server ends
            pass
        finally:
            self._readers.discard(reader)
            writer.close()

    def _may(self, token: str) -> bool:
        return self._gate.may_administer(token)

    @property
    def _is_full(self) -> bool:
        gone = sum(reader.at_eof() for reader in self._readers)
        return len(self._readers) - gone > CONNECTIONS_MAX or gone > GONE_MAX

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_full:
            await _write(writer, self._reply(False, f"{CONNECTIONS_MAX} connections are open: try again later"))
            return
        while True:
            try:
                line = await asyncio.wait_for(reader.readline(), IDLE_S)
            except ValueError:  # the stream's word for a line that is too long
                await _write(writer, self._reply(False, f"a request is one line of at most {LINE_BYTES_MAX} bytes"))
                return
            if not line:
                return
            await _write(writer, await self._answer(line))

    async def _answer(self, line: bytes) -> Reply:
        try:
            asked = self._decoder.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            return self._reply(False, f"not a request: {error}")
        try:
            if isinstance(asked, Reload | Unload) and asked.token is not None and not self._may(asked.token):
                return self._reply(False, "this client may not load or unload: that takes a token with `admin`")
            told = await self._do(asked)
            if not isinstance(asked, Reload | Rollback | Renew):  # which are told of where they are done
                for text in told:
                    log.info("%s", text)
            return self._reply(True, *told)
        except REFUSALS as error:
            return self._reply(False, str(error))
        except Exception:
            log.exception("a fault of the server refused a change")
            return self._reply(False, "a fault of the server, which its log describes: please report it")

    async def _do(self, asked: Request) -> list[str]:
        deployment = self._deployment
        told: list[str] = []
        match asked:
            case Reload(model=model):
                told += await deployment.reload(model)
            case Load(model=model, version=version):
                told.append(await deployment.load(model, version))
            case Unload(model=model, version=version):
                told.append(await deployment.unload(model, version))
            case Rollback(model=model):
                told.append(await deployment.rollback(model))
            case SetCanary(model=model, version=version, share=share):
                told.append(await deployment.canary(model, version, share))
            case SetShadow(model=model, version=version):
                told.append(await deployment.shadow(model, version))
            case SetQuiet(quiet=quiet):
                deployment.quiet.asked = quiet
                told.append("quiet: nothing is loaded or unloaded" if deployment.is_quiet else "not quiet")
            case Renew():
                told += await self._gate.renew()
            case AskStatus():
                pass
        return told

    def _reply(self, done: bool, *text: str) -> Reply:
        deployment = self._deployment
        return Reply(done, text, deployment.is_quiet, deployment.is_changing, deployment.status())


async def _write(writer: asyncio.StreamWriter, reply: Reply) -> None:
    writer.write(msgspec.json.encode(reply) + b"\n")
    await asyncio.wait_for(writer.drain(), IDLE_S)


def on_reload_signal(loop: asyncio.AbstractEventLoop, reload: Callable[[], Awaitable[object]]) -> Callable[..., None]:
    """A handler for SIGHUP, which has it done; what goes wrong is in the log. While one waits behind another, more of
    them ask for nothing more."""
    tasks: set[asyncio.Task[None]] = set()

    async def run() -> None:
        try:
            await reload()
        except REFUSALS as error:
            log.warning("reload: %s", error)
        except Exception:
            log.exception("reload: a fault of the server refused it")

    def begin() -> None:
        if len(tasks) > 1:
            return
        task = loop.create_task(run())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def handler(*_: object) -> None:
        loop.call_soon_threadsafe(begin)

    return handler
