"""Where a server listens: "host:port", "[::1]:7070", ("host", port), "tls://host:port" or "unix:/path"."""

from typing import TypeAlias

import msgspec

from tickpath.client.errors import AddressError

UNIX_PREFIX = "unix:"
TLS_PREFIX = "tls://"


class TcpAddress(msgspec.Struct, frozen=True):
    """A host (a name, or an IPv4 or IPv6 address without brackets) and a port. `encrypted`: TLS is spoken there."""

    host: str
    port: int
    encrypted: bool = False

    def __str__(self) -> str:
        place = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        return TLS_PREFIX + place if self.encrypted else place


class UnixAddress(msgspec.Struct, frozen=True):
    """The path of a Unix socket."""

    path: str

    def __str__(self) -> str:
        return UNIX_PREFIX + self.path


Address: TypeAlias = TcpAddress | UnixAddress


def parse_address(address: str | tuple[str, int]) -> Address:
    """Raises AddressError, saying which forms there are."""
    if isinstance(address, tuple):
        host, port = address
        return _tcp(host, str(port), address)
    if address.startswith(UNIX_PREFIX):
        path = address.removeprefix(UNIX_PREFIX)
        if not path:
            raise _unreadable(address)
        return UnixAddress(path)
    if address.startswith(TLS_PREFIX):
        plain = address.removeprefix(TLS_PREFIX)
        inner = None if plain.startswith(TLS_PREFIX) else parse_address(plain)
        if not isinstance(inner, TcpAddress):
            raise _unreadable(address)
        return TcpAddress(inner.host, inner.port, True)
    host, _, port_text = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        return _tcp(host[1:-1], port_text, address)
    if ":" in host:  # `::1:7070` could end anywhere
        raise _unreadable(address)
    return _tcp(host, port_text, address)


def _tcp(host: str, port: str, address: object) -> TcpAddress:
    if not host or not _is_port(port):
        raise _unreadable(address)
    return TcpAddress(host, int(port))


def _is_port(text: str) -> bool:
    # Python reads no number of thousands of digits.
    return text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65535


def _unreadable(address: object) -> AddressError:
    return AddressError(
        "expected host:port, [IPv6]:port, (host, port), tls://host:port or unix:/path with a port of 1 to 65535, "
        f"got {address!r}{_hint(str(address))}"
    )


def _hint(address: str) -> str:
    port = address.removeprefix(":")
    if _is_port(port):
        return f"; did you mean 127.0.0.1:{port}?"
    return f"; did you mean {UNIX_PREFIX}{address}?" if "/" in address and "://" not in address else ""
