"""Who may connect to this core, and as whom: tokens, certificates and accounts together, and how they are renewed.

One writer: the loop's thread. Files are read on another (`read`), and what was read takes the old one's place in one
assignment (`Access.renew`): a connection that is being opened sees the one or the other.
"""

import asyncio
import logging
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tickpath.server.access_config import ClientConfig, asks_who_comes
from tickpath.server.config import ConfigError, ServerConfig
from tickpath.server.identity import Keyring, Known
from tickpath.server.quota import Account
from tickpath.server.rights import Rights
from tickpath.server.tls import server_context
from tickpath.wire.small_files import read_small
from tickpath.wire.tokens import FILE_BYTES_MAX, TokenError, holds_token, read_digests

log = logging.getLogger(__name__)

# Of what is refused at the door, one line in so long: enough to see it, too little to fill a disk.
LOG_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the files say now."""

    keyring: Keyring
    tls: ssl.SSLContext | None
    told: tuple[str, ...]


def read(config: ServerConfig) -> Credentials:
    """Read all files of tokens and certificates, and prove them. Raises ConfigError, and then nothing has changed."""
    told: list[str] = []
    digests = {client.name: _digests(client) for client in config.clients}
    _check_distinct(digests)
    for what, path in (("observer_token_file", config.observer_token_file), ("oip_token_file", config.oip_token_file)):
        if path is not None:
            _read_file(Path(path), what)
    tls = None
    if config.tls is not None:
        tls = server_context(config.tls)
        told.append(f"TLS: certificate {config.tls.certificate}")
    count = sum(map(len, digests.values()))
    if config.clients:
        told.append(f"clients: {len(config.clients)}, known by {count} tokens and by certificates")
    return Credentials(Keyring(config.clients, digests), tls, tuple(told))


def _digests(client: ClientConfig) -> tuple[bytes, ...]:
    known = tuple(map(bytes.fromhex, client.token_sha256))
    if client.token_file is None:
        return known
    return known + _read_file(Path(client.token_file), f"client {client.name!r}")


def _read_file(path: Path, whose: str) -> tuple[bytes, ...]:
    try:
        data, found = read_small(path, FILE_BYTES_MAX)
        mode = stat.S_IMODE(found.st_mode)
        if len(data) > FILE_BYTES_MAX:
            raise TokenError(f"more than {FILE_BYTES_MAX} bytes: one token a line expected")
        text = data.decode("ascii")
        known = read_digests(text)
    except OSError as error:
        raise ConfigError(f"{whose}: {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{whose}: {path}: one token of ASCII characters a line expected") from None
    except TokenError as error:
        raise ConfigError(f"{whose}: {path}: {error}") from None
    if mode & 0o007 and holds_token(text):
        log.warning("%s holds tokens and is open to every user of this machine (mode %o): chmod 600 it", path, mode)
    return known


def _check_distinct(digests: dict[str, tuple[bytes, ...]]) -> None:
    owners: dict[bytes, str] = {}
    for name, known in digests.items():
        for digest in known:
            if owners.setdefault(digest, name) != name:
                raise ConfigError(f"clients {owners[digest]!r} and {name!r} have a token in common: give each its own")


class Access:
    """Of one core."""

    def __init__(self, config: ServerConfig, credentials: Credentials) -> None:
        self._config = config
        self._credentials = credentials
        self._accounts = {client.name: Account(client) for client in config.clients}
        self._rights = {client.name: Rights.of(client) for client in config.clients}
        self._refused = 0  # since the log last said so
        self._told_s = float("-inf")

    @property
    def asks(self) -> bool:
        """Whether a client must show who it is."""
        return asks_who_comes(self._config.clients, self._config.tls)

    @property
    def keyring(self) -> Keyring:
        return self._credentials.keyring

    def tls_context(self) -> ssl.SSLContext:
        """What the next connection is served with."""
        assert self._credentials.tls is not None
        return self._credentials.tls

    def account(self, known: Known) -> Account:
        """Kept as long as the core lives for those that the configuration names; of another, it has no limits."""
        return self._accounts.get(known.name) or Account(ClientConfig(name=known.name[:64]))

    def rights(self, known: Known) -> Rights:
        return self._rights.get(known.name, Rights())

    def may_administer(self, token: str) -> bool:
        """Whether who comes through the door with this token may load and unload."""
        known = self.keyring.identify(token, frozenset())
        return isinstance(known, Known) and self.rights(known).admin

    def refused(self, why: str, now_s: float) -> None:
        """Say so in the log, not too often."""
        self._refused += 1
        if now_s - self._told_s >= LOG_S:
            log.warning("refused %d that did not show who they are; the last one: %s", self._refused, why)
            self._refused, self._told_s = 0, now_s

    async def renew(self) -> list[str]:
        """Read the files again: new connections are asked for what they say now. Raises ConfigError, and then all stays
        as it was."""
        loop = asyncio.get_running_loop()
        try:
            self._credentials = await loop.run_in_executor(None, read, self._config)
        except ConfigError as error:
            log.warning("tokens and certificates stay as they were: %s", error)
            raise
        told = self._credentials.told or ("there are no tokens and no certificates to read",)
        for line in told:
            log.info("read again: %s", line)
        return list(told)
