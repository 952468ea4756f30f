"""TLS, as a client speaks it: whom it trusts, and what it shows of itself."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tickpath.client.address import Address, TcpAddress
from tickpath.client.errors import AddressError, CredentialsError
from tickpath.wire.small_files import check_pem

if TYPE_CHECKING:
    import ssl


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """Files in PEM, which are read at each connection, so that new ones are taken up.

    `ca`: the authorities that sign servers' certificates; None: those that this machine trusts. `certificate`, `key`:
    what this client shows, where the server asks for it; the key may be in the certificate's file. `server_name`: the
    name that the server's certificate must have; None: the address's host.
    """

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    server_name: str | None = None

    def context(self) -> "ssl.SSLContext":
        """For one connection. Raises CredentialsError."""
        import ssl

        if self.key is not None and self.certificate is None:
            raise CredentialsError(f"a key ({self.key}) without its certificate: give both")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        files = list(filter(None, (self.ca, self.certificate, self.key)))
        for file in files:
            try:
                check_pem(Path(file))
            except OSError as error:
                raise CredentialsError(f"{file}: {error.strerror}: a file in PEM expected") from None
        try:
            if self.ca is None:
                context.load_default_certs()
            else:
                context.load_verify_locations(self.ca)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key, _no_password)
        except OSError as error:  # ssl's own among them
            with_key = ", a certificate with its key (--tls-key, Tls(key=...))" if self.certificate else ""
            raise CredentialsError(
                f"{', '.join(files)}: {error.strerror or error}: files in PEM expected{with_key}"
            ) from None
        return context


def _no_password() -> str:
    raise CredentialsError("the client's key has a password, which nobody is there to type: give it without")


def tls_for(address: Address, tls: Tls | None) -> Tls | None:
    """How to speak to this address: None without TLS. Raises AddressError where files are given for nothing."""
    if isinstance(address, TcpAddress) and address.encrypted:
        return tls or Tls()
    if tls is not None:
        raise AddressError(f"expected an address as tls://host:port with files for TLS, got {str(address)!r}")
    return None


def tls_of(ca: str | None, certificate: str | None, key: str | None) -> Tls | None:
    """Of files that may have been named; None: none was."""
    return Tls(ca=ca, certificate=certificate, key=key) if ca or certificate or key else None


def server_name(address: TcpAddress, tls: Tls) -> str:
    """The name to look for in the server's certificate."""
    return tls.server_name or address.host
