"""A server that asks who comes: its authority, its clients' tokens, and the server itself."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.certificates import Authority
from tests.peer import Peer
from tests.serving import RunningServer, serve, write_zoo

from tickpath.client import Client, Tls
from tickpath.wire import PROTOCOL_VERSION, Hello

TOKENS: Final = {
    name: f"{name}-{digit * 32}" for name, digit in (("desk", "1"), ("lab", "2"), ("slow", "3"), ("operator", "4"))
}


def clients(folder: Path) -> list[dict[str, Any]]:
    """A desk that may ask everything, a lab that may ask the MLP, one with narrow quotas, and an operator."""
    for name, token in TOKENS.items():
        path = folder / f"{name}.token"
        path.write_text(token + "\n")
        path.chmod(0o600)
    files = {name: str(folder / f"{name}.token") for name in TOKENS}
    return [
        {"name": "desk", "token_file": files["desk"]},
        {"name": "lab", "token_file": files["lab"], "models": ["mlp"]},
        {
            "name": "slow",
            "token_file": files["slow"],
            "sessions_max": 2,
            "in_flight_max": 3,
            "rate_max": 5,
            "rate_burst": 20,
        },
        {"name": "operator", "token_file": files["operator"], "admin": True, "models": []},
    ]


class Secured:
    """A server that asks, and ways to it."""

    def __init__(self, folder: Path, server: RunningServer, authority: Authority) -> None:
        self.folder = folder
        self.server = server
        self.authority = authority

    @property
    def tls(self) -> Tls:
        return Tls(ca=self.authority.path)

    def client(self, who: str, **more: Any) -> Client:
        """Over TLS."""
        arguments = {"token": TOKENS[who], "tls": self.tls, "timeout_s": 20, **more}
        return Client(self.server.address, **arguments)

    def peer(self, token: str, name: str = "peer") -> Peer:
        """On the Unix socket, with Hello said and nothing read."""
        peer = Peer(self.server.connect_unix())
        peer.send(Hello(PROTOCOL_VERSION, name, token))
        return peer


@contextmanager
def secured(
    folder: Path,
    models: Sequence[Any] | None = None,
    authority: Authority | None = None,
    exit_code: int | None = 0,
    **settings: Any,
) -> Iterator[Secured]:
    """One of its own, for tests that change it. `exit_code`: as `serve` has it."""
    authority = authority or Authority(folder)
    settings = {"tls": authority.server(), "clients": clients(folder), "admin": str(folder / "a"), **settings}
    settings = {key: value for key, value in settings.items() if value is not None}
    with serve(folder, models or write_zoo(folder, "mlp", "deeplob"), exit_code=exit_code, **settings) as server:
        yield Secured(folder, server, authority)
