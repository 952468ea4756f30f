"""What the configuration says of who may connect, ask and how much: structs only, checked at the edge with the rest."""

import ipaddress
from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec

from tickpath.server.config_types import Place, Positive
from tickpath.wire.tokens import HASH_PATTERN

# A name of certificates as `getpeercert` tells it: a field of the subject, or of the alternative names.
CERTIFICATE_PATTERN: Final = r"^(CN|DNS|URI|email|IP):[^\0\n]{1,256}\Z"
MODE_PATTERN: Final = r"^0[0-7]{3}\Z"
# As a model's; told in answers and logs, and what feeds and canaries go by.
CLIENT_PATTERN: Final = r"^[A-Za-z0-9_.@-]{1,64}\Z"
GROUP_PATTERN: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\Z"
WORDS: Final = {
    CERTIFICATE_PATTERN: "that says where the name stands, as CN:desk-7, DNS:desk-7.example or URI:spiffe://desk/7",
    MODE_PATTERN: "of a mode as 0660",
    CLIENT_PATTERN: "of letters, digits, _ . @ - and at most 64 of them",
    GROUP_PATTERN: "that is a group's name",
    HASH_PATTERN: "of 64 hex digits",
}

Hash = Annotated[str, msgspec.Meta(pattern=HASH_PATTERN)]
Certificate = Annotated[str, msgspec.Meta(pattern=CERTIFICATE_PATTERN)]
Mode = Annotated[str, msgspec.Meta(pattern=MODE_PATTERN)]
Group = Annotated[str, msgspec.Meta(pattern=GROUP_PATTERN)]
# From once in twelve days, below which nobody waits for the next, to more than one core can answer: whoever wants no
# limit leaves it out.
Rate = Annotated[float, msgspec.Meta(ge=1e-6, le=1e7)]
# Each Hello is compared with the tokens of all of them.
CLIENTS_MAX: Final = 256


class ClientConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One client that may connect: how it is known, what it may ask, how much of it. Its repr tells the name alone."""

    name: Annotated[str, msgspec.Meta(pattern=CLIENT_PATTERN)]
    # Its tokens, one a line (see wire/tokens.py); read again on SIGHUP and by `tickpath renew`.
    token_file: Place | None = None
    # Their hashes, in place of a file.
    token_sha256: tuple[Hash, ...] = ()
    # The name that its certificate must have; with a token as well, both are needed.
    certificate: Certificate | None = None
    # The models it may ask, in whatever version; None: all.
    models: tuple[str, ...] | None = None
    # Whether it may load and unload through the door.
    admin: bool = False
    # Over all its connections; None: as much as the server's own limits allow.
    sessions_max: Positive | None = None
    in_flight_max: Positive | None = None
    # Infers, Ticks and requests about feeds, a second.
    rate_max: Rate | None = None
    # How many of them may come at once after a pause; None: a tenth of a second's.
    rate_burst: Positive | None = None

    def __repr__(self) -> str:
        return f"ClientConfig({self.name!r})"


class TlsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """TLS on the TCP port. The files are read again on SIGHUP and by `tickpath renew`."""

    # PEM: the certificate, and behind it those of the authorities between it and the root.
    certificate: Place
    # PEM, without a password: nobody is there to type it.
    key: Place
    # PEM: the authorities whose certificates clients may come with; None: clients are asked for none.
    client_ca: Place | None = None
    # Whether each must come with one, or may come with a token instead.
    client_certificates: Literal["required", "optional"] = "required"


def problem_of(clients: Sequence[ClientConfig], tls: TlsConfig | None, has_door: bool) -> str | None:
    """What is wrong with these rules together, and what to do about it; None: nothing. `has_door`: the server starts a
    door, which comes by the Unix socket."""
    names = [client.name for client in clients]
    if len(clients) > CLIENTS_MAX:
        return f"{len(clients)} clients, one server takes {CLIENTS_MAX}: let some share an entry with several tokens"
    for name in names:
        if names.count(name) > 1:
            return f"two clients are named {name!r}: give each its own name, or one entry with several tokens"
    if has_door and not clients and asks_who_comes(clients, tls):
        return (
            "the door has no certificate to show, and client_ca asks for one: give [[clients]] with tokens, which it "
            "passes on, or leave the door out"
        )
    asks_certificates = tls is not None and tls.client_ca is not None
    if tls is not None and tls.client_certificates == "optional" and not (asks_certificates and clients):
        return 'tls: client_certificates = "optional" is for client_ca and [[clients]] with tokens: give both'
    problems = (_problem_of_client(client, asks_certificates) for client in clients)
    return next(filter(None, problems), None)


def _problem_of_client(client: ClientConfig, asks_certificates: bool) -> str | None:
    if not (client.token_file or client.token_sha256 or client.certificate):
        return f"client {client.name!r} can't be known: give it a token_file, token_sha256 or certificate"
    if client.certificate is not None and not asks_certificates:
        return f"client {client.name!r}: certificates are asked for where [tls] has a client_ca: give it, too"
    if client.rate_burst is not None and client.rate_max is None:
        return f"client {client.name!r}: rate_burst is for rate_max, which is not set: give both"
    return None


def asks_who_comes(clients: Sequence[ClientConfig], tls: TlsConfig | None) -> bool:
    """Whether a client must show who it is."""
    return bool(clients) or (tls is not None and tls.client_ca is not None)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it. A name other than localhost may mean anything."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"
