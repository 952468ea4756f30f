"""TLS on the TCP port: the certificate, and the way from an accepted connection to a session.

Rules
- TLS 1.2 or newer; no renegotiation, no compression; keys without a password.
- A certificate is proven before it is used: an encrypted session within memory, its own client at the other end. One
  that has expired, or does not belong to its key, is refused; when it is to take another's place, the other one stays.
- A connection is no session before its handshake is done. Handshakes are bounded in time, in number (the oldest goes)
  and in how many begin a second, since each costs the loop as much as a dozen connections in the clear; who comes
  beyond that waits in the kernel's backlog. Those who left while they waited there cost nothing, and keep nobody
  waiting.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from tickpath.server.access_config import TlsConfig
from tickpath.server.config import ConfigError
from tickpath.server.connection import LINGER_S
from tickpath.server.quota import TokenBucket
from tickpath.wire.small_files import check_pem

log = logging.getLogger(__name__)

# Handshakes under way: two round trips each, so that some hundred clients a second get through from anywhere on earth.
HANDSHAKES_MAX: Final = 128
# Handshakes begun a second, and at once. The cryptography alone takes 0.45 ms of the loop with an elliptic key, and all
# of a connection up to 4 ms on a machine that is busy (bench/README.md): a flood has a tenth of the loop, at worst two
# fifths; and a desk of a hundred is back within the burst.
HANDSHAKES_A_SECOND: Final = 100.0
HANDSHAKES_BURST: Final = 100
# A connection's state as the kernel numbers it (netinet/tcp.h), the first byte of TCP_INFO.
TCP_ESTABLISHED: Final = 1
# When no descriptor is left for a newcomer.
ACCEPT_AGAIN_S: Final = 0.1


def server_context(config: TlsConfig) -> ssl.SSLContext:
    """What new connections are served with. Raises ConfigError, and reads files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    _load(context, config)
    if config.client_ca is not None:
        _check_file("tls client_ca", config.client_ca)
        try:
            context.load_verify_locations(config.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"tls client_ca {config.client_ca}: {_reason(error)}: give the authorities, as PEM"
            ) from None
        required = config.client_certificates == "required"
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    _prove(config)
    return context


def _load(context: ssl.SSLContext, config: TlsConfig) -> None:
    def no_password() -> str:
        raise ConfigError(f"tls key {config.key}: it has a password, which nobody is there to type: give it without")

    for key, path in (("certificate", config.certificate), ("key", config.key)):
        _check_file(f"tls {key}", path)
    try:
        context.load_cert_chain(config.certificate, config.key, no_password)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"tls certificate {config.certificate} and key {config.key}: {_reason(error)}: give a certificate and the "
            "key that belongs to it, as PEM"
        ) from None


def _check_file(what: str, path: str) -> None:
    """That there is one to read. Raises ConfigError."""
    try:
        check_pem(Path(path))
    except OSError as error:
        raise ConfigError(f"{what} {path}: {error.strerror}: a file in PEM expected") from None


def _prove(config: TlsConfig) -> None:
    """Whether a client that trusts this very certificate gets through now. Raises ConfigError."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(server, config)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(config.certificate)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname="here"),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    try:
        for _ in range(4):  # messages of a handshake, and one for what goes wrong
            for end in ends:
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()
    except ssl.SSLError as error:
        raise ConfigError(f"tls certificate {config.certificate}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """In words, without the place in the library's source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not PEM").replace("_", " ").lower()
    return (isinstance(error, OSError) and error.strerror) or str(error)


class TlsListener:
    """Accepts connections, and makes sessions of those whose handshake is done in time. `context`: of new ones.
    `failed` is told of each that is not."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listener: socket.socket,
        session: Callable[[], asyncio.BaseProtocol],
        context: Callable[[], ssl.SSLContext],
        handshake_s: float,
        failed: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._session = session
        self._context = context
        self._handshake_s = handshake_s
        self._failed = failed
        self._pace = TokenBucket(HANDSHAKES_A_SECOND, HANDSHAKES_BURST)
        self._under_way: dict[asyncio.Task[None], None] = {}
        self._again: asyncio.TimerHandle | None = None
        self._closed = False
        loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Accept nobody any more; what is under way ends."""
        if self._closed:
            return
        self._closed = True
        if self._again is not None:
            self._again.cancel()
        else:
            self._loop.remove_reader(self._listener)
        for task in tuple(self._under_way):
            task.cancel()

    def _accept(self) -> None:
        wait_ns = self._pace.wait_ns(now_ns := round(self._loop.time() * 1e9))
        if wait_ns:
            self._pause(wait_ns / 1e9)
            return
        try:
            accepted, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                raise
            self._pause(ACCEPT_AGAIN_S)
            return
        accepted.setblocking(False)
        if _has_gone(accepted):
            accepted.close()
            self._failed()
            return
        self._pace.take(now_ns)
        self._make_room()
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._shake_hands(accepted))
        self._under_way[task] = None

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._listener)
        self._again = self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._again = None
        self._loop.add_reader(self._listener, self._accept)

    def _make_room(self) -> None:
        if len(self._under_way) >= HANDSHAKES_MAX:
            oldest = next(iter(self._under_way))
            del self._under_way[oldest]
            oldest.cancel()

    async def _shake_hands(self, accepted: socket.socket) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            await self._loop.connect_accepted_socket(
                self._session,
                accepted,
                ssl=self._context(),
                ssl_handshake_timeout=self._handshake_s,
                ssl_shutdown_timeout=LINGER_S,
            )
        except (OSError, asyncio.CancelledError):  # no TLS, the wrong certificate, too slow, or it had to make room
            accepted.close()
            self._failed()
        except Exception:
            accepted.close()
            log.exception("a fault of the server ended a handshake")
        finally:
            self._under_way.pop(task, None)


def _has_gone(accepted: socket.socket) -> bool:
    """Whether its client has closed or reset before its turn came: no handshake can be had with it. What it said first
    can still be read, so only the kernel's own state tells."""
    return accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != TCP_ESTABLISHED
