"""Who a client is: known by a token, by its certificate, or by both where its entry names both. Pure.

What is kept of tokens are their hashes. An answer says what was missing and never which part of it was right.
"""

import hmac
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from tickpath.server.access_config import ClientConfig
from tickpath.wire.tokens import digest_of


@dataclass(frozen=True, slots=True)
class Known:
    """A client that has shown who it is. `digest`: of the token that it came with, None where that was none."""

    name: str
    digest: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Stranger:
    """One that has not. `why`: for itself, and in the log."""

    why: str


class Keyring:
    """The clients that there are, and by what they are known now. Never changed: a new one takes its place.

    `digests`: of each client's tokens, by name. With no clients at all, a certificate alone will do: the authority that
    signed it has said who may come, and its own name is the client's."""

    def __init__(self, clients: Sequence[ClientConfig], digests: Mapping[str, tuple[bytes, ...]]) -> None:
        self._clients = {client.name: client for client in clients}
        self._digests = tuple((digest, name) for name, known in digests.items() for digest in known)
        self._by_certificate = {client.certificate: client.name for client in clients if client.certificate}

    def identify(self, token: str, certificate: Set[str]) -> Known | Stranger:
        """Who comes with this token (empty: none) and with a certificate of these names (none: without one)."""
        if not self._clients:
            return self._by_name(certificate)
        if token:
            return self._by_token(token, certificate)
        names = {self._by_certificate[each] for each in certificate if each in self._by_certificate}
        if len(names) > 1:
            return Stranger("its certificate is that of several clients")
        if not names:
            return Stranger("no client has this certificate" if certificate else "it has no token")
        (name,) = names
        client = self._clients[name]
        if client.token_file or client.token_sha256:
            return Stranger("its token is missing, which is asked for beside its certificate")
        return Known(name)

    def still_knows(self, known: Known) -> bool:
        """Whether what it came with would still do."""
        if known.digest is None:
            return True
        return any(name == known.name and hmac.compare_digest(digest, known.digest) for digest, name in self._digests)

    def _by_name(self, certificate: Set[str]) -> Known | Stranger:
        if not certificate:
            return Stranger("it has no certificate, which can be shown on the TLS port alone")
        name = certificate_name(certificate)
        return Known(name) if name else Stranger("its certificate has no name that a client could go by")

    def _by_token(self, token: str, certificate: Set[str]) -> Known | Stranger:
        digest, found = digest_of(token), None
        for known, name in self._digests:  # all of them: how long it takes says nothing of which it was
            if hmac.compare_digest(digest, known):
                found = name
        if found is None:
            return Stranger("its token is not known")
        wanted = self._clients[found].certificate
        if wanted is not None and wanted not in certificate:
            return Stranger("its certificate is missing, which is asked for beside its token")
        return Known(found, digest)


def certificate_names(peercert: Mapping[str, Any] | None) -> frozenset[str]:
    """The names in what `getpeercert` says, as configurations write them: `CN:desk-7`, `DNS:desk-7.example`."""
    if not peercert:
        return frozenset()
    subject = {f"CN:{value}" for pairs in peercert.get("subject", ()) for key, value in pairs if key == "commonName"}
    kinds = {"DNS": "DNS", "URI": "URI", "email": "email", "IP Address": "IP"}
    alternative = {f"{kinds[kind]}:{value}" for kind, value in peercert.get("subjectAltName", ()) if kind in kinds}
    return frozenset(subject | alternative)


def certificate_name(names: Set[str]) -> str:
    """The one that a client is called by: the most particular there is. Empty: there is none."""
    for kind in ("URI:", "DNS:", "email:", "CN:"):
        if found := sorted(name for name in names if name.startswith(kind)):
            return found[0].removeprefix(kind)
    return ""
