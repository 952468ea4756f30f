"""A client as a command's options want it."""

from tickpath.client import Client
from tickpath.client.tls import tls_of
from tickpath.client.token import token_from


def connect(
    address: str, *, token_file: str | None, tls_ca: str | None, tls_cert: str | None, tls_key: str | None
) -> Client:
    """To be used in a `with`, which connects. Raises AddressError."""
    return Client(address, token=token_from(token_file), tls=tls_of(tls_ca, tls_cert, tls_key))
